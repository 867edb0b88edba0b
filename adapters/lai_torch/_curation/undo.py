"""Put back what a step that raises changed in place: buffers, gradients and draws."""

from operator import attrgetter
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.walk import modules_of

_SPARSE = attrgetter("is_sparse")
_PLAIN = {Tensor, nn.Parameter}
STEPPING = (
    "This came while the optimizer stepped, or after it: parameters and optimizer state may have changed, "
    "and were not put back. Load a checkpoint."
)
"""Note on an error that leaves parameters as they are."""


class Undo:
    """Puts back what its block changed in place if it raises, unless the optimizer has moved a parameter.

    These are buffers, the draws of the curator's generator and the gradients of earlier batches of a step;
    all else that a step changes is a value, which is assigned last. A step that had no earlier batch is left
    without gradients.
    """

    def __init__(
        self,
        model: nn.Module,  # model, loss: what is trained; of the loss, what it holds if it is a module
        loss: Any,
        generator: torch.Generator,  # whose draws are taken back
        optimizer: Any = None,  # what steps; None where nothing does
    ) -> None:
        self.modules, self.generator, self.optimizer = modules_of(model, loss), generator, optimizer
        self._held: list[Tensor] = []
        self._earlier: list[tuple[Tensor, Tensor]] = []
        self._before: list[int] | None = None  # the parameters' versions where the optimizer begins

    def __enter__(self) -> "Undo":
        """Remember buffers and draws."""
        self._drawn = self.generator.get_state()
        # a scripted module's table can only be walked by its items
        tables = [(module, module._buffers) for module in self.modules if module._buffers]
        self._buffers = [(module, name, one) for module, table in tables for name, one in table.items()]
        present = [one for _, _, one in self._buffers if one is not None]
        copies: list[Tensor] = []
        with torch.no_grad():
            clone = getattr(torch, "_foreach_clone", None)
            # that call takes either DTensors alone or none, and no sparse tensor
            if clone is None or not _PLAIN.issuperset(map(type, present)) or any(map(_SPARSE, present)):
                copies = [one.detach().clone() for one in present]
            elif present:
                copies = list(clone(present))
        self._copies = list(zip(present, copies, strict=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back if the block raised."""
        if error is None:
            return
        if self._before is not None:
            error.add_note(STEPPING)
        if not self.has_stepped:
            self.restore_gradients()
            self.restore_buffers()
            self.generator.set_state(self._drawn)

    def restore_buffers(self) -> None:
        for module, name, buffer in self._buffers:
            module._buffers[name] = buffer
        for buffer, copy in self._copies:
            buffer.data.copy_(copy)  # BatchNorm writes without counting versions, so that these cannot tell

    def begin_stepping(self) -> None:
        """Remember where the parameters are: the optimizer steps next."""
        self._before = [parameter._version for parameter in self._held]

    @property
    def has_stepped(self) -> bool:
        return self._before is not None and self._before != [one._version for one in self._held]

    def detach_gradients(self, *, begins: bool) -> list[tuple[Tensor, Tensor]]:
        """Clear `.grad`; return parameters and what they had, none where a step begins."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        if not begins:
            self._earlier = [(p, p.grad) for p in held if p.grad is not None]
        self._held = held  # last: what is put back are the earlier gradients
        clear(self.optimizer)
        return self._earlier

    def restore_gradients(self) -> None:
        """Put `.grad` back as earlier batches of the step left it."""
        for parameter in self._held:
            parameter.grad = None
        for parameter, gradient in self._earlier:
            parameter.grad = gradient.clone()  # a step unscales and clips in place


def clear(optimizer: Any) -> None:
    """Take every gradient away, as `optimizer.zero_grad()` does, whose profiling takes as long as a layer."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
