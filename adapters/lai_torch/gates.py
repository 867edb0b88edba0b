"""From a model and a batch to what gate-corrected LAI takes: a trace, its gates, the column norms."""

from typing import Any

from torch import nn

from lai_core.estimators.gates import GateTrace as GateTrace
from lai_core.estimators.gates import squared_column_norms
from lai_torch._model.batch import Loss
from lai_torch._model.preserve import alone
from lai_torch._recording.assemble import assemble
from lai_torch._recording.record import record
from lai_torch._recording.watching.recording import Recording


@alone
def trace_gates(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, last: str | None = None
) -> GateTrace:
    """Record one batch for gate-corrected LAI: inputs of layers, gates between them, the output's gradients.

    The model is a chain: linear layers on `(n, d)`, each with a matrix of its own, and between two of
    them any function that works entry by entry (an activation, a gain, BatchNorm or dropout in eval
    mode). That it does is checked on every batch, by two products with its Jacobian.

    Parameters
    ----------
    model, loss, inputs, targets, last
        As for `trace`.

    Returns
    -------
    GateTrace
        Detached tensors; costs one forward pass and two elementwise backward passes.

    Raises
    ------
    TypeError
        If `inputs` or what `loss` returns is of a wrong kind.
    ValueError
        If the model is no such chain, naming the layer; else as in `trace`.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> from lai_core.estimators.gates import gate_lai_kernel
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> found = lai_torch.trace_gates(model, loss, torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
    >>> gate_lai_kernel(found, found).shape
    torch.Size([5, 5])
    """
    return gated(record(model, loss, inputs, targets, every_layer=False, last=last, gates=True))


def gated(recording: Recording) -> GateTrace:
    """Return what a recording with gates holds.

    Returns
    -------
    GateTrace
        Its trace, gates and column norms.

    Raises
    ------
    ValueError
        If a layer after the last one was used.
    """
    *before, final = recording.uses
    if recording.last is not final:
        msg = (
            f"layer {final.name!r}: gate-corrected LAI expects the last layer, {recording.final.name!r}, to "
            "be used last; use estimator='lai', or 'ghost'"
        )
        raise ValueError(msg)
    gates = tuple(use.gates for use in before if use.gates is not None)
    matrices = [use.weight.tensor.T if use.transposed else use.weight.tensor for use in recording.uses[1:]]
    norms = tuple(squared_column_norms(matrix.detach()) for matrix in matrices)
    return GateTrace(assemble(recording), gates, norms)
