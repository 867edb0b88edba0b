r"""Sizes of the gradients of a batch: of each sample, of all together, of some of them together.

With :math:`G = \sum_j g_j`, the share of sample j in the batch's gradient is
:math:`\langle g_j, G\rangle / \|G\|^2`: shares sum to 1.

Nothing here takes the difference of large numbers where it nearly vanishes: the gradient of some of the
samples is summed over these samples anew.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.gradients import ParameterGradient, Workspace
from lai_core._engine.namespace import Array
from lai_core.estimators._parameters import ghost_gradients
from lai_core.records.base import Record, Trace
from lai_core.records.compatible import check_trace

Combine = Callable[[Array], Array]
"""Adds an array up over the processes of a run."""
Gram = Callable[[Sequence[Sequence[int]]], list[list[float]]]
"""Of groups of samples, the inner products of the groups' summed gradients."""

Gradients = Callable[[Iterable[Sequence[int]]], Iterator[Mapping[str, Array]]]
"""Of groups of samples, the gradients of their summed losses, by parameter; of real numbers."""


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
        What sums over groups of the samples are to one another.
    positions
        For each sample the norms of what its layers compute at each position; None without positions.
    """

    squares: Mapping[Hashable, list[float]]
    products: list[float]
    total: float
    gram: Gram
    positions: list[list[float]] | None = None


def measure(trace: Trace, work: Workspace, combine: Combine) -> Sizes:
    """Measure the gradients of a trace, summed over processes by `combine`."""
    xp, gradients = work.xp, ghost_gradients(trace, work)
    squares: dict[Hashable, Array] = {}
    products: list[Array] = []
    total: list[Array] = []
    for key, uses in gradients.items():
        summed = tuple(map(combine, _total(uses, work)))
        squares[key] = _sum([use.paired(other, work) for use in uses for other in uses])
        products.append(_sum([use.along(summed, work) for use in uses]))
        total.append(_sum([xp.sum(part * part) for part in summed]))
    # a square of a sum of uses may round below zero; what is not a number stays so
    found = {key: [0.0 if one < 0 else one for one in to_list(square)] for key, square in squares.items()}
    return Sizes(
        found,
        [sum(column) for column in zip(*map(to_list, products), strict=True)],
        sum(float(one) for one in total),
        lambda groups: measure_groups(trace, groups, work, combine),
        measure_positions(trace, work),
    )


def measure_finite(
    trace: Trace, finite: Sequence[bool], combine: Combine = lambda array: array
) -> tuple[list[int], Sizes | None]:
    """Return the samples of a trace whose losses and gradients are finite, and the sizes of these."""
    work = check_trace("trace", trace, "all", DEFAULT_MEMORY_BUDGET)
    rows = list(range(len(finite)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of what is not finite
        found = measure(trace, work, combine)
        kept = [row for row in rows if finite[row] and _is_finite(found, row)]
        if len(kept) < len(rows) and work.dtype != work.xp.float64:
            work = replace(work, dtype=work.xp.float64)  # a square may overflow where a norm does not
            found = measure(trace, work, combine)
            kept = [row for row in rows if finite[row] and _is_finite(found, row)]
    if not kept:
        return [], None
    return kept, found if len(kept) == len(rows) else measure(select(trace, kept, work), work, combine)


def measure_by_rows(
    start: Callable[[Sequence[int]], Gradients], rows: Sequence[int]
) -> tuple[list[int], Sizes | None]:
    """Measure by two gradients a row, where a model has no trace: they are never held side by side.

    Parameters
    ----------
    start
        Returns, of a batch of some rows, what gives the gradients of sums of its losses one after the other.
    rows
        Rows with finite losses.

    Returns
    -------
    tuple
        The rows whose gradients are finite, and their sizes.
    """
    gradients, everyone = start(rows), [[place] for place in range(len(rows))]
    squares = [{name: _inner(one, one) for name, one in own.items()} for own in gradients(everyone)]
    if not all(math.isfinite(sum(own.values())) for own in squares):
        # Zero times what is not finite is NaN: one row can spoil the others' gradients in a shared pass.
        kept = [row for row in rows if all(map(math.isfinite, _squares_alone(start, row)))]
        return measure_by_rows(start, kept) if 0 < len(kept) < len(rows) else ([], None)
    (whole,) = gradients([range(len(rows))])
    products = [_multiply(whole, own) for own in gradients(everyone)]

    def gram(groups: Sequence[Sequence[int]]) -> list[list[float]]:
        sums = list(gradients(groups))
        return [[_multiply(left, right) for right in sums] for left in sums]

    named: dict[Hashable, list[float]] = {name: [own.get(name, 0.0) for own in squares] for name in whole}
    return list(rows), Sizes(named, products, _multiply(whole, whole), gram)


def add_up(sizes: Sizes, name: Callable[[Any], str | None]) -> Sizes:
    """Return sizes by the names of parameters, where several keys may be of parts of one, or of none."""
    squares: dict[Hashable, list[float]] = {}
    for key, values in sizes.squares.items():
        if name(key) is None:
            continue
        before = squares.get(name(key), [0.0] * len(values))
        squares[name(key)] = [a + b for a, b in zip(before, values, strict=True)]
    return replace(sizes, squares=squares)


def _squares_alone(start: Callable[[Sequence[int]], Gradients], row: int) -> list[float]:
    (own,) = start([row])([[0]])
    return [_inner(one, one) for one in own.values()]


def _multiply(left: Mapping[str, Array], right: Mapping[str, Array]) -> float:
    return sum(_inner(one, right[name]) for name, one in left.items() if name in right)


def _inner(left: Array, right: Array) -> float:
    return float((left * right).sum())


def _is_finite(sizes: Sizes, row: int) -> bool:
    return math.isfinite(sum(values[row] for values in sizes.squares.values()))


def measure_groups(
    trace: Trace, groups: Sequence[Sequence[int]], work: Workspace, combine: Combine
) -> list[list[float]]:
    """Return the inner products of the summed gradients of groups of samples, each summed by itself."""
    sides = [ghost_gradients(select(trace, rows, work), work) if rows else None for rows in groups]
    found = [[0.0] * len(groups) for _ in groups]
    for key, uses in ghost_gradients(trace, work).items():
        sums: list[tuple[Array, ...]] = []
        for side in sides:
            own = _total(side[key] if side else uses, work)
            sums.append(tuple(combine(part if side else part * 0.0) for part in own))
        for i, left in enumerate(sums):
            for j, right in enumerate(sums[: i + 1]):
                inner = sum(float(work.xp.sum(a * b)) for a, b in zip(left, right, strict=True))
                found[i][j] += inner
                found[j][i] = found[i][j]
    return found


def measure_positions(trace: Trace, work: Workspace) -> list[list[float]] | None:
    """Return the norms of what the layers compute at each position, `(n, t)`; None without positions."""
    # Of the layers with as many positions as most of the layers with positions have. A position is a sample
    # of its own there: several uses of one parameter at a position add up before the norm is taken.
    lengths = Counter(length for layer in trace.layers if (length := _count_positions(layer)) > 1)
    if not lengths:
        return None
    length = max(lengths, key=lambda one: (lengths[one], one))
    layers = [_flatten(layer, work) for layer in trace.layers if _count_positions(layer) == length]
    squares = [
        use.paired(other, work)
        for uses in ghost_gradients(Trace(layers), work).values()
        for use in uses
        for other in uses
    ]
    flat = [0.0 if one < 0 else one**0.5 for one in to_list(_sum(squares))]
    return [flat[start : start + length] for start in range(0, len(flat), length)]


def select(trace: Trace, rows: Sequence[int], work: Workspace) -> Trace:
    """Return the trace of some of the samples."""
    index = list(rows)

    def cut(record: Any) -> Record:
        arrays = {name: _take(array, index, work) for name, array in record.arrays().items()}
        return replace(record, **arrays)

    return Trace([cut(layer) for layer in trace.layers])


def to_list(values: Array) -> list[float]:
    """Return the numbers of a vector."""
    # one transfer where the array knows how; the standard has a number at a time alone
    read = getattr(values, "tolist", None)
    return list(map(float, read() if read is not None else (values[i] for i in range(values.shape[0]))))


def _take(array: Array, rows: list[int], work: Workspace) -> Array:
    parts = [array[row : row + 1, ...] for row in rows]
    return work.xp.concat(parts, axis=0)


def _total(uses: Sequence[ParameterGradient], work: Workspace) -> tuple[Array, ...]:
    """Return the gradient of one parameter summed over samples and uses."""
    first, *rest = (use.total(work) for use in uses)
    for other in rest:
        first = tuple(part + more for part, more in zip(first, other, strict=True))
    return first


def _sum(parts: list[Array]) -> Array:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


def _count_positions(layer: Record) -> int:
    """Return the number of a record's positions if they are the sample's, 0 otherwise."""
    counts = {0 if (shape := _positional(layer, name)) is None else shape[1] for name in layer.arrays()}
    return counts.pop() if len(counts) == 1 and layer.has_token_positions else 0


def _positional(layer: Record, name: str) -> tuple[int, ...] | None:
    """Return the shape of a record's array if its axes are samples and positions first."""
    array = layer.arrays()[name]
    words = [shape.split() for shape in layer.array_fields[name].shapes]
    return (
        tuple(array.shape) if any(one[:2] == ["n", "t"] and len(one) == array.ndim for one in words) else None
    )


def _flatten(layer: Any, work: Workspace) -> Record:
    """Return a record in which each position is a sample of its own, with one position."""
    arrays = {
        name: work.xp.reshape(array, (array.shape[0] * array.shape[1], 1, *array.shape[2:]))
        for name, array in layer.arrays().items()
    }
    return replace(layer, **arrays)
