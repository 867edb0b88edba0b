"""Which parameters Ghost explains."""

from typing import Any

from torch import nn

from lai_core._adapters import Coverage as Coverage
from lai_torch._model.batch import Loss
from lai_torch._model.preserve import alone
from lai_torch._model.walk import named_parameters
from lai_torch._recording.record import record


@alone
def coverage(model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, last: str | None = None) -> Coverage:
    """Say which parameters Ghost explains on a batch, and what share of all trainable scalars they are.

    Parameters
    ----------
    model, loss, inputs, targets, last
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
    recording = record(model, loss, inputs, targets, every_layer=True, last=last, ghost_alone=last is None)
    sizes = {name: parameter.numel() for name, parameter in recording.parameters.items()}
    kinds: dict[str, dict[str, None]] = {name: {} for name in sizes if name not in recording.unexplained}
    for use in recording.uses:
        used = dict.fromkeys(use.weight.names, use.kind)
        if use.bias is not None:
            used[use.bias.name] = "bias"
        for name, kind in used.items():
            kinds.get(name, {})[kind] = None
    for routed in recording.routed:
        kinds.get(routed.source.name, {})["expert"] = None
    total = sum(sizes.values())
    share = sum(sizes[name] for name in kinds) / total if total else 1.0
    frozen = tuple(
        name for name, parameter in named_parameters(model, loss).items() if not parameter.requires_grad
    )
    explained = {name: tuple(found) for name, found in kinds.items()}
    return Coverage(share, total, explained, dict(recording.unexplained), frozen)
