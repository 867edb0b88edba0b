"""What an adapter records of one batch for gate-corrected LAI."""

from collections.abc import Sequence
from dataclasses import dataclass

from lai_core._engine.namespace import Array
from lai_core.records.base import Trace


@dataclass(frozen=True, eq=False)
class GateTrace:
    r"""A trace of a chain of layers, and what the gates between them say of its gradients.

    Parameters
    ----------
    trace
        Inputs of layers, and the output gradients of the last.
    gates
        :math:`\phi'(s^{(l)})`, derivatives of what lies between one layer and the next, for every layer
        but the last, each `(n, d_l)`.
    column_norms
        :math:`\|W^{(l+1)}_{:,i}\|^2`, squared norms of the columns of every matrix but the first, each
        `(d_l,)`; see `squared_column_norms`. Of a validation set they are not read.
    """

    trace: Trace
    gates: Sequence[Array]
    column_norms: Sequence[Array] = ()
