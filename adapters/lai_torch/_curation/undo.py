"""Undo a step that raises, up to where its optimizer begins."""

from collections.abc import Callable, Iterable, Sequence
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
    """Runs its block and puts back what it changed if it raises.

    Put back are attributes of `owners`, buffers and the gradients of earlier batches of a step. What the
    optimizer changes is not put back. A step that had no earlier batch is left without gradients.

    Attributes
    ----------
    stepping
        Whether the optimizer has begun to step.
    """

    def __init__(
        self,
        model: nn.Module,  # model, loss: what is trained; of the loss, what it holds if it is a module
        loss: Any,
        # objects whose attributes hold what else a step changes. The block replaces attributes; it
        # does not change the objects that they hold.
        owners: Iterable[Any],
        generator: torch.Generator,  # whose draws are taken back
        optimizer: Any = None,  # what steps; None where nothing does
    ) -> None:
        self.modules, self.owners, self.generator = modules_of(model, loss), list(owners), generator
        self.optimizer, self.stepping = optimizer, False
        self._restores: list[Callable[[], None]] = []
        self._restore_buffers: Callable[[], None] | None = None
        self._held: list[Tensor] = []
        self._earlier: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> "Undo":
        """Remember attributes and buffers."""
        drawn = self.generator.get_state()
        self._restores = [_attributes(owner) for owner in self.owners]
        self._restores.append(lambda: self._set_generator(drawn))
        self._restore_buffers = _buffers(self.modules)
        self._restores += [self._restore_buffers]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back if the block raised."""
        restores, self._restores = self._restores, []
        if kind is not None:
            for restore in reversed(restores):
                restore()
            if self.stepping and error is not None:
                error.add_note(STEPPING)

    def restore_buffers(self) -> None:
        """Put the buffers back where they were when the block began; the block goes on."""
        if self._restore_buffers is not None:
            self._restore_buffers()

    def _set_generator(self, state: Tensor) -> None:
        self.generator.set_state(state)

    def detach_gradients(self, *, begins: bool) -> list[tuple[Tensor, Tensor]]:
        """Clear `.grad`; return parameters and what they had, none where a step begins."""
        self._held = [p for group in self.optimizer.param_groups for p in group["params"]]
        if not begins:
            self._earlier = [(p, p.grad) for p in self._held if p.grad is not None]
        self._restores.append(self.restore_gradients)
        clear(self.optimizer)
        return self._earlier

    def restore_gradients(self) -> None:
        """Put `.grad` back as earlier batches of the step left it."""
        for parameter in self._held:
            parameter.grad = None
        for parameter, gradient in self._earlier:
            parameter.grad = gradient


def _attributes(owner: Any) -> Callable[[], None]:
    before = dict(vars(owner))

    def restore() -> None:
        vars(owner).clear()
        vars(owner).update(before)

    return restore


def _buffers(modules: Sequence[nn.Module]) -> Callable[[], None]:
    # a scripted module's table can only be walked by its items
    tables = [(module, module._buffers) for module in modules if module._buffers]
    held = [(module, name, buffer) for module, table in tables for name, buffer in table.items()]
    present = [buffer for _, _, buffer in held if buffer is not None]
    copies = _copies(present)

    def restore() -> None:
        for module, name, buffer in held:
            module._buffers[name] = buffer
        for buffer, copy in zip(present, copies, strict=True):
            buffer.data.copy_(copy)  # BatchNorm writes without counting versions, so that these cannot tell

    return restore


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    """Return copies, made in one call where torch has one."""
    if not tensors:
        return []
    with torch.no_grad():
        clone = getattr(torch, "_foreach_clone", None)
        # that call takes either DTensors alone or none, and no sparse tensor
        special = not _PLAIN.issuperset(map(type, tensors)) or any(map(_SPARSE, tensors))
        if clone is None or special:
            return [tensor.detach().clone() for tensor in tensors]
        return list(clone(tensors))


def clear(optimizer: Any) -> None:
    """Take every gradient away, as `optimizer.zero_grad()` does, whose profiling takes as long as a layer."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None
