r"""Gradients of a matrix as they come from backpropagation: `sum_t rows_t columns_t^T`.

With rows `g` and columns `a` this is the gradient of the weight of a layer `s = W a`. The inner
product of two of them is :math:`\sum_{t,t'} \langle a_{zt}, a_{jt'}\rangle \langle g_{zt}, g_{jt'}\rangle`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jaxtyping import Float

from lai_core._checks import over_budget
from lai_core._gradients import ParameterGradient, Workspace, spans
from lai_core._namespace import Array, cast, itemsize


@dataclass(frozen=True)
class OuterGradient(ParameterGradient):
    """The factors of a matrix's per-sample gradients.

    Parameters
    ----------
    rows
        `(n, t, d_out)`.
    columns
        Blocks `(n, t, d_in_b)` of columns side by side; `d_in` is the sum of their widths.
    constant
        Value of one more column, the same at every position: 1 for a bias. None: no such column.
    scales
        Factors of each block in an inner product; read on the training side. None: all 1.
    groups
        Rows and columns fall into this many contiguous groups, and only entries within a group are
        parameters (a grouped convolution, a block-diagonal matrix).
    """

    rows: Array
    columns: tuple[Array, ...]
    constant: Array | float | None = None
    scales: Sequence[Array | float] | None = None
    groups: int = 1

    @property
    def samples(self) -> int:
        """How many samples the batch has."""
        return int(self.rows.shape[0])

    @property
    def positions(self) -> int:
        """How many positions each sample has."""
        return int(self.rows.shape[1])

    @property
    def height(self) -> int:
        """How many rows the matrix has."""
        return int(self.rows.shape[2])

    @property
    def width(self) -> int:
        """How many columns the matrix has, the constant one included."""
        return sum(int(block.shape[2]) for block in self.columns) + (self.constant is not None)

    def total_entries(self) -> int:
        """How many numbers `total` holds: `d_out d_in / groups`."""
        return self.height * sum(int(block.shape[2]) for block in self.columns) // self.groups + (
            self.height if self.constant is not None else 0
        )

    def total_cost(self) -> int:
        """Multiply-adds of `total`: `n t d_out d_in / groups`."""
        return self.samples * self.positions * self.total_entries()

    def pairwise_cost(self, training: "OuterGradient") -> int:
        """Multiply-adds of all `blocks`: by pairs of positions or built, whichever is cheaper."""
        return min(self._pairs_cost(training), self._built_cost(training))

    def _pairs_cost(self, training: "OuterGradient") -> int:
        pairs = self.samples * self.positions * training.samples * training.positions
        return pairs * (self.width + self.height)

    def _pair_entries(self, training: "OuterGradient") -> int:
        """Numbers alive at once for a pair: alpha, a block's share, beta, their product and its sum."""
        return 5 * self.groups * self.positions * training.positions

    def _built_cost(self, training: "OuterGradient") -> int:
        return (
            self.total_cost()
            + training.total_cost()
            + (self.samples * training.samples * self.total_entries())
        )

    def blocks(self, training: "OuterGradient", work: Workspace) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the inner products, built or by pairs of positions, whichever the shapes make cheaper.

        Pairs of positions cost `n_val n t t' (d_in + d_out)` multiply-adds. Building the gradients
        costs `(n_val t + n t' + n_val n) d_out d_in / groups`; they are built a few rows at a time,
        and only where one row of all of them fits the budget.
        """
        row_entries = (self.samples + training.samples) * max(int(b.shape[2]) for b in self.columns)
        fits = row_entries * itemsize(work.xp, work.dtype) <= work.memory_budget
        if fits and self._built_cost(training) < self._pairs_cost(training):
            rows = work.fit(row_entries, self.height // self.groups, "one row of the gradients")
            product = self._built(training, work, rows)
            yield slice(0, self.samples), slice(0, training.samples), product
            return
        entries = self._pair_entries(training)
        pairs = work.fit(entries, self.samples * training.samples, "one pair of samples")
        for columns in spans(training.samples, pairs):
            for chunk in spans(self.samples, max(1, pairs // (columns.stop - columns.start))):
                yield chunk, columns, self._pairs(chunk, training, columns, work)

    def _pairs(
        self, chunk: slice, training: "OuterGradient", training_chunk: slice, work: Workspace
    ) -> Float[Array, "chunk_val chunk_train"]:
        xp = work.xp
        alpha: Array = None
        for left, right, scale in self._paired_columns(training):
            product = xp.matmul(
                _by_group(left, chunk, self.groups, work),
                xp.matrix_transpose(_by_group(right, training_chunk, self.groups, work)),
            )
            product = product if scale is None else product * scale
            alpha = product if alpha is None else alpha + product
        if (constant := self._constant_product(training)) is not None:
            alpha = alpha + constant
        beta = xp.matmul(
            _by_group(self.rows, chunk, self.groups, work),
            xp.matrix_transpose(_by_group(training.rows, training_chunk, self.groups, work)),
        )
        product = xp.sum(alpha * beta, axis=0)  # over groups
        t, u = self.positions, training.positions
        if t == u == 1:
            return product
        product = xp.reshape(product, (product.shape[0] // t, t, product.shape[1] // u, u))
        return xp.sum(product, axis=(1, 3))

    def _built(self, training: "OuterGradient", work: Workspace, slab: int) -> Float[Array, "n_val n_train"]:
        xp = work.xp
        kernel: Array = None
        for rows in spans(self.height // self.groups, slab):
            for left, right, scale in self._paired_columns(training):
                right_gradients = _gradients(training, right, rows, work)
                product = xp.matmul(_gradients(self, left, rows, work), xp.matrix_transpose(right_gradients))
                product = product if scale is None else product * scale
                kernel = product if kernel is None else kernel + product
        if (constant := self._constant_product(training)) is not None:
            summed = [xp.sum(cast(xp, side.rows, work.dtype), axis=1) for side in (self, training)]
            kernel = kernel + constant * xp.matmul(summed[0], xp.matrix_transpose(summed[1]))
        return kernel

    def paired(self, training: "OuterGradient", work: Workspace) -> Float[Array, " n"]:
        """Return the inner product of sample j's gradient with sample j's of `training`."""
        xp = work.xp
        entries = self._pair_entries(training)
        parts = []
        for chunk in spans(self.samples, work.fit(entries, self.samples, "one pair of samples")):
            alpha: Array = None
            for left, right, scale in self._paired_columns(training):
                product = _samplewise(left, right, chunk, self.groups, work)
                product = product if scale is None else product * scale
                alpha = product if alpha is None else alpha + product
            if (constant := self._constant_product(training)) is not None:
                alpha = alpha + constant
            beta = _samplewise(self.rows, training.rows, chunk, self.groups, work)
            parts.append(xp.sum(alpha * beta, axis=(1, 2, 3)))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the summed gradient: `(d_out, d_in_b / groups)` a block, `(d_out,)` for a constant."""
        xp = work.xp
        everyone = slice(0, self.samples)
        rows = _by_group(self.rows, everyone, self.groups, work)
        totals = []
        for block in self.columns:
            columns = _by_group(block, everyone, self.groups, work)
            product = xp.matmul(xp.matrix_transpose(rows), columns)
            totals.append(xp.reshape(product, (self.height, product.shape[-1])))
        if self.constant is not None:
            totals.append(xp.sum(cast(xp, self.rows, work.dtype), axis=(0, 1)) * self.constant)
        return tuple(totals)

    def along(self, direction: tuple[Array, ...], work: Workspace) -> Float[Array, " n"]:
        """Return the inner product of every sample's gradient with a `total`."""
        xp = work.xp
        everyone = slice(0, self.samples)
        rows = _by_group(self.rows, everyone, self.groups, work)
        pulled = None  # rows of direction @ columns, per position: the direction seen from the outputs
        for index, block in enumerate(self.columns):
            matrix = xp.reshape(direction[index], (self.groups, self.height // self.groups, -1))
            matrix = cast(xp, matrix, work.dtype)
            columns = _by_group(block, everyone, self.groups, work)
            product = xp.matmul(columns, xp.matrix_transpose(matrix))
            product = product if self.scales is None else product * self.scales[index]
            pulled = product if pulled is None else pulled + product
        if self.constant is not None:
            offset = xp.reshape(direction[-1], (self.groups, 1, -1)) * self.constant
            pulled = pulled + cast(xp, offset, work.dtype)
        products = xp.sum(xp.sum(rows * pulled, axis=-1), axis=0)  # over outputs, over groups
        return xp.sum(xp.reshape(products, (self.samples, self.positions)), axis=1)

    def merged(self, other: ParameterGradient, work: Workspace) -> "OuterGradient | None":
        """Return both uses' positions side by side: cross terms are pairs of positions like any other."""
        if not isinstance(other, OuterGradient) or self.groups != other.groups:
            return None
        xp = work.xp
        rows, columns = (
            xp.concat([cast(xp, mine, work.dtype), cast(xp, theirs, work.dtype)], axis=1)
            for mine, theirs in ((self.rows, other.rows), (self.columns[0], other.columns[0]))
        )
        return OuterGradient(rows, (columns,), groups=self.groups)

    def scores(self, validation: ParameterGradient, work: Workspace) -> Float[Array, " n"]:
        """Return the inner products with the summed `validation` gradient, in parts that fit the budget."""
        pulled_entries = self.samples * self.positions * self.height
        needed = (self.total_entries() + pulled_entries) * itemsize(work.xp, work.dtype)
        if needed <= work.memory_budget:
            return self.along(validation.total(work), work)
        if not isinstance(validation, OuterGradient) or (len(self.columns), self.groups, self.height) == (
            1,
            1,
            1,
        ):
            raise over_budget("one row of a summed gradient", needed, work.memory_budget, "raise it")
        return sum(
            (
                mine.scores(theirs, work)
                for mine, theirs in zip(self._halves(), validation._halves(), strict=True)
            ),
            start=0.0,
        )

    def _halves(self) -> tuple["OuterGradient", "OuterGradient"]:
        """Cut the matrix in two: its blocks, else its groups, else its rows."""
        if (middle := len(self.columns) // 2) > 0:
            scales = (None, None) if self.scales is None else (self.scales[:middle], self.scales[middle:])
            return (
                replace(self, columns=self.columns[:middle], scales=scales[0]),
                replace(self, columns=self.columns[middle:], scales=scales[1], constant=None),
            )
        if self.groups > 1:
            first = self.groups // 2
            parts = (slice(0, first), slice(first, self.groups))
            return tuple(  # type: ignore[return-value]  # two parts
                replace(
                    self,
                    rows=_group_range(self.rows, part, self.groups),
                    columns=(_group_range(self.columns[0], part, self.groups),),
                    groups=part.stop - part.start,
                )
                for part in parts
            )
        middle = self.height // 2
        return replace(self, rows=self.rows[..., :middle]), replace(self, rows=self.rows[..., middle:])

    def _paired_columns(
        self, training: "OuterGradient"
    ) -> Iterator[tuple[Array, Array, Array | float | None]]:
        scales = training.scales or [None] * len(training.columns)
        return zip(self.columns, training.columns, scales, strict=True)

    def _constant_product(self, training: "OuterGradient") -> Array | float | None:
        if self.constant is None or training.constant is None:
            return None
        return self.constant * training.constant


def _by_group(array: Array, chunk: slice, groups: int, work: Workspace) -> Float[Array, "groups nt d"]:
    """Lay `(n, t, d)` out as `(groups, n t, d / groups)`, for the samples of `chunk`."""
    xp = work.xp
    array = cast(xp, array[chunk, ...], work.dtype)
    n, t, d = array.shape
    if groups == 1:
        return xp.reshape(array, (1, n * t, d))
    return xp.permute_dims(xp.reshape(array, (n * t, groups, d // groups)), (1, 0, 2))


def _samplewise(
    left: Array, right: Array, chunk: slice, groups: int, work: Workspace
) -> Float[Array, "n groups t u"]:
    """Inner products of the positions of sample j with those of sample j, per group."""
    xp = work.xp
    sides = []
    for array in (left, right):
        part = cast(xp, array[chunk, ...], work.dtype)
        n, t, d = part.shape
        sides.append(xp.permute_dims(xp.reshape(part, (n, t, groups, d // groups)), (0, 2, 1, 3)))
    return xp.matmul(sides[0], xp.matrix_transpose(sides[1]))


def _gradients(
    factors: OuterGradient, block: Array, rows: slice, work: Workspace
) -> Float[Array, "n entries"]:
    """Build the rows `rows` (of every group) of all samples' gradients, for one block of columns."""
    xp = work.xp
    sides = []
    for array in (factors.rows, block):
        array = cast(xp, array[:, ...], work.dtype)  # patches are cut out when they are indexed
        n, t, d = array.shape
        array = xp.reshape(array, (n, t, factors.groups, d // factors.groups))
        sides.append(xp.permute_dims(array, (0, 2, 1, 3)))
    product = xp.matmul(xp.matrix_transpose(sides[0][..., rows]), sides[1])
    return xp.reshape(product, (product.shape[0], -1))


def _group_range(array: Array, part: slice, groups: int) -> Array:
    """Keep the channels of the groups `part`."""
    size = array.shape[-1] // groups
    return array[..., part.start * size : part.stop * size]
