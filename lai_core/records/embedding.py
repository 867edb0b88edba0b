"""Records of what is no layer: an embedding table, gains, offsets, bare parameters; LAI sees none of it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from lai_core._engine.axes import Axes
from lai_core._engine.checks import check_count
from lai_core._engine.factors import sum_positions, with_positions
from lai_core._engine.gradients import ParameterGradient, VectorGradient, Workspace
from lai_core._engine.namespace import Array, Namespace, cast
from lai_core.records._reads import ReadGradient
from lai_core.records._table import TableGradient
from lai_core.records.base import Record


@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingTrace(Record):
    r"""One use of an embedding table on one batch: which rows were read, and the gradients of what was read.

    Implements :eq:`embedding-gradient`: the inner product of two samples is :math:`\sum_{t,t'}
    [i_{zt} = i_{jt'}] \langle g_{zt}, g_{jt'} \rangle`; a table that is also a layer's matrix (equal
    `weight` keys) has the cross terms :math:`\sum_{t,t'} \langle a_{jt'}, g_{zt}\rangle\,
    g^{(l)}_{jt'}[i_{zt}]` too. Nothing of size table x samples is ever built.

    Parameters
    ----------
    ids
        Which row each position reads: integers, `(n,)` or `(n, t)`. One outside the table counts for
        nothing, as no value is looked at here; `lai_core.check_values` names it.
    output_gradients
        Gradient of each sample's own loss with respect to what was read: `(n, d)` or `(n, t, d)`.
    rows
        How many rows the table has.
    padding
        Id of a row that does not train. None: all train.
    weight, name
        As in `LayerTrace`.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> table = lai.EmbeddingTrace(np.array([[0, 1], [1, 1]]), np.ones((2, 2, 3)), rows=5)
    >>> head = lai.LayerTrace(np.zeros((2, 3)), np.zeros((2, 1)))
    >>> float(lai.ghost_kernel(*[lai.Trace([table, head])] * 2)[0, 1])
    6.0
    """

    array_fields: ClassVar[Mapping[str, Axes]] = {
        "ids": Axes(("n", "n t"), "integral"),
        "output_gradients": Axes(),
    }

    ids: Array
    output_gradients: Array | None
    rows: int
    padding: int | None = None
    weight: Hashable = None
    name: str = ""

    def check(self, where: str, xp: Namespace) -> None:
        """Raise unless the arrays fit each other."""
        super().check(where, xp)
        check_count(f"{where}.rows", self.rows)
        if self.padding is not None:
            check_count(f"{where}.padding", self.padding, 0)
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
        gradients = with_positions(work.xp, self.output_gradients)
        # In the default integer type: how many rows there are may not fit into the ids' own.
        ids = cast(work.xp, work.xp.reshape(self.ids, gradients.shape[:2]), work.xp.arange(0).dtype)
        return {"weight": TableGradient((ReadGradient(ids, gradients, self.rows, self.padding),))}

    def check_values(self, where: str, xp: Namespace) -> None:
        """Raise unless every id is one of the table's."""
        low, high = int(xp.min(self.ids)), int(xp.max(self.ids))
        if low < 0 or high >= self.rows:
            msg = f"{where}.ids: expected ids in [0, {self.rows}), got {low} to {high}"
            raise ValueError(msg)

    def readout_input(self, xp: Namespace) -> Array | None:
        """Return None: an id is no activation, so LAI has no readout from it."""
        return None


@dataclass(frozen=True, eq=False, repr=False)
class GainTrace(Record):
    r"""One use of a vector that multiplies or is added: a normalisation's gain, an offset, a bare parameter.

    Implements :eq:`gain-gradient`: the gradient of a gain is :math:`\sum_t g_t \circ \hat x_t`, of an
    offset :math:`\sum_t g_t`. LAI sees nothing of it.

    Parameters
    ----------
    normalized
        What the vector multiplies, `(n, d)` or `(n, t, d)`. None for an offset: what is added.
    output_gradients
        Gradient of each sample's own loss with respect to the product or sum, of the same shape.
    weight, name
        As in `LayerTrace`.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> gain = lai.GainTrace(np.ones((2, 5, 3)), np.ones((2, 5, 3)))
    >>> head = lai.LayerTrace(np.zeros((2, 3)), np.zeros((2, 1)))
    >>> float(lai.ghost_kernel(*[lai.Trace([gain, head])] * 2)[0, 1])
    75.0
    """

    array_fields: ClassVar[Mapping[str, Axes]] = {"normalized": Axes(), "output_gradients": Axes()}

    normalized: Array | None
    output_gradients: Array | None
    weight: Hashable = None
    name: str = ""

    def check(self, where: str, xp: Namespace) -> None:
        """Raise unless the arrays fit each other."""
        super().check(where, xp)
        if self.normalized is None or self.output_gradients is None:
            return
        expected, got = tuple(self.normalized.shape), tuple(self.output_gradients.shape)
        if expected != got:
            msg = f"{where}.output_gradients: expected the shape of normalized, {expected}, got {got}"
            raise ValueError(msg)

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Shape of the vector."""
        return next(((int(array.shape[-1]),) for array in self.arrays().values()), None)

    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of the vector."""
        gradients = cast(work.xp, self.output_gradients, work.dtype)
        if self.normalized is not None:
            gradients = gradients * cast(work.xp, self.normalized, work.dtype)
        return {"weight": VectorGradient(sum_positions(work, gradients))}

    def readout_input(self, xp: Namespace) -> Array | None:
        """Return None: a gain has no activation of its own, so LAI has no readout from it."""
        return None
