"""Per-sample gradients of a table from one use of it as an embedding: equal ids, sums over runs of ids."""

from dataclasses import dataclass, replace
from math import prod

from lai_core._engine.gradients import Workspace, spans
from lai_core._engine.namespace import Array, Namespace, cast, device_of, dots, is_numpy_array, matmul
from lai_core._engine.outer import OuterGradient
from lai_core._engine.own import add_rows, kernel_of_equal_ids


@dataclass(frozen=True)
class ReadGradient:
    """The gradients of a table from one use: ids `(n, t)`, gradients of what was read `(n, t, d)`.

    A position whose id is `padding`, or outside the table, counts for nothing.
    """

    ids: Array
    gradients: Array
    rows: int
    padding: int | None = None

    def part(self, samples: slice, columns: slice = slice(None)) -> "ReadGradient":
        return replace(self, ids=self.ids[samples, ...], gradients=self.gradients[samples, :, columns])

    def flat(self, work: Workspace) -> tuple[Array, Array]:
        """Return ids `(n t,)` inside the table and gradients `(n t, d)`, zero where nothing trains."""
        xp = work.xp
        ids, trains, gradients = self._entries(work)
        gradients = xp.where(xp.expand_dims(trains, axis=1), gradients, xp.zeros_like(gradients[:1, :1]))
        return xp.where(trains, ids, xp.zeros_like(ids)), gradients

    def _entries(self, work: Workspace) -> tuple[Array, Array, Array]:
        """Return ids `(n t,)`, whether they train, and gradients `(n t, d)`, as they came."""
        xp, (n, t, d) = work.xp, self.gradients.shape
        ids = xp.reshape(self.ids, (n * t,))
        trains = (ids >= 0) & (ids < self.rows)
        if self.padding is not None:
            trains = trains & (ids != self.padding)
        return ids, trains, cast(xp, xp.reshape(self.gradients, (n * t, d)), work.dtype)

    def dot_read(self, other: "ReadGradient", work: Workspace) -> Array:
        """Inner products with another use of the table: equal ids, `n t n' t' d` multiply-adds."""
        xp = work.xp
        if is_numpy_array(self.gradients):
            sides = []
            for use in (self, other):
                ids, trains, gradients = use._entries(work)
                ids = xp.where(trains, ids, xp.full_like(ids, -1))
                sides.append((xp.reshape(ids, use.ids.shape), gradients))
            if (found := kernel_of_equal_ids(xp, *sides)) is not None:
                return found
        (ids, gradients), (other_ids, others) = self.flat(work), other.flat(work)
        product = matmul(xp, gradients, xp.matrix_transpose(others))
        same = xp.expand_dims(ids, axis=1) == xp.expand_dims(other_ids, axis=0)
        return _sum_pairs(xp, xp.where(same, product, xp.zeros_like(product[:1, :1])), self.ids, other.ids)

    def dot_outer(self, layer: OuterGradient, work: Workspace) -> Array:
        """Inner products with a layer whose matrix the table is: its output gradients at these ids."""
        xp = work.xp
        m, u, height = layer.rows.shape
        ids, gradients = self.flat(work)
        activations = cast(xp, xp.reshape(layer.columns[0], (m * u, -1)), work.dtype)
        read = cast(xp, xp.take(xp.reshape(layer.rows, (m * u, height)), ids, axis=1), work.dtype)
        product = matmul(xp, activations, xp.matrix_transpose(gradients)) * read
        return xp.matrix_transpose(_sum_pairs(xp, product, layer.rows, self.ids))

    def total(self, work: Workspace) -> Array:
        """Return the gradient of the table, `(rows, d)`, as many columns at once as fit."""
        xp, d = work.xp, self.gradients.shape[2]
        found = self._scatter_sum(work)
        if found is not None:
            return found
        columns, _ = work.fit_both(lambda w, _: self.column_entries(w), d, 1, "one column")
        ids, _ = self.part(slice(None), slice(0, 1)).flat(work)
        order = xp.argsort(ids)
        ids = xp.take(ids, order, axis=0)
        rows = xp.arange(self.rows, dtype=ids.dtype, device=device_of(ids))
        last = xp.searchsorted(ids, rows, side="right") - 1  # of the row's run, if it has one
        last = xp.maximum(last, xp.zeros_like(last))
        present = xp.expand_dims(xp.take(ids, last, axis=0) == rows, axis=1)
        parts = []
        for span in spans(d, columns):
            _, gradients = self.part(slice(None), span).flat(work)
            sums = xp.take(_run_sums(xp, ids, xp.take(gradients, order, axis=0)), last, axis=0)
            parts.append(xp.where(present, sums, xp.zeros_like(sums[:1, :1])))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)

    def column_entries(self, columns: int) -> int:
        """Numbers alive while so many columns of the table are summed by the standard's operations."""
        # Ids, their order, runs, row numbers, of 8 bytes at most; for each column, its entries as they come,
        # in order, moved, added and joined, and the rows that are read off.
        entries = prod(self.ids.shape)
        return 8 * entries + 6 * self.rows + columns * (5 * entries + 2 * self.rows)

    def _scatter_sum(self, work: Workspace) -> Array | None:
        """Return the gradient of the table by a namespace's own sum over ids, where it has one that fits."""
        n, t, d = self.gradients.shape
        if not (work.holds((4 * n * t + self.rows) * d) and work.holds(self.column_entries(1))):
            return None
        # What does not train goes to one row more, that is left out: no copy of the gradients with zeros.
        ids, trains, gradients = self._entries(work)
        ids = work.xp.where(trains, ids, work.xp.full_like(ids, self.rows))
        found = add_rows(work.xp, self.rows + 1, ids, gradients)
        return None if found is None else found[: self.rows, ...]

    def dot_total(self, direction: Array, work: Workspace) -> Array:
        """Return the inner product of every sample's gradient with a `total`."""
        xp, (n, t, d) = work.xp, self.gradients.shape
        parts = []
        for chunk in spans(n, work.fit(5 * t * d, n, "one sample's positions")):
            ids, trains, gradients = self.part(chunk)._entries(work)
            read = xp.take(direction, xp.where(trains, ids, xp.zeros_like(ids)), axis=0)
            products = dots(xp, cast(xp, read, work.dtype), gradients)
            products = xp.where(trains, products, xp.zeros_like(products[:1]))
            parts.append(xp.sum(xp.reshape(products, (-1, t)), axis=1))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _run_sums(xp: Namespace, ids: Array, sums: Array) -> Array:
    """Return at the last position of every run of equal ids, of sorted ones, the sum of the run."""
    # Each position holds the sum of its run's last k positions up to itself. What position i - k holds is of
    # the same run exactly where the ids are equal, and adding it doubles k: log2(n t) passes, whatever the
    # values. Runs never meet, so that nothing cancels, as differences of one running sum of all do.
    k = 1
    while k < ids.shape[0]:
        same = xp.expand_dims(ids[k:, ...] == ids[:-k, ...], axis=1)
        before = xp.where(same, sums[:-k, ...], xp.zeros_like(sums[:1, :1]))
        sums = xp.concat([sums[:k, ...], sums[k:, ...] + before], axis=0)
        k *= 2
    return sums


def _sum_pairs(xp: Namespace, product: Array, left: Array, ids: Array) -> Array:
    """Sum `(n t, m u)` over the positions of both sides: `left` is `(n, t, ...)`, `ids` are `(m, u)`."""
    return xp.sum(xp.reshape(product, (*left.shape[:2], *ids.shape)), axis=(1, 3))
