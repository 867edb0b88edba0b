"""What gradients answer, against gradients built entry by entry, from the fewest bytes to enough."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lai_core as lai
from lai_core._engine import outer as engine
from lai_core._engine.gradients import (
    ParameterGradient,
    VectorGradient,
    Workspace,
    column_sums,
    inner_products,
)
from lai_core._engine.namespace import namespace_of
from lai_core._engine.outer import OuterGradient
from lai_core.records import _maps, _reads
from lai_core.records._reads import ReadGradient
from lai_core.records._table import TableGradient

XP = namespace_of({"numpy": np.ones(1)})
DRAWS = np.random.default_rng(0)


def work(numbers: float = 2.0**20) -> Workspace:
    """Return room for so many numbers of eight bytes."""
    return Workspace(XP, np.dtype(np.float64), int(8 * numbers))


@dataclass
class Case:
    """Two sides' gradients of one parameter, and the same built: `(samples, entries)`."""

    validation: ParameterGradient
    training: ParameterGradient
    built: tuple[np.ndarray, np.ndarray]

    @property
    def kernel(self) -> np.ndarray:
        return self.built[0] @ self.built[1].T


def matrix(rows: np.ndarray, blocks: list[np.ndarray], constant: Any, scales: Any, groups: int) -> np.ndarray:
    """Add up `rows_t columns_t^T` one entry after the other; a scale is a factor of its block."""
    n, t, height = rows.shape
    scales = scales or [1.0] * len(blocks)
    found = []
    for block, scale in zip(blocks, scales, strict=True):
        high, wide = height // groups, block.shape[2] // groups
        entries = np.zeros((n, height, wide))
        for sample, position, row, column in np.ndindex(n, t, height, wide):
            entry = block[sample, position, row // high * wide + column]
            entries[sample, row, column] += rows[sample, position, row] * entry * scale
        found.append(entries.reshape(n, -1))
    if constant is not None:
        found.append(rows.sum(1) * constant)
    return np.concatenate(found, axis=1)


def outer(
    samples: int, positions: int, height: int, widths: tuple[int, ...], **options: Any
) -> tuple[OuterGradient, np.ndarray]:
    rows = DRAWS.normal(size=(samples, positions, height))
    blocks = [DRAWS.normal(size=(samples, positions, width)) for width in widths]
    gradient = OuterGradient(rows, tuple(blocks), **options)
    return gradient, matrix(rows, blocks, gradient.constant, gradient.scales, gradient.groups)


def pair(one: tuple[Any, np.ndarray], two: tuple[Any, np.ndarray]) -> Case:
    return Case(one[0], two[0], (one[1], two[1]))


def vector(samples: int, width: int) -> tuple[VectorGradient, np.ndarray]:
    values = DRAWS.normal(size=(samples, width))
    return VectorGradient(values), values


def table(samples: int, reads: tuple[int, ...], layers: tuple[int, ...], rows: int = 5, width: int = 3):
    """Return a table that is read at some positions of each use, and a layer's matrix at some others."""
    used, tied = [], []
    found = np.zeros((samples, rows, width))
    for positions in reads:
        ids, gradients = (
            DRAWS.integers(-1, rows + 1, (samples, positions)),
            DRAWS.normal(size=(samples, positions, width)),
        )
        used.append(ReadGradient(ids, gradients, rows, 2))
        for sample, position in np.ndindex(samples, positions):
            if 0 <= ids[sample, position] < rows and ids[sample, position] != 2:
                found[sample, ids[sample, position]] += gradients[sample, position]
    for positions in layers:
        gradient, dense = outer(samples, positions, rows, (width,))
        tied.append(gradient)
        found += dense.reshape(found.shape)
    return TableGradient(tuple(used), tuple(tied)), found.reshape(samples, -1)


def convolution(samples: int) -> tuple[ParameterGradient, np.ndarray]:
    """Return a kernel of 3 on maps of 2 channels and length 5, padded by 1 before, with a stride of 2."""
    maps, gradients = DRAWS.normal(size=(samples, 2, 5)), DRAWS.normal(size=(samples, 3, 2))
    trace = lai.ConvolutionTrace(maps, gradients, kernel=(3,), stride=(2,), padding=((1, 0),))
    padded = np.concatenate([np.zeros((samples, 2, 1)), maps], axis=2)
    found = np.zeros((samples, 3, 3, 2))
    for sample, place, row, offset, channel in np.ndindex(samples, 2, 3, 3, 2):
        found[sample, row, offset, channel] += (
            gradients[sample, row, place] * padded[sample, channel, 2 * place + offset]
        )
    return trace.parameter_gradients(work())["weight"], found.reshape(samples, -1)


SCALED = {"constant": 0.5, "scales": (2.0, -1.0)}
CASES = {
    "a vector": pair(vector(3, 4), vector(5, 4)),
    "one position": pair(outer(3, 1, 4, (3,)), outer(5, 1, 4, (3,))),
    "few wide samples": pair(outer(3, 1, 8, (9,), constant=2.0), outer(4, 1, 8, (9,), constant=0.5)),
    "positions": pair(outer(3, 2, 6, (7,)), outer(5, 3, 6, (7,))),
    "many positions": pair(outer(3, 11, 2, (3,)), outer(5, 13, 2, (3,))),
    "blocks": pair(outer(3, 2, 4, (2, 3), constant=1.0), outer(5, 2, 4, (2, 3), **SCALED)),
    "blocks at many positions": pair(
        outer(3, 11, 2, (2, 3), constant=1.0), outer(5, 13, 2, (2, 3), **SCALED)
    ),
    "groups": pair(outer(3, 2, 4, (6,), groups=2), outer(5, 3, 4, (6,), groups=2)),
    "groups at many positions": pair(outer(3, 11, 4, (6,), groups=2), outer(5, 13, 4, (6,), groups=2)),
    "groups at one position": pair(outer(3, 1, 4, (6,), groups=2), outer(5, 1, 4, (6,), groups=2)),
    "groups of blocks": pair(outer(3, 2, 12, (10, 14), groups=2), outer(5, 2, 12, (10, 14), groups=2)),
    "a convolution": pair(convolution(3), convolution(5)),
    "a table": pair(table(3, (2, 3), ()), table(5, (2, 3), ())),
    "a table that is a layer's matrix": pair(table(3, (2,), (3,)), table(5, (1,), (4,))),
}  # fmt: skip
"""Lengths are different where they may be, so that none stands in for another."""


def first(gradient: Any, count: int) -> Any:
    if isinstance(gradient, VectorGradient):
        return VectorGradient(gradient.values[:count])
    if isinstance(gradient, TableGradient):
        return gradient._part(slice(0, count))
    columns = tuple(block[:count, ...] for block in gradient.columns)
    return replace(gradient, rows=gradient.rows[:count], columns=columns)


def test_costs_of_tables_count_all_uses():
    """Multiply-adds of the sum and of all pairs: samples, positions, then numbers of a position."""
    name = "a table that is a layer's matrix"
    validation, training = CASES[name].validation, CASES[name].training
    assert validation.total_cost() == 3 * 2 * 3 + 3 * 3 * 15 + 15
    pairs = 3 * 5 * (2 * 1 + 2 * 4 + 3 * 1) * (3 + 1) + 3 * 3 * 5 * 4 * (5 + 3)
    assert validation.pairwise_cost(training) == training.pairwise_cost(validation) == pairs


ANSWERS: dict[str, tuple[Callable[[Case, Workspace], Any], Callable[[Case], np.ndarray]]] = {
    "kernel": (lambda c, w: inner_products(c.validation, c.training, w), lambda c: c.kernel),
    "diagonal": (
        lambda c, w: c.validation.dot_rowwise(first(c.training, 3), w),
        lambda c: np.diag(c.kernel[:, :3]),
    ),
    "total and along": (
        lambda c, w: c.training.dot_total(c.validation.total(w), w),
        lambda c: c.kernel.sum(0),
    ),
    "scores": (lambda c, w: c.training.scores(c.validation, w), lambda c: c.kernel.sum(0)),
    "column sums": (lambda c, w: column_sums(c.validation, c.training, w), lambda c: c.kernel.sum(0)),
}


def refusals(call: Callable[[int], Any], budget: int = 1) -> Iterator[int]:
    """Give the bytes that one error after the other asks for, until they are enough."""
    while True:
        try:
            call(budget)
        except ValueError as error:
            said = r"memory_budget: expected at least (\d+) bytes for .*, got (\d+); raise it"
            needed, got = map(int, re.match(said, str(error)).groups())
            assert got == budget < needed
            yield (budget := needed)
        else:
            return


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", CASES)
def test_accepted_budgets_give_equal_numbers(name, answer):
    """An error names the caller's own bytes, and as many as its step needs; more bytes are never refused."""
    case, (compute, expected) = CASES[name], ANSWERS[answer]
    assert case.validation.total_entries() == case.built[0].shape[1]

    def answered(budget: int) -> np.ndarray:
        return compute(case, Workspace(XP, np.dtype(np.float64), budget))

    least = max([1, *refusals(answered)])
    for step in range(8):
        np.testing.assert_allclose(
            answered(math.ceil(least * 1.4**step)), expected(case), rtol=1e-12, atol=1e-12
        )
    if least > 1:
        with pytest.raises(ValueError, match=f"at least {least} bytes"):
            answered(least - 1)


STAIRS = {
    "a vector: kernel": "9:15 14:9 19:6 29:3 38:2 47:1",
    "positions: kernel": "80:270 94:135 95:30 164:18 233:12 371:6 547:4 723:2",
    "positions: diagonal": "86:36 95:6 190:4 285:2",
    "positions: total and along": "93:6 186:4 279:3 465:2",
    "positions: scores": "66:42 90:28 96:26 108:24 114:14 120:12 186:6 372:4 558:3 930:2",
    "blocks: kernel": "35:375 41:195 48:45 82:27 116:18 184:9 200:12 208:6 326:4 444:2",
    "blocks: diagonal": "37:48 48:9 96:6 144:3",
    "blocks: total and along": "38:14 42:12 76:8 114:6 190:4 200:3",
    "blocks: scores": "28:60 32:56 36:52 40:42 44:28 48:26 60:24 72:18 76:13 84:12 152:8 228:6 380:4 400:3",
    "groups: kernel": "63:90 75:45 118:27 161:18 242:12 247:9 273:6 321:3",
    "groups: diagonal": "68:12 110:6 220:4 330:2",
    "groups: total and along": "66:6 132:4 198:3 330:2",
    "groups: scores": "42:28 48:24 66:12 132:6 264:4 396:3 660:2",
    "a convolution: kernel": "25:405 29:270 33:135 38:189 40:60 70:36 100:24 160:12 270:8 380:4",
    "a convolution: diagonal": "26:54 40:12 80:8 120:4",
    "a convolution: total and along": "28:21 30:18 56:12 84:9 140:6",
    "a convolution: scores": "24:63 36:54 40:39 48:30 56:21 60:18 112:12 168:9 280:6",
    "a table: kernel": "268:60 440:36 612:24 956:12 1432:8 1908:4",
    "a table: total and along": "157:19 158:17 198:15 212:13 225:12 267:10",
    "a table: scores": "314:19 316:17 396:15 424:13 450:12 534:10",
    "few wide samples: kernel": "39:24 61:12 105:6 142:4 179:2",
    "few wide samples: diagonal": "39:6 78:4 117:2",
    "few wide samples: total and along": "41:6 51:5 82:3 164:2",
    "few wide samples: scores": "40:48 52:32 60:24 80:12 136:8 160:6 200:4 320:3 328:2",
    "few wide samples: column sums": "39:24 61:12 105:6 142:4 179:2",
    "a table that is a layer's matrix: kernel": "324:105 552:63 780:45 1236:24 1832:16 2428:8",
    "a table that is a layer's matrix: diagonal": "324:21",
    "a table that is a layer's matrix: total and along": "118:15 158:13 184:11 198:9 276:8 460:7",
    "a table that is a layer's matrix: scores": "236:15 316:13 368:11 396:9 552:8 920:7",
}
"""The fewest numbers of room, and where more of it takes fewer products: `room:products`.

A pair of samples takes 5 numbers for each pair of positions and group, or 1 and two rows of the gradients
that are built; its sides' factors beside. "positions": 1 + 2 * 7 + 26 + 39 = 80, and by pairs 30 + 26 + 39 =
95. A sum takes its entries four times, or twice the factors of a sample and what its columns make of the sum.
"""


@pytest.mark.parametrize("asked", STAIRS)
def test_more_room_takes_fewer_products(asked, monkeypatch):
    """By the standard's operations alone, whose numbers are counted here."""
    import array_api_compat.numpy as namespace

    monkeypatch.setattr(_maps, "convolutions", lambda *_: None)
    monkeypatch.setattr(_reads, "add_rows", lambda *_: None)
    monkeypatch.setattr(_reads, "is_numpy_array", lambda _: False)
    calls = []
    for product in ("matmul", "take"):
        own = getattr(namespace, product)
        monkeypatch.setattr(namespace, product, lambda *a, own=own, **k: calls.append(1) or own(*a, **k))

    name, answer = asked.split(": ")

    def products(room: int) -> int:
        calls.clear()
        ANSWERS[answer][0](CASES[name], work(room))
        return len(calls)

    steps = [tuple(map(int, step.split(":"))) for step in STAIRS[asked].split()]
    assert [(room, products(room)) for room, _ in steps] == steps
    before = [count for _, count in steps[:-1]]
    assert [products(room - 1) for room, _ in steps[1:]] == before
    assert {products(more * steps[-1][0]) for more in (2, 4, 8, 2**20)} == {steps[-1][1]}


def test_single_block_uses_are_joined():
    one, two = outer(3, 2, 5, (6,)), outer(3, 1, 5, (6,))
    whole = one[0].join([two[0]], work())
    built = one[1] + two[1]
    np.testing.assert_allclose(inner_products(whole, whole, work()), built @ built.T, rtol=1e-12)
    read, tied = table(3, (2,), (1,), rows=5, width=6), outer(3, 2, 5, (6,))
    whole, built = read[0].join([tied[0]], work()), read[1] + tied[1]
    np.testing.assert_allclose(inner_products(whole, whole, work()), built @ built.T, rtol=1e-12, atol=1e-12)
    for other in (outer(3, 2, 5, (2, 4)), outer(3, 2, 5, (30,), groups=5), vector(3, 4)):
        for use in (one[0], read[0]):
            assert use.join([two[0], other[0]], work()) is None


@pytest.fixture
def begins(monkeypatch):
    """Return the fewest numbers of room from which on a call takes the way of a function, or leaves it."""

    def found(owner: Any, name: str, call: Callable[[Workspace], Any], *, leaves: bool = False) -> int:
        called: list[int] = []
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: called.append(1) or own(*given))
        low, high = 0, 2**20
        while high - low > 1:
            called.clear()
            try:
                call(work(middle := (low + high) // 2))
            except ValueError as error:
                assert str(error).startswith("memory_budget: ")  # noqa: PT017
            low, high = (low, middle) if bool(called) != leaves else (middle, high)
        monkeypatch.setattr(owner, name, own)
        return high

    return found


@pytest.mark.parametrize("uses", [(2, 4), (6,)])
@pytest.mark.parametrize("rows", [7, 36, 2000])
@pytest.mark.parametrize("width", [1, 9])
def test_table_sums_fit_the_budget(uses, rows, width, begins):
    """At once by the namespace's own sums, for few columns and many, rows too."""
    validation, _ = table(3, uses, (), rows, width)
    column = 13 * 3 * uses[-1] + 8 * rows
    read = validation.reads[-1]
    assert begins(_reads, "add_rows", read.total) == max((4 * 3 * uses[-1] + rows) * width, column)


def test_table_sums_take_fitting_columns_together(monkeypatch):
    """A column of 36 rows, of which the sum takes four times as many; half of the room is for the sum."""
    (validation, built), (training, other) = (table(n, (6,), (2,), 36, 9) for n in (3, 5))
    calls, own = [], TableGradient.dot_total
    monkeypatch.setattr(TableGradient, "dot_total", lambda *given: calls.append(1) or own(*given))
    for columns in (4, 5, 9, 20):
        calls.clear()
        found = training.scores(validation, work(2 * 4 * 36 * columns))
        np.testing.assert_allclose(found, (built @ other.T).sum(0), rtol=1e-12)
        assert len(calls) == math.ceil(9 / columns)
    tied, built = outer(3, 2, 36, (9,))
    np.testing.assert_allclose(training.scores(tied, work()), (built @ other.T).sum(0), rtol=1e-12)


def test_gradients_are_built_when_cheaper(begins):
    """The diagonal of 3 by 3 positions: 7 w h against 9 (w + h) multiply-adds; all pairs as in `blocks`."""
    for height, width, fewer in ((2, 3, True), (3, 3, False)):
        one, two = outer(3, 3, height, (width,)), outer(3, 3, height, (width,))
        least = begins(
            OuterGradient, "_sum_built", lambda room, one=one, two=two: one[0].dot_rowwise(two[0], room)
        )
        assert (least <= 2**10) == fewer
    one, two = outer(5, 3, 4, (23,)), outer(5, 3, 4, (23,))
    needed = 1 + 2 * 23 + 2 * 3 * (23 + 4)
    assert begins(OuterGradient, "_build", lambda room: inner_products(one[0], two[0], room)) == needed


def test_kernels_use_own_convolutions_where_fitting(begins, monkeypatch):
    """Maps of 2 by 5, outputs of 3 by 2, 2 patches of 6; a gradient of 18."""
    (one, built), (two, other) = convolution(3), convolution(5)
    kernel, sample, gradient = built @ other.T, 2 * 10 + 3 * 6 + 2 * 6, 18
    patch, columns = two.columns[1], two.columns[1][:, ...]
    assert patch.shape == columns.shape == (5, 2, 2)
    for key in (1, slice(1, 3), (0, ...), (slice(0, 2), 0), (slice(0, 2), 0, ...)):
        np.testing.assert_array_equal(patch[key], columns[key])

    def scores(room: Workspace) -> None:
        np.testing.assert_allclose(two.scores(one, room), kernel.sum(0), rtol=1e-12)

    def build(room: Workspace, side: OuterGradient = two) -> None:
        found = one._build(slice(1, 3), side, slice(2, 5), room)
        np.testing.assert_allclose(found, kernel[1:3, 2:5], rtol=1e-12)

    kind = _maps.KernelGradient
    assert [part.shape for part in one.total(work())] == [(3, 2)] * 3
    assert begins(kind, "_sum_samples", one.total) == sample
    assert begins(kind, "dot_total", scores, leaves=True) == 2 * 4 * gradient
    assert begins(OuterGradient, "_sum_built", build, leaves=True) == 5 * (sample + 3 * gradient)
    plain = OuterGradient(two.rows, two.columns)  # no kernel any more
    build(work(), plain)
    np.testing.assert_allclose(one.scores(plain, work()), kernel.sum(1), rtol=1e-12)
    calls, own = [], kind._sides
    monkeypatch.setattr(kind, "_sides", lambda *given: calls.append(1) or own(*given))
    two.total(work(2 * sample))
    assert len(calls) == 3
    for most in (5 * gradient, 5 * gradient - 1):
        monkeypatch.setattr(_maps, "BUILT", most)
        build(work())
        assert len(calls) == 5


def test_one_sided_gradients_are_built_once(monkeypatch):
    """Columns may be shared by another gradient, and rows be those of other samples."""
    (one, built), calls, own = outer(4, 2, 3, (5,)), [], engine.build_rows
    other = replace(one, rows=one.rows + 1.0)
    expected = matrix(other.rows, list(other.columns), None, None, 1)
    monkeypatch.setattr(engine, "build_rows", lambda *given: calls.append(1) or own(*given))
    for side, numbers, last, count in ((one, built, 2, 1), (one, built, 3, 2), (other, expected, 2, 2)):
        calls.clear()
        found = one._build(slice(0, 2), side, slice(0, last), work())
        np.testing.assert_allclose(found, built[:2] @ numbers[:last].T, rtol=1e-12)
        assert len(calls) == count
