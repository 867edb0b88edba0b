"""What an adapter records of one batch for gate-corrected LAI."""

from dataclasses import dataclass

from lai_core._engine.namespace import Array
from lai_core.records.base import Trace


@dataclass(frozen=True, eq=False)
class GateTrace:
    r"""A trace of a chain of layers, and what `gate_lai_scores` takes beside it.

    Parameters
    ----------
    trace
        Inputs of layers, and the output gradients of the last.
    gates
        :math:`\phi'(s^{(l)})`, derivatives of what lies between one layer and the next, for every layer
        but the last, each `(n, d_l)`.
    column_norms
        Squared norms of the columns of every matrix but the first, each `(d_l,)`.
    """

    trace: Trace
    gates: tuple[Array, ...]
    column_norms: tuple[Array, ...]
