r"""Gradients of a matrix as they come from backpropagation: `sum_t rows_t columns_t^T`.

With rows `g` and columns `a` this is the gradient of the weight of a layer `s = W a`. The inner
product of two of them is :math:`\sum_{t,t'} \langle a_{zt}, a_{jt'}\rangle \langle g_{zt}, g_{jt'}\rangle`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float

from lai_core._engine.factors import lay_by_group, select_groups
from lai_core._engine.gradients import ParameterGradient, Workspace, spans
from lai_core._engine.namespace import Array, cast, dots, matmul
from lai_core._engine.pairs import Factors, apply_scale


@dataclass(frozen=True)
class OuterGradient(Factors):
    """The factors of a matrix's per-sample gradients, with their sum over samples and what it is for."""

    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the summed gradient: `(d_out, d_in_b / groups)` a block, `(d_out,)` for a constant."""
        xp = work.xp
        totals: list[Array] = []
        for chunk in spans(self.samples, self._chunk(self.factor_entries(), work)):
            rows = xp.matrix_transpose(lay_by_group(self.rows, chunk, self.groups, work))
            for index, block in enumerate(self.columns):
                product = matmul(xp, rows, lay_by_group(block, chunk, self.groups, work))
                product = xp.reshape(product, (self.height, product.shape[-1]))
                totals[index : index + 1] = [product if chunk.start == 0 else totals[index] + product]
        if self.constant is not None:
            totals.append(xp.sum(self.rows, axis=(0, 1), dtype=work.dtype) * self.constant)
        return tuple(totals)

    def dot_total(self, direction: tuple[Array, ...], work: Workspace) -> Float[Array, " n"]:
        chunks = spans(self.samples, self._chunk(self._count_dot_entries(), work))
        parts = [self._dot_total(direction, chunk, work) for chunk in chunks]
        return parts[0] if len(parts) == 1 else work.xp.concat(parts, axis=0)

    def _dot_total(self, direction: tuple[Array, ...], chunk: slice, work: Workspace) -> Float[Array, " n"]:
        xp = work.xp
        pulled = self.multiply_total(direction, chunk, work)
        products = dots(xp, lay_by_group(self.rows, chunk, self.groups, work), pulled)
        samples = (self.groups, chunk.stop - chunk.start, self.positions)
        return xp.sum(xp.reshape(products, samples), axis=(0, 2))

    def multiply_total(
        self, direction: tuple[Array, ...], chunk: slice, work: Workspace
    ) -> Float[Array, "groups nt d"]:
        """Return a `total` times the columns, `(groups, n t, d_out / groups)`, scaled as in `dot_total`."""
        xp = work.xp
        one = self.side_by_side(self.height, work)
        if one is not self:
            columns = len(self.columns)
            matrix = xp.concat([cast(xp, block, work.dtype) for block in direction[:columns]], axis=-1)
            return one.multiply_total((matrix, *direction[columns:]), chunk, work)
        shape = (self.groups, self.height // self.groups, -1)
        pulled: Array = None
        for index, block in enumerate(self.columns):
            matrix = xp.reshape(cast(xp, direction[index], work.dtype), shape)
            product = matmul(xp, lay_by_group(block, chunk, self.groups, work), xp.matrix_transpose(matrix))
            product = apply_scale(product, None if self.scales is None else self.scales[index])
            pulled = product if pulled is None else pulled + product
        if self.constant is not None:
            offset = xp.reshape(cast(xp, direction[-1], work.dtype), (self.groups, 1, -1))
            pulled = pulled + offset * self.constant
        return pulled

    def _count_dot_entries(self) -> int:
        """Numbers a sample takes in `dot_total`: its factors, and what the columns make of the total."""
        return self.factor_entries() + 3 * self.positions * self.height

    def _chunk(self, entries: int, work: Workspace) -> int:
        """How many samples fit the budget, at `entries` numbers each."""
        return work.fit(entries, self.samples, "one sample's positions")

    def join(self, others: Sequence[ParameterGradient], work: Workspace) -> "OuterGradient | None":
        """Return all uses' positions side by side: cross terms are pairs of positions like any other."""
        uses = [self, *(other for other in others if isinstance(other, OuterGradient))]
        one_block = all((use.groups, len(use.columns)) == (self.groups, 1) for use in uses)
        if len(uses) <= len(others) or not one_block:  # a kernel's blocks are patches: not held side by side
            return None
        xp = work.xp
        rows = xp.concat([cast(xp, use.rows, work.dtype) for use in uses], axis=1)
        columns = xp.concat([cast(xp, use.columns[0][:, ...], work.dtype) for use in uses], axis=1)
        return OuterGradient(rows, (columns,), groups=self.groups)

    def scores(self, validation: ParameterGradient, work: Workspace) -> Float[Array, " n"]:
        """Return the inner products with the summed `validation` gradient, in parts that fit the budget."""
        # Scores are sums over the summed gradient's entries: where it is too large, its two halves are summed
        # and multiplied one after the other, each cut again until it fits. Alive are the sum, one chunk's
        # share of it while the two are added, and as much again for the factors of a sample or more.
        half, factors = work.half(), self._count_dot_entries()
        if isinstance(validation, OuterGradient):
            factors = max(factors, validation.factor_entries())
        needed = max(4 * self.total_entries(), 2 * factors)
        if work.holds(needed):
            return self.dot_total(validation.total(half), half)
        one_row = len(self.columns) == self.groups == self.height == 1
        if one_row or not isinstance(validation, OuterGradient):
            raise work.make_budget_error("one row of a summed gradient", needed)
        halves = zip(self._halves(), validation._halves(), strict=True)
        first, second = (own.scores(other, work) for own, other in halves)
        return first + second

    def _halves(self) -> tuple["OuterGradient", "OuterGradient"]:
        """Cut the matrix in two: its blocks, else its groups, else its rows."""
        if (middle := len(self.columns) // 2) > 0:
            first, second = (
                (None, None) if self.scales is None else (self.scales[:middle], self.scales[middle:])
            )
            return (
                replace(self, columns=self.columns[:middle], scales=first),
                replace(self, columns=self.columns[middle:], scales=second, constant=None),
            )
        if self.groups > 1:
            cut = self.groups // 2
            return self._group_range(slice(0, cut)), self._group_range(slice(cut, self.groups))
        middle = self.height // 2
        return replace(self, rows=self.rows[..., :middle]), replace(self, rows=self.rows[..., middle:])

    def _group_range(self, part: slice) -> "OuterGradient":
        rows, columns = (select_groups(factor, part, self.groups) for factor in (self.rows, self.columns[0]))
        return replace(self, rows=rows, columns=(columns,), groups=part.stop - part.start)
