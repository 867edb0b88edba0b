"""The losses of a batch, by a model and a loss that leave it as it is."""

from typing import Any

import torch
from torch import nn

from lai_torch._model.batch import Loss, call, tensors


def losses_of(model: nn.Module, loss: Loss, batch: tuple[Any, Any]) -> Any:
    """Return what a loss makes of a batch; lists and dictionaries of it may be taken apart.

    Raises
    ------
    ValueError
        If the model or the loss writes to a tensor of the batch, as autograd counts writes.
    """
    before = _versions(batch)
    inputs, targets = _contained(batch)
    losses = loss(call(model, inputs), targets)
    if before != _versions(batch):
        msg = (
            "inputs, targets: expected a model and a loss that leave the batch as it is, got ones that write "
            "to it in place; write to a copy (x = x.clone())"
        )
        raise ValueError(msg)
    return losses


def _contained(tree: Any) -> Any:
    """Copy the lists and dictionaries of a batch, not the tensors, so that a model may pop entries."""
    if type(tree) is dict:
        return {key: _contained(part) for key, part in tree.items()}
    if type(tree) in {list, tuple}:
        return type(tree)(_contained(part) for part in tree)
    return tree


def _versions(batch: Any) -> list[int]:
    """Count the writes to each tensor of a batch; those made in inference mode are not counted."""
    with torch._C.DisableTorchFunction():  # a recorder would look at each of these questions
        return [0 if one.is_inference() else one._version for one in tensors(batch)]
