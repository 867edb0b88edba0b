"""Which parameters Ghost explains."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from lai_torch._batch import Loss
from lai_torch._record import record


@dataclass(frozen=True)
class Coverage:
    """What Ghost explains of a model on one batch.

    Attributes
    ----------
    explained
        Names of the trainable parameters whose per-sample gradients are exact.
    unexplained
        Names of the others, and the function that uses each.
    frozen
        Names of the parameters that do not train.
    parameters
        Number of trainable scalars.
    share
        Share of them that is explained, 1.0 for all.
    """

    explained: tuple[str, ...]
    unexplained: dict[str, str]
    frozen: tuple[str, ...]
    parameters: int
    share: float


def coverage(model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> Coverage:
    """Say which parameters Ghost explains on a batch, and what share of all trainable scalars they are.

    Parameters
    ----------
    model, loss, inputs, targets
        As for `trace`. Two samples are enough; one explains everything.

    Returns
    -------
    Coverage
        Names and counts. A parameter that the loss does not depend on has gradient zero, which is
        explained.

    Raises
    ------
    ValueError
        If samples are coupled or the loss is not one number per sample.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> lai_torch.coverage(model, loss, torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])).share
    1.0
    """
    recording = record(model, loss, inputs, targets, every_layer=True)
    sizes = {name: parameter.numel() for name, parameter in recording.parameters.items()}
    explained = tuple(name for name in sizes if name not in recording.unexplained)
    total = sum(sizes.values())
    frozen = tuple(name for name, parameter in model.named_parameters() if not parameter.requires_grad)
    share = sum(sizes[name] for name in explained) / total if total else 1.0
    return Coverage(explained, dict(recording.unexplained), frozen, total, share)
