"""The kind of record of an embedding table: Ghost compares ids, LAI sees nothing."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lai_core._engine.gradients import ParameterGradient, Workspace, inner_products, spans
from lai_core._engine.namespace import Array, Namespace, cast, device_of
from lai_core._engine.outer import OuterGradient
from lai_core._engine.positions import with_positions
from lai_core.records.base import Axes, Record


@dataclass(frozen=True, eq=False)
class EmbeddingTrace(Record):
    r"""One use of an embedding table on one batch: which rows were read, and the gradients of what was read.

    Implements :eq:`embedding-gradient`: the inner product of two samples is :math:`\sum_{t,t'}
    [i_{zt} = i_{jt'}] \langle g_{zt}, g_{jt'} \rangle`; a table that is also a layer's matrix (equal
    `weight` keys) has the cross terms :math:`\sum_{t,t'} \langle a_{jt'}, g_{zt}\rangle\,
    g^{(l)}_{jt'}[i_{zt}]` too. Nothing of size table x samples is ever built.

    Parameters
    ----------
    ids
        Which row each position reads: integers, `(n,)` or `(n, t)`.
    output_gradients
        Gradient of each sample's own loss with respect to what was read: `(n, d)` or `(n, t, d)`.
    rows
        How many rows the table has.
    padding
        Id of a row that does not train. None: all train.
    weight
        Key of the table; records with equal keys share it.
    name
        What the table is called in messages.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> table = lai.EmbeddingTrace(np.array([[0, 1], [1, 1]]), np.ones((2, 2, 3)), rows=5)
    >>> head = lai.LayerTrace(np.zeros((2, 3)), np.zeros((2, 1)))
    >>> float(lai.ghost_kernel(*[lai.Trace([table, head])] * 2)[0, 1])
    6.0
    """

    array_fields: ClassVar = {"ids": Axes(("n", "n t"), "integral"), "output_gradients": Axes()}

    ids: Array
    output_gradients: Array | None
    rows: int
    padding: int | None = None
    weight: Hashable = None
    name: str = ""

    def check(self, where: str, xp: Namespace) -> None:
        """Raise unless the arrays fit each other.

        Raises
        ------
        ValueError
            If the samples or the positions do not fit.
        """
        super().check(where, xp)
        if self.output_gradients is None:
            return
        expected, got = tuple(self.ids.shape), tuple(self.output_gradients.shape)
        if got[:-1] != expected:
            axes = "(n, t, d)" if len(expected) == 2 else "(n, d)"
            msg = f"{where}.output_gradients: expected shape {axes} with the ids' {expected}, got {got}"
            raise ValueError(msg)

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Shape of the table: one group, rows and width; None without output gradients."""
        outputs = self.output_gradients
        return None if outputs is None else (1, self.rows, int(outputs.shape[-1]))

    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of the table."""
        xp = work.xp
        gradients = cast(xp, with_positions(xp, self.output_gradients), work.dtype)
        ids = xp.reshape(self.ids, gradients.shape[:2])
        if self.padding is not None:
            trains = xp.astype(ids != self.padding, work.dtype)
            gradients = gradients * xp.expand_dims(trains, axis=2)
        return {"weight": TableGradient((EmbeddingGradient(ids, gradients, self.rows),), ())}

    def readout_input(self, xp: Namespace) -> Array | None:
        """Return None: an id is no activation, so LAI has no readout from it."""
        return None


@dataclass(frozen=True)
class EmbeddingGradient:
    """The gradients of a table from one use: ids `(n, t)`, gradients of what was read `(n, t, d)`."""

    ids: Array
    gradients: Array
    rows: int

    def with_embedding(self, other: "EmbeddingGradient", work: Workspace) -> Array:
        """Inner products with another use of the table: equal ids, `n t n' t' d` multiply-adds."""
        xp = work.xp
        n, t, d = self.gradients.shape
        m, u, _ = other.gradients.shape
        right = xp.matrix_transpose(xp.reshape(other.gradients, (m * u, d)))
        right_ids = xp.reshape(other.ids, (1, 1, m * u))
        parts = []
        for chunk in spans(n, work.fit(3 * t * m * u, n, "one sample's positions against all others")):
            product = xp.matmul(self.gradients[chunk, ...], right)
            same = xp.astype(xp.expand_dims(self.ids[chunk, ...], axis=2) == right_ids, work.dtype)
            parts.append(_summed_pairs(xp, product * same, m, u))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

    def with_outer(self, layer: OuterGradient, work: Workspace) -> Array:
        """Inner products with a layer whose matrix the table is: its output gradients at our ids."""
        xp = work.xp
        n, t, d = self.gradients.shape
        m, u, height = layer.rows.shape
        activations = cast(xp, xp.reshape(layer.columns[0], (m * u, d)), work.dtype)
        outputs = xp.matrix_transpose(cast(xp, xp.reshape(layer.rows, (m * u, height)), work.dtype))
        parts = []
        for chunk in spans(n, work.fit(3 * t * m * u, n, "one sample's positions against all others")):
            ids = self.ids[chunk, ...]
            count = ids.shape[0]
            read = xp.reshape(xp.take(outputs, xp.reshape(ids, (count * t,)), axis=0), (count, t, m * u))
            product = xp.matmul(self.gradients[chunk, ...], xp.matrix_transpose(activations))
            parts.append(_summed_pairs(xp, product * read, m, u))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

    def total(self, work: Workspace) -> Array:
        """Return the gradient of the table, `(rows, d)`: sorted by id, summed run by run."""
        xp = work.xp
        n, t, d = self.gradients.shape
        ids = xp.reshape(self.ids, (n * t,))
        order = xp.argsort(ids)
        ordered = xp.take(xp.reshape(self.gradients, (n * t, d)), order, axis=0)
        sums = xp.concat([xp.zeros_like(ordered[:1, ...]), xp.cumulative_sum(ordered, axis=0)], axis=0)
        rows = xp.arange(self.rows, dtype=ids.dtype, device=device_of(ids))
        ordered_ids = xp.take(ids, order, axis=0)
        ends = (xp.searchsorted(ordered_ids, rows, side=side) for side in ("right", "left"))
        last, first = (xp.take(sums, end, axis=0) for end in ends)
        return last - first


def _summed_pairs(xp: Namespace, product: Array, samples: int, positions: int) -> Array:
    """Sum `(n, t, m u)` over both sides' positions."""
    n, t = product.shape[:2]
    return xp.sum(xp.reshape(product, (n, t, samples, positions)), axis=(1, 3))


@dataclass(frozen=True)
class TableGradient(ParameterGradient):
    """The gradients of a table over all its uses: as an embedding, and as layers' matrix."""

    embeddings: tuple[EmbeddingGradient, ...]
    layers: tuple[OuterGradient, ...]

    @property
    def samples(self) -> int:
        """How many samples the batch has."""
        return int(self.embeddings[0].ids.shape[0])

    def blocks(self, training: "TableGradient", work: Workspace) -> Iterator[tuple[slice, slice, Array]]:
        """Yield the inner products over all pairs of uses, as one block."""
        kernel: Any = 0.0
        for mine in self.embeddings:
            for theirs in training.embeddings:
                kernel = kernel + mine.with_embedding(theirs, work)
            for layer in training.layers:
                kernel = kernel + mine.with_outer(layer, work)
        for layer in self.layers:
            for theirs in training.embeddings:
                kernel = kernel + work.xp.matrix_transpose(theirs.with_outer(layer, work))
            for other in training.layers:
                kernel = kernel + inner_products(layer, other, work)
        yield slice(0, self.samples), slice(0, training.samples), kernel

    def paired(self, training: "TableGradient", work: Workspace) -> Array:
        """Return the inner product of sample j's gradient with sample j's of `training`."""
        parts: list[Array] = []
        for j in range(self.samples):
            mine, theirs = (side._one(slice(j, j + 1)) for side in (self, training))
            parts.extend(work.xp.reshape(block, (1,)) for _, _, block in mine.blocks(theirs, work))
        return work.xp.concat(parts, axis=0)

    def _one(self, chunk: slice) -> "TableGradient":
        """Keep the samples of `chunk`."""
        return TableGradient(
            tuple(
                EmbeddingGradient(e.ids[chunk, ...], e.gradients[chunk, ...], e.rows) for e in self.embeddings
            ),
            tuple(
                OuterGradient(layer.rows[chunk, ...], (layer.columns[0][chunk, ...],))
                for layer in self.layers
            ),
        )

    def total(self, work: Workspace) -> tuple[Array, ...]:
        """Return the summed gradient of the table, `(rows, d)`."""
        found: Any = 0.0
        for embedding in self.embeddings:
            found = found + embedding.total(work)
        for layer in self.layers:
            found = found + layer.total(work)[0]
        return (found,)

    def along(self, direction: tuple[Array, ...], work: Workspace) -> Array:
        """Return the inner product of every sample's gradient with a `total`."""
        xp = work.xp
        found: Any = 0.0
        for embedding in self.embeddings:
            n, t, d = embedding.gradients.shape
            ids = xp.reshape(embedding.ids, (n * t,))
            read = xp.reshape(xp.take(cast(xp, direction[0], work.dtype), ids, axis=0), (n, t, d))
            found = found + xp.sum(read * embedding.gradients, axis=(1, 2))
        for layer in self.layers:
            found = found + layer.along(direction, work)
        return found

    def joined(self, others: Sequence[ParameterGradient], work: Workspace) -> "TableGradient | None":
        """Return the gradients over all uses, as a table and as layers' matrix."""
        embeddings, layers = self.embeddings, self.layers
        for other in others:
            if isinstance(other, TableGradient):
                embeddings, layers = embeddings + other.embeddings, layers + other.layers
            elif isinstance(other, OuterGradient) and other.groups == 1 and len(other.columns) == 1:
                layers = (*layers, other)
            else:
                return None
        return TableGradient(embeddings, layers)

    def total_entries(self) -> int:
        """How many numbers `total` holds."""
        return self.embeddings[0].rows * int(self.embeddings[0].gradients.shape[2])

    def pairwise_cost(self, training: "TableGradient") -> int:
        """Multiply-adds of all `blocks` against `training`."""
        d = int(self.embeddings[0].gradients.shape[2])
        mine, theirs = (sum(int(e.ids.shape[1]) for e in side.embeddings) for side in (self, training))
        own, other = (sum(layer.positions for layer in side.layers) for side in (self, training))
        pairs = mine * (theirs + other) + own * theirs
        layers = sum(a.pairwise_cost(b) for a in self.layers for b in training.layers)
        return self.samples * training.samples * pairs * (d + 1) + layers

    def total_cost(self) -> int:
        """Multiply-adds of `total`; reading ids costs none, summing one per number."""
        return (
            sum(
                int(e.gradients.shape[0] * e.gradients.shape[1] * e.gradients.shape[2])
                for e in self.embeddings
            )
            + sum(layer.total_cost() for layer in self.layers)
            + self.total_entries()
        )
