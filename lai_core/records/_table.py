"""Per-sample gradients of an embedding table, never built: equal ids, sums over runs of sorted ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lai_core._engine.gradients import ParameterGradient, Workspace, inner_products, spans
from lai_core._engine.namespace import Array, Namespace, add_rows, cast, device_of, matmul, sum_runs
from lai_core._engine.outer import OuterGradient

RENUMBERING = 8
"""Numbers of the accumulation type that a position takes while its row is numbered anew."""


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
        """Keep some samples, and some columns of the table."""
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

    def renumbered(self, known: Array, work: Workspace) -> "ReadGradient":
        """Return the same over a table of the rows `known`, sorted: an id becomes its first place there."""
        xp, rows = work.xp, int(known.shape[0])
        ids, trains, _ = self._entries(work)
        ids = xp.astype(ids, known.dtype, copy=False)
        places = xp.searchsorted(known, ids)
        outside = xp.full_like(places, rows)
        found = xp.take(known, xp.where(places < rows, places, xp.zeros_like(places)), axis=0) == ids
        places = xp.reshape(xp.where(trains & found, places, outside), self.ids.shape)
        return replace(self, ids=places, rows=rows, padding=None)

    def with_read(self, other: "ReadGradient", work: Workspace) -> Array:
        """Inner products with another use of the table: equal ids, `n t n' t' d` multiply-adds."""
        xp = work.xp
        (ids, gradients), (other_ids, others) = self.flat(work), other.flat(work)
        product = matmul(xp, gradients, xp.matrix_transpose(others))
        same = xp.expand_dims(ids, axis=1) == xp.expand_dims(other_ids, axis=0)
        return _summed_pairs(xp, xp.where(same, product, xp.zeros_like(product[:1, :1])), self.ids, other.ids)

    def with_outer(self, layer: OuterGradient, work: Workspace) -> Array:
        """Inner products with a layer whose matrix the table is: its output gradients at these ids."""
        xp = work.xp
        m, u, height = layer.rows.shape
        ids, gradients = self.flat(work)
        activations = cast(xp, xp.reshape(layer.columns[0], (m * u, -1)), work.dtype)
        read = cast(xp, xp.take(xp.reshape(layer.rows, (m * u, height)), ids, axis=1), work.dtype)
        product = matmul(xp, activations, xp.matrix_transpose(gradients)) * read
        return xp.matrix_transpose(_summed_pairs(xp, product, layer.rows, self.ids))

    def total(self, work: Workspace) -> Array:
        """Return the gradient of the table, `(rows, d)`, as many columns at once as fit."""
        xp, (n, t, d) = work.xp, self.gradients.shape
        found = self._scattered(work)
        if found is not None:
            return found
        # Alive: ids, their order, runs, row numbers, of 8 bytes at most; for each column, its entries as they
        # come, in order, moved, added and joined, and the rows that are read off.
        columns, _ = work.fit_both(
            lambda w, _: 8 * n * t + 6 * self.rows + w * (5 * n * t + 2 * self.rows), d, 1, "one column"
        )
        ids, _ = self.part(slice(None), slice(0, 1)).flat(work)
        order = xp.argsort(ids)
        ids = xp.take(ids, order, axis=0)
        rows = xp.arange(self.rows, dtype=ids.dtype, device=device_of(ids))
        last = xp.searchsorted(ids, rows, side="right") - 1  # of the row's run, if it has one
        last = xp.where(last < 0, xp.zeros_like(last), last)
        present = xp.expand_dims(xp.take(ids, last, axis=0) == rows, axis=1)
        parts = []
        for span in spans(d, columns):
            _, gradients = self.part(slice(None), span).flat(work)
            sums = xp.take(_run_sums(xp, ids, xp.take(gradients, order, axis=0)), last, axis=0)
            parts.append(xp.where(present, sums, xp.zeros_like(sums[:1, :1])))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)

    def _scattered(self, work: Workspace) -> Array | None:
        """Return the gradient of the table by a namespace's own sum over ids, where it has one that fits."""
        n, t, d = self.gradients.shape
        if not work.holds((4 * n * t + self.rows) * d):
            return None
        # What does not train goes to one row more, that is left out: no copy of the gradients with zeros.
        ids, trains, gradients = self._entries(work)
        ids = work.xp.where(trains, ids, work.xp.full_like(ids, self.rows))
        found = add_rows(work.xp, self.rows + 1, ids, gradients)
        return None if found is None else found[: self.rows, ...]

    def along(self, direction: Array, work: Workspace) -> Array:
        """Return the inner product of every sample's gradient with a `total`."""
        xp, (n, t, d) = work.xp, self.gradients.shape
        parts = []
        for chunk in spans(n, work.fit(5 * t * d, n, "one sample's positions")):
            ids, trains, gradients = self.part(chunk)._entries(work)
            read = xp.take(direction, xp.where(trains, ids, xp.zeros_like(ids)), axis=0)
            products = xp.sum(cast(xp, read, work.dtype) * gradients, axis=1)
            products = xp.where(trains, products, xp.zeros_like(products[:1]))
            parts.append(xp.sum(xp.reshape(products, (-1, t)), axis=1))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _run_sums(xp: Namespace, ids: Array, sums: Array) -> Array:
    """Return at the last position of every run of equal ids, of sorted ones, the sum of the run."""
    # Each position holds the sum of its run's last k positions up to itself. What position i - k holds is of
    # the same run exactly where the ids are equal, and adding it doubles k: log2(n t) passes, whatever the
    # values. Runs never meet, so that nothing cancels, as differences of one running sum of all do.
    if (own := sum_runs(xp, ids, sums)) is not None:
        return own
    k = 1
    while k < ids.shape[0]:
        same = xp.expand_dims(ids[k:, ...] == ids[:-k, ...], axis=1)
        before = xp.where(same, sums[:-k, ...], xp.zeros_like(sums[:1, :1]))
        sums = xp.concat([sums[:k, ...], sums[k:, ...] + before], axis=0)
        k *= 2
    return sums


def _summed_pairs(xp: Namespace, product: Array, left: Array, right: Array) -> Array:
    """Sum `(n t, m u)` over the positions of both sides, whose first axes are samples and positions."""
    return xp.sum(xp.reshape(product, (*left.shape[:2], *right.shape[:2])), axis=(1, 3))


@dataclass(frozen=True)
class TableGradient(ParameterGradient):
    """The gradients of a table over all its uses: as an embedding, and as layers' matrix."""

    reads: tuple[ReadGradient, ...]
    layers: tuple[OuterGradient, ...] = ()

    @property
    def samples(self) -> int:
        """How many samples the batch has."""
        return int(self.reads[0].ids.shape[0])

    @property
    def width(self) -> int:
        """How many columns the table has."""
        return int(self.reads[0].gradients.shape[2])

    def blocks(self, training: "TableGradient", work: Workspace) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the inner products over all pairs of uses, in blocks that fit the budget."""
        # Alive for a pair of uses: ids that are compared, products, those of equal ids, sums; of each side
        # its entries as they come, trained and transposed, or a layer's factors.
        half = work.half()
        pair = 2 + 4 * self._longest() * training._longest()
        own, other = self._factor_entries(), training._factor_entries()
        rows, columns = half.fit_both(
            lambda n, m: n * m * pair + n * own + m * other,
            self.samples,
            training.samples,
            "one pair of samples",
        )
        for column in spans(training.samples, columns):
            right = training._part(column)
            for row in spans(self.samples, rows):
                yield row, column, self._part(row)._block(right, half)

    def _block(self, training: "TableGradient", work: Workspace) -> Array:
        kernel: Any = 0.0
        for read in self.reads:
            for other in training.reads:
                kernel = kernel + read.with_read(other, work)
            for layer in training.layers:
                kernel = kernel + read.with_outer(layer, work)
        for layer in self.layers:
            for other in training.reads:
                kernel = kernel + work.xp.matrix_transpose(other.with_outer(layer, work))
            for another in training.layers:
                kernel = kernel + inner_products(layer, another, work)
        return kernel

    def _longest(self) -> int:
        return max(
            int(use.shape[1]) for use in (*(r.ids for r in self.reads), *(o.rows for o in self.layers))
        )

    def _factor_entries(self) -> int:
        reads = (4 * int(read.ids.shape[1]) * (self.width + 1) for read in self.reads)
        return max((*reads, *(2 * layer.factor_entries() for layer in self.layers)))

    def _part(self, samples: slice, columns: slice = slice(None)) -> "TableGradient":
        """Keep some samples, and some columns of the table."""
        layers = (
            OuterGradient(layer.rows[samples, ...], (layer.columns[0][samples, :, columns],))
            for layer in self.layers
        )
        return TableGradient(tuple(read.part(samples, columns) for read in self.reads), tuple(layers))

    def paired(self, training: "TableGradient", work: Workspace) -> Array:
        """Return the inner product of sample j's gradient with sample j's of `training`."""
        each = (slice(j, j + 1) for j in range(self.samples))
        blocks = [inner_products(self._part(one), training._part(one), work) for one in each]
        return work.xp.concat([work.xp.reshape(block, (1,)) for block in blocks], axis=0)

    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the summed gradient of the table, `(rows, d)`."""
        found: Any = 0.0
        for part in (*(read.total(work) for read in self.reads), *(o.total(work)[0] for o in self.layers)):
            found = found + part
        return (found,)

    def along(self, direction: tuple[Array, ...], work: Workspace) -> Array:
        """Return the inner product of every sample's gradient with a `total`."""
        found: Any = 0.0
        for read in self.reads:
            found = found + read.along(direction[0], work)
        for layer in self.layers:
            found = found + layer.along(direction, work)
        return found

    def scores(self, validation: ParameterGradient, work: Workspace) -> Array:
        """Return the inner products with the summed `validation` gradient, as many columns as fit at once."""
        if not isinstance(validation, TableGradient):
            return super().scores(validation, work)
        if (smaller := self._renumbered(validation, work)) is not None:
            own, validation = smaller
            return own.scores(validation, work.half())
        # Half of the budget for the sum, the parts that it is joined of and a use's share; half for the rest.
        half = work.half()
        columns = half.fit(4 * self.reads[0].rows, self.width, "one column of the summed gradient")
        found: Any = 0.0
        for span in spans(self.width, columns):
            total = validation._part(slice(None), span).total(half)
            found = found + self._part(slice(None), span).along(total, half)
        return found

    def _renumbered(
        self, validation: "TableGradient", work: Workspace
    ) -> "tuple[TableGradient, TableGradient] | None":
        """Return training and validation over the rows that validation reads; None where it saves nothing."""
        # The summed validation gradient is zero in each row that validation does not read. Of its m ids in
        # order, s_1 <= ... <= s_m, the first that is i numbers row i anew; an i that is not among them, or
        # does not train, becomes m, which lies outside. So m rows stand for the whole vocabulary. Where all
        # of it fits 16 times, a half of the budget holds whatever the scores over m rows need.
        xp, reads = work.xp, validation.reads
        count = sum(use.ids.shape[0] * use.ids.shape[1] for use in reads)
        entries = count + sum(use.ids.shape[0] * use.ids.shape[1] for use in self.reads)
        too_large = not work.holds(16 * entries * (self.width + RENUMBERING))
        if self.layers or validation.layers or 2 * count > reads[0].rows or too_large:
            return None
        dtype = xp.result_type(*(use.ids.dtype for use in (*reads, *self.reads)))
        known = [xp.astype(xp.reshape(use.ids, (-1,)), dtype, copy=False) for use in reads]
        known = xp.sort(known[0] if len(known) == 1 else xp.concat(known))
        sides = (self.reads, reads)
        own, other = (TableGradient(tuple(use.renumbered(known, work) for use in side)) for side in sides)
        return own, other

    def joined(self, others: Sequence[ParameterGradient], work: Workspace) -> "TableGradient | None":
        """Return the gradients over all uses, as a table and as layers' matrix."""
        reads, layers = self.reads, self.layers
        for other in others:
            if isinstance(other, TableGradient):
                reads, layers = reads + other.reads, layers + other.layers
            elif isinstance(other, OuterGradient) and other.groups == 1 and len(other.columns) == 1:
                layers = (*layers, other)
            else:
                return None
        return TableGradient(reads, layers)

    def total_entries(self) -> int:
        """How many numbers `total` holds."""
        return self.reads[0].rows * self.width

    def pairwise_cost(self, training: "TableGradient") -> int:
        """Multiply-adds of all `blocks` against `training`."""
        own, other = (sum(int(read.ids.shape[1]) for read in side.reads) for side in (self, training))
        tied, other_tied = (sum(layer.positions for layer in side.layers) for side in (self, training))
        pairs = own * (other + other_tied) + tied * other
        layers = sum(a.pairwise_cost(b) for a in self.layers for b in training.layers)
        return self.samples * training.samples * pairs * (self.width + 1) + layers

    def total_cost(self) -> int:
        """Multiply-adds of `total`; reading ids costs none, summing one per number."""
        read = sum(int(read.ids.shape[1]) for read in self.reads) * self.samples * self.width
        return read + sum(layer.total_cost() for layer in self.layers) + self.total_entries()
