"""The kind of record of what is no matrix: gains, offsets, bare parameters."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from lai_core._engine.axes import Axes
from lai_core._engine.factors import sum_positions
from lai_core._engine.gradients import ParameterGradient, VectorGradient, Workspace
from lai_core._engine.namespace import Array, Namespace, cast
from lai_core.records.base import Record


@dataclass(frozen=True, eq=False, repr=False)
class GainTrace(Record):
    r"""One use of a vector that multiplies or is added: a normalisation's gain, an offset, a bare parameter.

    Implements :eq:`gain-gradient`: the gradient of a gain is :math:`\sum_t g_t \circ \hat x_t`, of an
    offset :math:`\sum_t g_t`. LAI sees nothing of it.

    Assume: :math:`y_t = \gamma \odot \hat x_t + b` are all uses of :math:`\gamma` and :math:`b`;
    :math:`\hat x` does not depend on them.

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
