r"""Gradients of a matrix as they come from backpropagation: `sum_t rows_t columns_t^T`.

With rows `g` and columns `a` this is the gradient of the weight of a layer `s = W a`. The inner
product of two of them is :math:`\sum_{t,t'} \langle a_{zt}, a_{jt'}\rangle \langle g_{zt}, g_{jt'}\rangle`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jaxtyping import Float

from lai_core._engine.factors import build_rows, lay_by_group, lay_by_sample
from lai_core._engine.gradients import ParameterGradient, Workspace, spans
from lai_core._engine.namespace import Array, cast, dots, is_array, matmul

FEW = 2**18
"""Multiply-adds of a product that takes no longer than to call it."""


Products = Callable[[Array, Array], Array]
"""Inner products of two sides' factors, or of the gradients that were built of them."""


@dataclass(frozen=True)
class OuterGradient(ParameterGradient):
    """The factors of a matrix's per-sample gradients, with their sum over samples and what it is for."""

    rows: Array  # `(n, t, d_out)`
    # blocks `(n, t, d_in_b)` of columns side by side; `d_in` is the sum of their widths
    columns: tuple[Array, ...]
    # value of one more column, the same at every position: 1 for a bias. None: no such column.
    constant: Array | float | None = None
    # factors of each block in an inner product; read on the training side. None: all 1.
    scales: Sequence[Array | float] | None = None
    # rows and columns fall into this many contiguous groups, and only entries within a group are
    # parameters (a grouped convolution, a block-diagonal matrix)
    groups: int = 1

    @property
    def samples(self) -> int:
        return int(self.rows.shape[0])

    @property
    def positions(self) -> int:
        return int(self.rows.shape[1])

    @property
    def height(self) -> int:
        return int(self.rows.shape[2])

    @property
    def widest(self) -> int:
        return max(self._widths)

    @property
    def width(self) -> int:
        """How many columns the matrix has, the constant one included."""
        return sum(self._widths) + (self.constant is not None)

    @property
    def _widths(self) -> list[int]:
        return [int(block.shape[2]) for block in self.columns]

    def total_entries(self) -> int:
        """How many numbers `total` holds: `d_out d_in / groups`."""
        offset = self.height if self.constant is not None else 0
        return self.height * sum(self._widths) // self.groups + offset

    def total_cost(self) -> int:
        """Multiply-adds of `total`: `n t d_out d_in / groups`."""
        return self.samples * self.positions * self.total_entries()

    def pairwise_cost(self, training: "OuterGradient") -> int:
        """Multiply-adds by pairs of positions. Building gradients costs more than `total` and `dot_total`."""
        pairs = self.samples * self.positions * training.samples * training.positions
        return pairs * (self.width + self.height)

    def _pair_entries(self, training: "OuterGradient") -> int:
        """Numbers alive at once for a pair: alpha, a block's share, beta, their product and its sum."""
        return 5 * self.groups * self.positions * training.positions

    def factor_entries(self) -> int:
        """Numbers that one sample's factors take when they are cast or cut out: rows, one block."""
        return self.positions * (self.height + self.widest)

    def blocks(self, training: "OuterGradient", work: Workspace) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the inner products, built or by pairs of positions, whichever the shapes make cheaper.

        Pairs of positions cost `n_val n t t' (d_in + d_out)` multiply-adds. Building the gradients
        costs `(n_val t + n t' + n_val n) d_out d_in / groups`; they are built a few rows at a time. Where
        the budget does not hold both, the one that needs less is taken.
        """
        pair, own, other = self._pair_entries(training), self.factor_entries(), training.factor_entries()
        # A pair by positions: sum_tt' <a_zt, a_jt'> <g_zt, g_jt'>, d_in + d_out multiply-adds a term.
        # Built: each side's gradient once, t d_out d_in and t' d_out d_in, and their product, d_out d_in.
        # Alive are `pair` numbers a pair of samples, or the one product of the built ones.
        products, rows = pair + own + other, 1 + 2 * self.widest + own + other
        kernel_cost = self.samples * training.samples * self.total_entries()
        built_cost = self.total_cost() + training.total_cost() + kernel_cost
        cheaper = built_cost < self.pairwise_cost(training)
        building = cheaper if work.holds(max(products, rows)) else rows < products
        if not building:
            counts = training.samples * training.positions, self.samples * self.positions
            one, two = (
                side.side_by_side(count, work) for side, count in zip((self, training), counts, strict=True)
            )
            if len(one.columns) == len(two.columns) == 1 < len(self.columns):
                yield from one.blocks(two, work)
                return
        each = 1 if building else pair  # numbers alive for a pair of samples, beside the sides' own
        row = self.widest if building else 0
        n, m = work.fit_both(
            lambda n, m: n * m * each + n * (own + row) + m * (other + row),
            self.samples,
            training.samples,
            "one pair of samples",
        )
        way = self._build if building else self._pairs
        for columns in spans(training.samples, m):
            for chunk in spans(self.samples, n):
                yield chunk, columns, way(chunk, training, columns, work)

    def _pairs(
        self, chunk: slice, training: "OuterGradient", training_chunk: slice, work: Workspace
    ) -> Float[Array, "chunk_val chunk_train"]:
        xp = work.xp
        products = partial(products_of, lay_by_group, (chunk, training_chunk), self.groups, work)
        alpha = self.alpha(products, training)
        beta = products(self.rows, training.rows)
        if self.groups == self.positions == training.positions == 1:
            return alpha[0, ...] * beta[0, ...]
        # multiplied entry by entry, and summed over groups and both sides' positions
        (groups, nt, mu), t, u = alpha.shape, self.positions, training.positions
        pairs = dots(xp, *(xp.reshape(side, (groups, nt, mu // u, u)) for side in (alpha, beta)))
        return xp.sum(xp.reshape(pairs, (groups, nt // t, t, mu // u)), axis=(0, 2))

    def _build(
        self, chunk: slice, training: "OuterGradient", training_chunk: slice, work: Workspace
    ) -> Float[Array, "chunk_val chunk_train"]:
        xp = work.xp
        n, m = chunk.stop - chunk.start, training_chunk.stop - training_chunk.start
        fixed = n * m + n * self.factor_entries() + m * training.factor_entries()
        slab, _ = work.fit_both(
            lambda rows, _: fixed + rows * (n + m) * self.widest,
            self.height // self.groups,
            1,
            "one row of the gradients",
        )

        def products(own: Array, other: Array) -> Array:
            return matmul(xp, own, xp.matrix_transpose(other))

        return self._sum_built(products, training, (chunk, training_chunk), slab, work)

    def _sum_built(
        self,
        products: Products,
        training: "OuterGradient",
        chunks: tuple[slice, slice],
        slab: int,
        work: Workspace,
    ) -> Array:
        """Sum the products of both sides' gradients, built `slab` rows at a time."""
        found: Array = None
        both = list(zip((self.rows, training.rows), chunks, strict=True))
        rows = [lay_by_sample(factor, chunk, self.groups, work) for factor, chunk in both]
        for *blocks, scale in self._yield_columns(training):
            pair = zip(blocks, chunks, strict=True)
            columns = [lay_by_sample(block, chunk, self.groups, work) for block, chunk in pair]
            same = training is self and chunks[0] == chunks[1]
            for part in spans(self.height // self.groups, slab):
                own = build_rows(rows[0], columns[0], part, work)
                other = own if same else build_rows(rows[1], columns[1], part, work)
                product = apply_scale(products(own, other), scale)
                found = product if found is None else found + product
        if (constant := self._constant_product(training)) is not None:
            sums = (work.xp.sum(factor[chunk, ...], axis=1, dtype=work.dtype) for factor, chunk in both)
            found = found + constant * products(*sums)
        return found

    def dot_rowwise(self, training: "OuterGradient", work: Workspace) -> Float[Array, " n"]:
        """Return the inner product of sample j's gradient with sample j's of `training`.

        By pairs of positions, `n t t' (d_in + d_out)` multiply-adds, or built a few rows at a time,
        `n (t + t') d_out d_in / groups`, whichever is cheaper; where the budget does not hold both, the
        one that needs less.
        """
        t, u = self.positions, training.positions
        factors, pair = self.factor_entries() + training.factor_entries(), self._pair_entries(training)
        cheaper = (t + u + 1) * self.total_entries() < t * u * (self.width + self.height)
        row = 3 * self.widest
        building = cheaper if work.holds(factors + max(pair, row)) else row < pair
        if not building:
            n, _ = work.fit_both(lambda n, _: n * (factors + pair), self.samples, 1, "one pair of samples")
            parts = []
            for chunk in spans(self.samples, n):
                by_sample = partial(products_of, lay_by_sample, (chunk, chunk), self.groups, work)
                sides = self.alpha(by_sample, training), by_sample(self.rows, training.rows)
                left, right = (work.xp.reshape(side, (side.shape[0], -1)) for side in sides)
                parts.append(dots(work.xp, left, right))
        else:
            rows, n = work.fit_both(
                lambda rows, n: n * (factors + rows * row),
                self.height // self.groups,
                self.samples,
                "one pair of samples",
            )
            products = partial(dots, work.xp)
            chunks = ((chunk, chunk) for chunk in spans(self.samples, n))
            parts = [self._sum_built(products, training, both, rows, work) for both in chunks]
        return parts[0] if len(parts) == 1 else work.xp.concat(parts, axis=0)

    def side_by_side(self, rows: int, work: Workspace) -> Any:
        """Return the same gradients with one block of columns, scaled, where their products are small.

        Each block is multiplied with `rows` rows at every position. Many small products take as long as they
        are many; one of all blocks is the same sum.
        """
        number = len(self.columns)
        if self.groups > 1 or number == 1 or not all(map(is_array, self.columns)):  # patches are not
            return self
        entries = self.samples * self.positions * sum(self._widths)
        if entries * rows > FEW * number or not work.holds(4 * entries):
            return self
        scales = self.scales or (None,) * len(self.columns)
        # cast before they are scaled: in half precision the product would be rounded to half precision
        blocks = [cast(work.xp, block, work.dtype) for block in self.columns]
        columns = [apply_scale(block, scale) for block, scale in zip(blocks, scales, strict=True)]
        return replace(self, columns=(work.xp.concat(columns, axis=2),), scales=None)

    def alpha(self, products: "Products", training: "OuterGradient") -> Array:
        """Return the scaled products of all blocks of columns, the constant one included."""
        alpha: Array = None
        for left, right, scale in self._yield_columns(training):
            product = apply_scale(products(left, right), scale)
            alpha = product if alpha is None else alpha + product
        constant = self._constant_product(training)
        return alpha if constant is None else alpha + constant

    def _yield_columns(
        self, training: "OuterGradient"
    ) -> Iterator[tuple[Array, Array, Array | float | None]]:
        scales = training.scales or [None] * len(training.columns)
        return zip(self.columns, training.columns, scales, strict=True)

    def _constant_product(self, training: "OuterGradient") -> Array | float | None:
        if self.constant is None or training.constant is None:
            return None
        return self.constant * training.constant

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
        xp, parts = work.xp, []
        for chunk in spans(self.samples, self._chunk(self._count_dot_entries(), work)):
            pulled = self.multiply_total(direction, chunk, work)
            products = dots(xp, lay_by_group(self.rows, chunk, self.groups, work), pulled)
            samples = (self.groups, chunk.stop - chunk.start, self.positions)
            parts.append(xp.sum(xp.reshape(products, samples), axis=(0, 2)))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

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
        sizes = ((factor, factor.shape[-1] // self.groups) for factor in (self.rows, self.columns[0]))
        rows, columns = (factor[..., part.start * size : part.stop * size] for factor, size in sizes)
        return replace(self, rows=rows, columns=(columns,), groups=part.stop - part.start)


def products_of(
    laid_out: Callable[..., Array],
    chunks: tuple[slice, slice],
    groups: int,
    work: Workspace,
    left: Array,
    right: Array,
) -> Array:
    """Return the inner products of two factors' positions, each factor's chunk of samples laid out alike."""
    left, right = (
        laid_out(factor, chunk, groups, work) for factor, chunk in zip((left, right), chunks, strict=True)
    )
    return matmul(work.xp, left, work.xp.matrix_transpose(right))


def apply_scale(product: Array, scale: Array | float | None) -> Array:
    return product if scale is None else product * scale
