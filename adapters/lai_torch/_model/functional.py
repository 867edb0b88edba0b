"""A model as a function of its trainable parameters, and the gradient of its losses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from lai_torch._model.batch import Loss, check_losses, count, rows
from lai_torch._model.preserve import preserved

Point = dict[str, Tensor]
"""One tensor per trainable parameter, by name."""


@contextmanager
def plain_attention() -> Iterator[None]:
    """Run attention as separate differentiable operations: fused kernels have no forward mode."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class Function:
    """The losses of a batch as a function of a `Point`."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss
        self.names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]

    def point(self) -> Point:
        """Return the parameters as they are.

        Raises
        ------
        ValueError
            If none is trainable.
        """
        if not self.names:
            msg = "model: expected at least one trainable parameter, got none"
            raise ValueError(msg)
        parameters = dict(self.model.named_parameters())
        return {name: parameters[name].detach() for name in self.names}

    def __call__(self, point: Point, batch: tuple[Any, Any]) -> Tensor:
        """Return the losses at `point`; buffers are copies, so that nothing is written to."""
        inputs, targets = batch
        args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
        if isinstance(inputs, Tensor):
            args, kwargs = (inputs,), {}
        buffers = {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}
        outputs = functional_call(self.model, {**buffers, **point}, args, dict(kwargs))
        return check_losses(self.loss(outputs, targets), count(inputs, targets))


def gradient(
    function: Function, point: Point, batch: tuple[Any, Any], *, reduction: str, size: int | None = None
) -> Point:
    """Return the gradient of the mean or summed losses, `size` rows at a time where nothing couples them."""
    samples = count(*batch)
    coupled = any(module.training for module in function.model.modules())
    size = samples if coupled or size is None else size
    leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
    total = {name: torch.zeros_like(value) for name, value in point.items()}
    for start in range(0, samples, size):
        part = rows(batch, slice(start, min(start + size, samples)), samples)
        with preserved(function.model), plain_attention():
            values = function(leaves, part)
            found = torch.autograd.grad(values.sum(), list(leaves.values()), allow_unused=True)
        for name, piece in zip(leaves, found, strict=True):
            if piece is not None:
                total[name] += piece
    scale = 1.0 / samples if reduction == "mean" else 1.0
    return {name: value * scale for name, value in total.items()}
