"""From which room on, and for which shapes, a gradient takes another way: by formulas of what it needs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lai_core as lai
from lai_core._engine import pairs
from lai_core._engine.gradients import Workspace, inner_products
from lai_core._engine.outer import OuterGradient
from lai_core.estimators._parameters import ghost_gradients
from lai_core.records import _maps, _reads
from lai_core.records._reads import ReadGradient
from lai_core.records.compatible import check_trace
from tests.core.engine.test_budgets import convolution, outer, table, vector, work


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
def test_a_table_is_summed_by_what_fits(uses, rows, width, begins, monkeypatch):
    """Over the rows that validation reads, or at once; for few columns and many, rows too."""
    (validation, built), (training, other) = (table(n, uses, (), rows, width) for n in (3, 5))
    entries = (3 + 5) * (2 + 4)

    def scores(room: Workspace) -> None:
        np.testing.assert_allclose(training.scores(validation, room), (built @ other.T).sum(0), atol=1e-12)

    column = 13 * 3 * uses[-1] + 8 * rows
    read = validation.reads[-1]
    assert begins(_reads, "add_rows", read.total) == max((4 * 3 * uses[-1] + rows) * width, column)
    monkeypatch.setattr(_reads, "add_rows", lambda *_: None)
    few = rows >= 2 * 3 * (2 + 4)
    assert begins(ReadGradient, "renumber", scores) == (16 * entries * (width + 8) if few else 2**20)


def test_a_convolution_is_taken_by_what_fits(begins, monkeypatch):
    """Of length 5, with 2 channels: maps twice, outputs thrice, patches; a kernel of 3 rows and 6 columns."""
    (validation, built), (training, other) = convolution(3), convolution(5)
    sample, kernel = 2 * 10 + 3 * 6 + 2 * 6, 3 * 6
    plain = [OuterGradient(side.rows, side.columns) for side in (validation, training)]

    def scores(own: Any, given: Any) -> Callable[[Workspace], None]:
        return lambda room: np.testing.assert_allclose(
            own.scores(given, room), (built @ other.T).sum(0), rtol=1e-12
        )

    assert begins(_maps, "convolutions", validation.total) == sample
    assert begins(OuterGradient, "scores", scores(training, validation), leaves=True) == 2 * max(
        sample, 4 * kernel
    )
    assert begins(OuterGradient, "scores", scores(training, plain[0]), leaves=True) == 2**20
    chunks = [
        sum(1 for _ in training._chunks(work(room)))
        for room in (sample, 2 * sample, 5 * sample - 1, 5 * sample)
    ]
    assert chunks == [5, 3, 2, 1]
    wide = lai.ConvolutionTrace(
        np.ones((3, 2, 9)), np.ones((3, 3, 4)), kernel=(3,), stride=(2,), padding=((1, 0),)
    )
    wide = wide.parameter_gradients(work())["weight"]
    needed = 2 * (2 * 18 + 3 * 12 + 4 * 6)
    assert begins(OuterGradient, "scores", lambda room: training.scores(wide, room), leaves=True) == needed

    def kernels(given: Any) -> Callable[[Workspace], None]:
        return lambda room: np.testing.assert_allclose(
            validation._build(slice(1, 3), given, slice(2, 5), room), built[1:3] @ other[2:5].T, rtol=1e-12
        )

    assert begins(_maps, "matmul", kernels(training)) == (2 + 3) * (sample + 3 * kernel)
    assert begins(_maps, "matmul", kernels(plain[1])) == 2**20
    for most, fits in ((5 * kernel, True), (5 * kernel - 1, False)):
        monkeypatch.setattr(_maps, "BUILT", most)
        assert (begins(_maps, "matmul", kernels(training)) < 2**20) == fits
    monkeypatch.undo()
    own = _maps.convolutions
    monkeypatch.setattr(_maps, "convolutions", lambda *given: own(*given)._replace(sample_gradients=None))
    assert begins(_maps, "matmul", kernels(training)) == 2**20


def test_uses_of_one_matrix_are_joined_where_both_have_one_block():
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


def test_gradients_are_built_where_that_takes_fewer_products(begins):
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


def test_uses_of_one_weight_are_one_gradient_where_they_can_be_joined():
    uses = [lai.LayerTrace(np.ones((2, d)), np.ones((2, 3)), weight="one") for d in (4, 4)]
    trace = lai.Trace(uses)
    (found,) = ghost_gradients(trace, check_trace("trace", trace, "all", 2**20)).values()
    assert [gradient.positions for gradient in found] == [2]


def test_rows_that_are_built_are_cut_for_the_caches_unless_few_fit(monkeypatch):
    one, two = (outer(1, 1, 40, (3,)) for _ in range(2))
    calls, own = [], pairs.matmul
    monkeypatch.setattr(pairs, "matmul", lambda *given: calls.append(1) or own(*given))
    for held, products in ((None, 1), (16 * 2 * 3 - 1, 1), (16 * 2 * 3, 3), (20 * 2 * 3, 2)):
        calls.clear()
        monkeypatch.setattr(pairs, "count_cacheable", lambda _, held=held: held)
        found = one[0]._build(slice(0, 1), two[0], slice(0, 1), work())
        np.testing.assert_allclose(found, one[1] @ two[1].T, rtol=1e-12)
        assert len(calls) == products
