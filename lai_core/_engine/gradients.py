r"""Per-sample gradients of one parameter, never built: their inner products, their sum, their size.

Every estimator of this library is a sum of inner products of such gradients, over parameters
that exist (Ghost, LLI) or virtual ones (LAI). A gradient answers three questions:

* `blocks`: the inner products of every validation with every training sample;
* `dot_rowwise`: the inner products of sample j with sample j (leaving a sample out of its own score);
* `total` and `dot_total`: the summed validation gradient, and a batch's inner products with it.

Costs are multiply-adds and come from shapes alone, so that a choice between ways is the same
for every value and inside every compiler.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import make_budget_error
from lai_core._engine.namespace import Array, DType, Namespace, cast, dots, itemsize, matmul


@dataclass(frozen=True)
class Workspace:
    """Where and how to compute: the namespace, the accumulation type, the bytes for temporaries.

    `memory_budget` is the caller's, as errors name it; of its equal `parts` this work has one.
    """

    xp: Namespace
    dtype: DType
    memory_budget: int
    parts: int = 1

    def half(self) -> "Workspace":
        """Return one half, for work beside which as much again is alive."""
        return Workspace(self.xp, self.dtype, self.memory_budget, 2 * self.parts)

    def budget_of(self, entries: int) -> int:
        """Return the budget of which this work's part holds so many numbers."""
        return entries * itemsize(self.xp, self.dtype) * self.parts

    def holds(self, entries: int) -> bool:
        return self.budget_of(entries) <= self.memory_budget

    def make_budget_error(self, what: str, entries: int) -> ValueError:
        return make_budget_error(what, self.budget_of(entries), self.memory_budget, "raise it")

    def fit(self, entries: int, most: int, what: str) -> int:
        """Return how many units of `entries` numbers each fit the budget, at most `most`."""
        if not self.holds(entries):
            raise self.make_budget_error(what, entries)
        return min(most, self.memory_budget // self.budget_of(entries))

    def fit_both(
        self, entries: Callable[[int, int], int], rows: int, columns: int, what: str
    ) -> tuple[int, int]:
        """Halve `rows`, then `columns`, until `entries(rows, columns)` numbers fit the budget."""
        # A block of r x c pairs keeps r c products alive, and what both sides' samples are laid out as. Each
        # cut halves one side: what fits is found in log2(rows) + log2(columns) steps, by shapes alone.
        while not self.holds(entries(rows, columns)):
            if rows > 1:
                rows = (rows + 1) // 2
            elif columns > 1:
                columns = (columns + 1) // 2
            else:
                raise self.make_budget_error(what, entries(1, 1))
        return rows, columns


class ParameterGradient(ABC):
    """The gradients of one parameter, one per sample of a batch."""

    @property
    @abstractmethod
    def samples(self) -> int:
        """How many samples the batch has."""

    @abstractmethod
    def blocks(self, training: Any, work: Workspace) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the inner products in blocks that fit the budget: rows, columns, `(rows, columns)`."""

    @abstractmethod
    def dot_rowwise(self, training: Any, work: Workspace) -> Float[Array, " n"]:
        """Return the inner product of sample j's gradient with sample j's of `training`."""

    @abstractmethod
    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the gradient summed over the samples, as a tuple of arrays."""

    @abstractmethod
    def dot_total(self, direction: tuple[Array, ...], work: Workspace) -> Float[Array, " n"]:
        """Return the inner product of every sample's gradient with a `total`."""

    @abstractmethod
    def total_entries(self) -> int:
        """How many numbers `total` holds."""

    @abstractmethod
    def pairwise_cost(self, training: Any) -> int:
        """Multiply-adds of all `blocks` against `training`."""

    @abstractmethod
    def total_cost(self) -> int:
        """Multiply-adds of `total`; `dot_total` costs as many on its own batch."""

    def join(self, others: "Sequence[ParameterGradient]", work: Workspace) -> "ParameterGradient | None":
        """Return the gradient over this and other uses of one parameter; None if it has no such form."""
        return None

    def scores(self, validation: "ParameterGradient", work: Workspace) -> Float[Array, " n"]:
        """Return the inner products with the summed `validation` gradient, without keeping that sum."""
        return self.dot_total(validation.total(work), work)


def inner_products(
    validation: ParameterGradient, training: ParameterGradient, work: Workspace
) -> Float[Array, "n_val n_train"]:
    """Return the whole matrix of inner products, assembled from its blocks."""
    rows: dict[int, list[Array]] = {}
    for row, _, block in validation.blocks(training, work):
        rows.setdefault(row.start, []).append(block)
    xp = work.xp
    return _concatenate(xp, [_concatenate(xp, row, 1) for row in rows.values()], 0)


def column_sums(
    validation: ParameterGradient, training: ParameterGradient, work: Workspace
) -> Float[Array, " n_train"]:
    """Return the inner products summed over validation samples, by the cheaper way.

    Pair by pair costs `validation.pairwise_cost(training)`, through the summed validation
    gradient `validation.total_cost() + training.total_cost()` multiply-adds.
    """
    # sum_z <g_z, g_j> = <sum_z g_z, g_j>: the same by linearity. The right one builds a sum as large as the
    # parameter; the left one takes n_val n_train products, each as cheap as the gradients' factors are small.
    if validation.total_cost() + training.total_cost() <= validation.pairwise_cost(training):
        return training.scores(validation, work)
    columns: dict[int, Array] = {}
    for _, column, block in validation.blocks(training, work):
        summed = work.xp.sum(block, axis=0)
        columns[column.start] = columns[column.start] + summed if column.start in columns else summed
    return _concatenate(work.xp, list(columns.values()), 0)


def _concatenate(xp: Namespace, parts: list[Array], axis: int) -> Array:
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=axis)


def spans(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


@dataclass(frozen=True)
class VectorGradient(ParameterGradient):
    """Gradients that are at hand as they are: `(n, p)`, for biases and gains."""

    values: Array

    @property
    def samples(self) -> int:
        return int(self.values.shape[0])

    def blocks(self, training: "VectorGradient", work: Workspace) -> Iterator[tuple[slice, slice, Array]]:
        width = self.total_entries()
        rows, columns = work.fit_both(
            lambda n, m: n * m + (n + m) * width, self.samples, training.samples, "one pair of samples"
        )
        for column in spans(training.samples, columns):
            right = work.xp.matrix_transpose(cast(work.xp, training.values[column, ...], work.dtype))
            for row in spans(self.samples, rows):
                left = cast(work.xp, self.values[row, ...], work.dtype)
                yield row, column, matmul(work.xp, left, right)

    def dot_rowwise(self, training: "VectorGradient", work: Workspace) -> Float[Array, " n"]:
        left, right = (cast(work.xp, side.values, work.dtype) for side in (self, training))
        return dots(work.xp, left, right)

    def total(self, work: Workspace) -> tuple[Array, ...]:
        return (work.xp.sum(cast(work.xp, self.values, work.dtype), axis=0),)

    def dot_total(self, direction: tuple[Array, ...], work: Workspace) -> Float[Array, " n"]:
        return matmul(work.xp, cast(work.xp, self.values, work.dtype), direction[0])

    def join(self, others: Sequence[ParameterGradient], work: Workspace) -> "VectorGradient | None":
        """Return the sum of the uses' gradients."""
        # A parameter's gradient is the sum over its uses. Where all are at hand it is taken before products
        # are, and the cross terms of a square of sums need no counting.
        values = cast(work.xp, self.values, work.dtype)
        for other in others:
            if not isinstance(other, VectorGradient):
                return None
            values = values + cast(work.xp, other.values, work.dtype)
        return VectorGradient(values)

    def total_entries(self) -> int:
        return int(self.values.shape[1])

    def pairwise_cost(self, training: "VectorGradient") -> int:
        return self.samples * training.samples * self.total_entries()

    def total_cost(self) -> int:
        return self.samples * self.total_entries()
