"""Per-sample gradients of an embedding table, never built: all its uses, as a table and as layers' matrix."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lai_core._engine.gradients import ParameterGradient, Workspace, inner_products, spans
from lai_core._engine.namespace import Array
from lai_core._engine.outer import OuterGradient
from lai_core.records._reads import ReadGradient


def _part_of(layer: OuterGradient, samples: slice, columns: slice = slice(None)) -> OuterGradient:
    """Keep some samples of a layer that has the table as its matrix, and some columns of it."""
    return OuterGradient(layer.rows[samples, ...], (layer.columns[0][samples, :, columns],))


@dataclass(frozen=True)
class TableGradient(ParameterGradient):
    """The gradients of a table over all its uses: as an embedding, and as layers' matrix."""

    reads: tuple[ReadGradient, ...]
    layers: tuple[OuterGradient, ...] = ()

    @property
    def samples(self) -> int:
        return int(self.reads[0].ids.shape[0])

    @property
    def width(self) -> int:
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
                kernel = kernel + read.dot_read(other, work)
            for layer in training.layers:
                kernel = kernel + read.dot_outer(layer, work)
        for layer in self.layers:
            for other in training.reads:
                kernel = kernel + work.xp.matrix_transpose(other.dot_outer(layer, work))
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
        layers = (_part_of(layer, samples, columns) for layer in self.layers)
        return TableGradient(tuple(read.part(samples, columns) for read in self.reads), tuple(layers))

    def cut(self) -> list[ParameterGradient]:
        """Return the uses as a table, and each as a layer's matrix behind them."""
        return [replace(self, layers=()), *self.layers]

    def dot_rowwise(self, training: "TableGradient | OuterGradient", work: Workspace) -> Array:
        each = [slice(j, j + 1) for j in range(self.samples)]
        if isinstance(training, OuterGradient):
            blocks = [
                read.part(one).dot_outer(_part_of(training, one), work) for one in each for read in self.reads
            ]
        else:
            blocks = [inner_products(self._part(one), training._part(one), work) for one in each]
        flat = work.xp.concat([work.xp.reshape(block, (1,)) for block in blocks], axis=0)
        return work.xp.sum(work.xp.reshape(flat, (self.samples, -1)), axis=1)

    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the summed gradient of the table, `(rows, d)`."""
        found: Any = 0.0
        for part in (*(read.total(work) for read in self.reads), *(o.total(work)[0] for o in self.layers)):
            found = found + part
        return (found,)

    def dot_total(self, direction: tuple[Array, ...], work: Workspace) -> Array:
        found: Any = 0.0
        for read in self.reads:
            found = found + read.dot_total(direction[0], work)
        for layer in self.layers:
            found = found + layer.dot_total(direction, work)
        return found

    def scores(self, validation: ParameterGradient, work: Workspace) -> Array:
        """Return the inner products with the summed `validation` gradient, as many columns as fit at once."""
        if not isinstance(validation, TableGradient):
            return super().scores(validation, work)
        # Half of the budget for the sum, the parts that it is joined of and a use's share; half for the rest.
        half = work.half()
        columns = half.fit(4 * self.reads[0].rows, self.width, "one column of the summed gradient")
        found: Any = 0.0
        for span in spans(self.width, columns):
            total = validation._part(slice(None), span).total(half)
            found = found + self._part(slice(None), span).dot_total(total, half)
        return found

    def join(self, others: Sequence[ParameterGradient], work: Workspace) -> "TableGradient | None":
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
        return self.reads[0].rows * self.width

    def pairwise_cost(self, training: "TableGradient") -> int:
        own, other = (sum(int(read.ids.shape[1]) for read in side.reads) for side in (self, training))
        tied, other_tied = (sum(layer.positions for layer in side.layers) for side in (self, training))
        pairs = own * (other + other_tied) + tied * other
        layers = sum(a.pairwise_cost(b) for a in self.layers for b in training.layers)
        return self.samples * training.samples * pairs * (self.width + 1) + layers

    def total_cost(self) -> int:
        """Multiply-adds of `total`; reading ids costs none, summing one per number."""
        read = sum(int(read.ids.shape[1]) for read in self.reads) * self.samples * self.width
        return read + sum(layer.total_cost() for layer in self.layers) + self.total_entries()
