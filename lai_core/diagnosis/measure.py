r"""Sizes of the gradients of a batch: of each sample, of all together, of some of them together.

With :math:`G = \sum_j g_j`, the share of sample j in the batch's gradient is
:math:`\langle g_j, G\rangle / \|G\|^2`: shares sum to 1.

A batch is measured in parts, such as the micro-batches of a step: first each part by itself, for the norms
of its rows and their sum, and then, when the sums have met, each row along the whole. Nothing takes the
difference of large numbers where it nearly vanishes: the gradient of some samples is summed over these anew.
"""

import math
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import Any

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.gradients import ParameterGradient, Workspace
from lai_core._engine.namespace import Array, cast, device_of, namespace_of
from lai_core.estimators._parameters import ghost_gradients, sum_uses
from lai_core.records._reads import ReadGradient
from lai_core.records._table import TableGradient
from lai_core.records.base import Record, Trace
from lai_core.records.compatible import check_trace
from lai_core.records.embedding import EmbeddingTrace, GainTrace

LEAST = 1e-25
"""A square below this is computed again in float64: its terms may be below float32's least number."""
Sums = Mapping[Hashable, tuple[Array, ...]]
"""The summed gradient of some samples, by parameter."""
Gradients = Callable[[Iterable[Sequence[int]]], Iterator[Mapping[str, Array]]]
"""Of groups of samples, the gradients of their summed losses, by parameter; of real numbers."""


@dataclass(frozen=True)
class Part:
    """The samples of a part of a batch whose gradients are finite.

    Attributes
    ----------
    rows
        Which of the part's samples these are.
    squares
        `|g_j|^2` of each parameter.
    total
        The sum of their gradients; None of a part without such samples.
    along
        Returns the inner product of each sample's gradient with such a sum.
    add
        Returns the sum over some of the part's samples; None of none.
    positions
        For each sample the norms of what its layers compute at each position; None without positions.
    traced
        Whether the sums have the keys of a trace, or those of parameters.
    """

    rows: list[int]
    squares: Mapping[str, list[float]]
    total: Sums | None
    along: Callable[[Sums], list[float]]
    add: Callable[[Sequence[int]], Sums | None]
    positions: list[list[float]] | None = None
    traced: bool = True


@dataclass(frozen=True)
class Sizes:
    """Norms and inner products of the gradients of n samples, all finite.

    Attributes
    ----------
    squares
        `|g_j|^2` of each parameter, n numbers.
    products
        `<g_j, G>`, n numbers.
    total
        `|G|^2`.
    gram
        Of groups of the samples, the inner products of the groups' summed gradients.
    positions
        For each sample the norms of what its layers compute at each position; None without positions.
    """

    squares: Mapping[str, list[float]]
    products: list[float]
    total: float
    gram: Callable[[Sequence[Sequence[int]]], list[list[float]]]
    positions: list[list[float]] | None = None


NOTHING = Part([], {}, None, lambda _: [], lambda _: None)
"""A part of which no sample is finite."""


def measure(parts: Sequence[Part]) -> Sizes | None:
    """Measure a batch of its parts; None if none of its samples is finite."""
    whole = _join([part.total for part in parts])
    if whole is None:
        return None
    places = [(number, row) for number, part in enumerate(parts) for row in range(len(part.rows))]
    names = dict.fromkeys(name for part in parts for name in part.squares)
    lengths = [
        positions and len(positions[0]) for part in parts if (positions := part.positions) or part.rows
    ]

    def gram(groups: Sequence[Sequence[int]]) -> list[list[float]]:
        sums = [_add_over(parts, [places[one] for one in group]) for group in groups]
        return [[_multiply(left, right) for right in sums] for left in sums]

    return Sizes(
        {
            name: [one for part in parts for one in part.squares.get(name, [0.0] * len(part.rows))]
            for name in names
        },
        [product for part in parts for product in (part.along(whole) if part.rows else [])],
        _multiply(whole, whole),
        gram,
        [row for part in parts for row in part.positions or []]
        if len(set(lengths)) == 1 and lengths[0]
        else None,
    )


def measure_trace(
    record: Callable[[], Trace],
    finite: Sequence[bool],
    name: Callable[[Any], str | None] = str,
    *,
    again: bool = False,
) -> Part:
    """Measure the samples of a trace whose losses and gradients are finite.

    Parameters
    ----------
    record
        Returns the trace.
    finite
        Whether each sample's loss is.
    name
        Returns the parameter of a key, several keys of one that is recorded in parts; None of what is none.
    again
        Whether to record again where the trace is needed again, rather than to keep it.

    Returns
    -------
    Part
        What is known of the part.
    """
    trace, everyone = record(), list(range(len(finite)))
    work = check_trace("trace", trace, "all", DEFAULT_MEMORY_BUDGET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of what is not finite
        kinds = work.xp.__array_namespace_info__().dtypes(kind="real floating")
        # a square may overflow, or vanish, where a norm does not; JAX may be without float64
        for kind in dict.fromkeys((work.dtype, kinds.get("float64", work.dtype))):
            work = replace(work, dtype=kind)
            found = _measure_keys(trace, work)
            lengths = [sum(squares[row] for squares in found.values()) for row in everyone]
            kept = [row for row in everyone if finite[row] and math.isfinite(lengths[row])]
            if len(kept) == len(everyone) and min(lengths) >= LEAST:
                break
    if not kept:
        return NOTHING
    own = trace
    if len(kept) < len(everyone):
        own = select(trace, kept, work)
        found = _measure_keys(own, work)
    squares: dict[str, list[float]] = {}
    for key, one in found.items():
        if (called := name(key)) is not None:
            before = squares.get(called, [0.0] * len(kept))
            squares[called] = [a + b for a, b in zip(before, one, strict=True)]
    held = None if again else own

    def gradients() -> Mapping[Hashable, Sequence[ParameterGradient]]:
        return ghost_gradients(held or select(record(), kept, work), work)

    def dot_total(total: Sums) -> list[float]:
        columns = []
        for key, uses in gradients().items():
            direction = tuple(cast(work.xp, one, work.dtype) for one in total[key])
            columns += [to_list(use.dot_total(direction, work)) for use in uses]
        return [sum(column) for column in zip(*columns, strict=True)]

    def add(rows: Sequence[int]) -> Sums | None:
        if not rows:
            return None
        some = (
            select(record(), [kept[row] for row in rows], work) if held is None else select(held, rows, work)
        )
        return sum_uses(ghost_gradients(some, work), work)

    sums = sum_uses(ghost_gradients(own, work), work)
    return Part(kept, squares, sums, dot_total, add, measure_positions(own, work))


def measure_by_rows(start: Callable[[Sequence[int]], Gradients], rows: Sequence[int]) -> Part:
    """Measure by two gradients a row, where a model has no trace: they are never held side by side.

    Parameters
    ----------
    start
        Returns, of a batch of some rows, what gives the gradients of sums of its losses one after the other.
    rows
        Rows with finite losses.

    Returns
    -------
    Part
        What is known of the part.
    """
    if not rows:
        return NOTHING
    gradients, everyone = start(rows), [[place] for place in range(len(rows))]
    squares = [{name: _inner(one, one) for name, one in own.items()} for own in gradients(everyone)]
    if not all(math.isfinite(sum(own.values())) for own in squares):
        # Zero times what is not finite is NaN: one row can spoil the others' gradients in a shared pass.
        alone = [measure_by_rows(start, [row]) for row in rows if len(rows) > 1]
        kept = [row for part in alone for row in part.rows]
        return measure_by_rows(start, kept) if len(kept) < len(rows) else NOTHING

    def add(group: Sequence[int]) -> Sums | None:
        if not group:
            return None
        (found,) = gradients([group])
        return {name: (one,) for name, one in found.items()}

    def dot_total(total: Sums) -> list[float]:
        return [_multiply(total, {name: (one,) for name, one in own.items()}) for own in gradients(everyone)]

    named = {name: [own.get(name, 0.0) for own in squares] for own in squares for name in own}
    return Part(list(rows), named, add(range(len(rows))), dot_total, add, traced=False)


def _add_over(parts: Sequence[Part], places: Sequence[tuple[int, int]]) -> Sums | None:
    own = [[row for number, row in places if number == one] for one in range(len(parts))]
    return _join([part.add(rows) for part, rows in zip(parts, own, strict=True)])


def _join(sums: Iterable[Sums | None]) -> Sums | None:
    """Return the sum of sums."""
    found: dict[Hashable, tuple[Array, ...]] | None = None
    for one in sums:
        if one is None:
            continue
        found = {} if found is None else found
        for key, arrays in one.items():
            pair = zip(found[key], arrays, strict=True) if key in found else None
            found[key] = arrays if pair is None else tuple(a + b for a, b in pair)
    return found


def _multiply(left: Sums | None, right: Sums | None) -> float:
    if left is None or right is None:
        return 0.0
    return sum(
        _inner(*pair)
        for key, one in left.items()
        if key in right
        for pair in zip(one, right[key], strict=True)
    )


def _inner(left: Array, right: Array) -> float:
    """Return an inner product that neither overflows nor vanishes in the arrays' type."""
    xp = namespace_of({"gradients": left})
    if left.dtype not in (xp.float32, xp.float64):
        left, right = (xp.astype(one, xp.float32) for one in (left, right))
    if not math.prod(left.shape):
        return 0.0
    scales = [float(xp.max(xp.abs(one))) for one in (left, right)]
    if not all(0 < scale < math.inf for scale in scales):
        return math.nan if not all(map(math.isfinite, scales)) else 0.0
    return float(xp.sum((left / scales[0]) * (right / scales[1]))) * scales[0] * scales[1]


def _measure_keys(trace: Trace, work: Workspace) -> dict[Hashable, list[float]]:
    """Return the squares of each parameter's gradients, which its uses add up to."""
    found = {}
    for key, uses in ghost_gradients(trace, work).items():
        parts = [part for use in uses for part in (use.cut() if isinstance(use, TableGradient) else [use])]
        squares = [part.dot_rowwise(part, work) for part in parts]
        squares += [2.0 * one.dot_rowwise(other, work) for one, other in combinations(parts, 2)]
        # a square of a sum of uses may round below zero; what is not a number stays so
        found[key] = [0.0 if one < 0 else one for one in to_list(reduce(operator.add, squares))]
    return found


def measure_positions(trace: Trace, work: Workspace) -> list[list[float]] | None:
    """Return the norms of what the layers compute at each position, `(n, t)`; None without positions."""
    # Of the layers with as many positions as most of the layers with positions have. A position is a sample
    # of its own there. Uses of one parameter are parts by themselves, as their products would cost the most.
    parts: dict[int, list[Any]] = defaultdict(list)
    for layer in trace.layers:
        counts = {array.shape[1] if layer.has_rows(name) else 0 for name, array in layer.arrays().items()}
        if len(counts) == 1 and (length := counts.pop()) > 1:
            parts[length] += _flatten(layer, work).parameter_gradients(work).values()
    length = max(parts, key=lambda one: (len(parts[one]), one), default=0)
    if not parts[length]:  # also where no layer with positions has a parameter
        return None
    squares = [part.dot_rowwise(part, work) for part in parts[length]]
    flat = [0.0 if one < 0 else one**0.5 for one in to_list(reduce(operator.add, squares))]
    return [flat[start : start + length] for start in range(0, len(flat), length)]


def select(trace: Trace, rows: Sequence[int], work: Workspace) -> Trace:
    """Return the trace of some of the samples."""
    first = next(iter(trace.layers[0].arrays().values()))
    index = work.xp.asarray(list(rows), device=device_of(first))

    def cut(record: Any) -> Record:
        return replace(
            record, **{name: work.xp.take(one, index, axis=0) for name, one in record.arrays().items()}
        )

    return Trace([cut(layer) for layer in trace.layers])


def to_list(values: Array) -> list[float]:
    """Return the numbers of a vector."""
    # one transfer where the array knows how; the standard has a number at a time alone
    read = getattr(values, "tolist", None)
    return list(map(float, read() if read is not None else (values[i] for i in range(values.shape[0]))))


def _flatten(layer: Any, work: Workspace) -> Record:
    """Return a record in which each position is a sample of its own, with one position."""
    if isinstance(layer, EmbeddingTrace):  # one row of the table is as long as the gradient itself
        read = ReadGradient(layer.ids, layer.output_gradients, layer.rows, layer.padding)
        return GainTrace(None, read.flat(work)[1][:, None, :])
    arrays = {
        name: work.xp.reshape(array, (array.shape[0] * array.shape[1], 1, *array.shape[2:]))
        for name, array in layer.arrays().items()
    }
    return replace(layer, **arrays)
