"""Inspect the graph of the losses: the owners of its trainable tensors, and its coarsest type."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import tensors
from lai_torch._model.checkpoints import reentrant
from lai_torch._model.function import Function
from lai_torch._model.snapshot.owned import called, nodes, other_leaves
from lai_torch._model.snapshot.owned import check_owned as check_owned_leaves
from lai_torch._model.walk import named_parameters


def check_owned(function: Function, losses: Tensor, batch: tuple[Any, Any]) -> None:
    """Raise if the losses depend on a parameter that neither the model nor the loss holds."""
    if not losses.requires_grad:
        msg = (
            "loss: expected one that depends on a parameter that trains, got one that depends on none; the "
            "outputs may be detached, or computed without gradients"
        )
        raise ValueError(msg)
    if any("CheckpointFunction" in type(node).__name__ for node in nodes(losses)):
        raise reentrant()
    check_owned_leaves(
        function.loss,
        _strangers(function, losses, batch),
        lambda: _strangers(function, function(batch), batch),
    )
    others = list(other_leaves(losses, function.parameters().values()).values())
    if others:  # without them, a function on no way to a parameter would not run backwards
        torch.autograd.grad(losses.sum(), others, allow_unused=True, retain_graph=True)


def _strangers(function: Function, losses: Tensor, batch: tuple[Any, Any]) -> dict[int, Tensor]:
    """Return the leaves of the losses' graph that nobody handed over, by identity."""
    return other_leaves(losses, [*tensors(batch), *function.parameters().values()])


def precision(losses: Tensor) -> float:
    """Return the machine epsilon of the coarsest type in the graph of the losses."""
    kinds = {meta.dtype for node in nodes(losses) for meta in node._input_metadata}
    floats = [kind for kind in kinds | {losses.dtype} if kind.is_floating_point or kind.is_complex]
    return max(torch.finfo(kind).eps for kind in floats)


def check_reads_outputs(model: nn.Module, loss: Any, losses: Tensor, outputs: Iterable[Tensor]) -> None:
    """Raise if losses depend on something that trains by another way than the model's `outputs`."""
    behind = {output.grad_fn for output in outputs}
    leaves = [getattr(node, "variable", None) for node in nodes(losses, behind)]
    if all(leaf is None for leaf in leaves):
        return
    names = {id(parameter): repr(name) for name, parameter in named_parameters(model, loss).items()}
    found = next(leaf for leaf in leaves if leaf is not None)
    msg = (
        "backward: 'selective' expects a loss that depends on what trains by the model's outputs alone, this "
        f"one reads {names.get(id(found)) or called(loss, found)} itself; use backward='kept'"
    )
    raise ValueError(msg)
