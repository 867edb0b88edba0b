"""A step happens as a whole or not at all: what it changed is put back where it does not come to its end."""

import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.snapshot.streams import Streams
from lai_torch._model.snapshot.tensors import strided
from lai_torch._model.walk import Step, modules_of

_FLAGS = attrgetter("training", "_backward_hooks", "_backward_pre_hooks")
_SPARSE = attrgetter("is_sparse")
_PLAIN = {Tensor, nn.Parameter}
BUDGET = 2**20
"""Bytes of parameters and optimizer state, at most, that are copied while the optimizer steps.

Copying a large model's takes longer than the optimizer itself, and half the memory of training again."""


STEPPING = (
    "This came while the optimizer stepped, or after it. Parameters and optimizer state of more than "
    f"{BUDGET // 2**20} MiB are not copied at each step, so they may have changed and were "
    "not put back: go on from a checkpoint."
)
"""Note on an error that leaves parameters as they are."""


class Undo:
    """Runs its block and puts back what it changed if it raises.

    Put back are attributes of `owners`, buffers, the gradients of earlier batches of a step and, within
    `BUDGET`, parameters, optimizer and scaler. Beyond it a signal that comes while the optimizer steps is
    handled after the block: the step has then happened as a whole. A step that had no earlier batch is left
    without gradients.

    Parameters
    ----------
    model, loss
        What is trained; of the loss, what it holds if it is a module.
    owners
        Objects whose attributes hold what else a step changes. The block replaces attributes; it does not
        change the objects that they hold.
    generator
        Whose draws are taken back.
    optimizer, scaler
        What steps; None where nothing does.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        owners: Iterable[Any],
        generator: torch.Generator,
        optimizer: Any = None,
        scaler: Any = None,
    ) -> None:
        self.modules, self.owners, self.generator = modules_of(model, loss), list(owners), generator
        self.optimizer, self.scaler = optimizer, scaler
        self._restores: list[Callable[[], None]] = []
        self._streams: Streams | None = None
        self._first = self._marked = 0
        self._restore_buffers: Callable[[], None] | None = None
        self._uncopied = False
        self._signals = Signals()

    def __enter__(self) -> "Undo":
        """Remember attributes and buffers."""
        drawn = self.generator.get_state()
        self._restores = [_attributes(owner) for owner in self.owners]
        self._restores.append(lambda: self._set_generator(drawn))
        self._first = len(self._restores)
        self._restore_buffers = _buffers(self.modules)
        self._restores += [_modules(self.modules), self._restore_buffers, _modes()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put everything back if the block raised."""
        restores, self._restores = self._restores, []
        if kind is not None:
            for restore in reversed(restores):
                restore()
            if self._uncopied and error is not None:
                error.add_note(STEPPING)
        self._signals.deliver()

    def mark(self) -> None:
        """Remember the random streams, so that what the model and its gradients go through can be rewound."""
        self._streams, self._marked = Streams(self.modules), len(self._restores)
        if Step.current is not None:
            Step.current.streams = self._streams

    def rewind(self) -> None:
        """Put model, gradients and random streams back where they were at the mark; the block goes on."""
        for restore in reversed(self._restores[self._first :]):
            restore()
        del self._restores[self._marked :]
        if self._streams is not None:
            self._streams.restore()

    def restore_buffers(self) -> None:
        """Put the buffers back where they were when the block began; the block goes on."""
        if self._restore_buffers is not None:
            self._restore_buffers()

    def _set_generator(self, state: Tensor) -> None:
        self.generator.set_state(state)

    def set_gradients_aside(self, *, begins: bool) -> list[tuple[Tensor, Tensor]]:
        """Clear `.grad`; return parameters and what they had, none where a step begins."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        earlier = [] if begins else [(p, p.grad) for p in held if p.grad is not None]
        self._restores.append(lambda: _give_back(held, earlier))
        clear(self.optimizer)
        return earlier

    def hold_parameters(self) -> None:
        """Copy what the optimizer is about to change, if that is within the budget."""
        groups = self.optimizer.param_groups
        stepped = [p for group in groups for p in group["params"] if p.grad is not None]
        held = self.optimizer.state
        states = list(zip(held, map(dict, held.values()), strict=True))  # to look one up takes longer
        values = [value for _, state in states for value in state.values()]
        tensors = [value for value in values if isinstance(value, Tensor)]
        if sum(map(_bytes, (*stepped, *tensors))) > BUDGET:
            self._signals.hold()
            self._uncopied = True
            return
        copies = _copies([*stepped, *tensors])
        options = list(map(dict, groups))
        scaler = {} if self.scaler is None else _attributes_of_scaler(self.scaler)

        def restore() -> None:
            with torch.no_grad():
                for tensor, copy in zip((*stepped, *tensors), copies, strict=True):
                    tensor.copy_(copy)
            self.optimizer.state.clear()
            self.optimizer.state.update(states)
            for group, before in zip(groups, options, strict=True):
                group.update({name: value for name, value in before.items() if name != "params"})
            if self.scaler is not None:
                vars(self.scaler).update(scaler)

        self._restores.append(restore)


def _attributes(owner: Any) -> Callable[[], None]:
    before = dict(vars(owner))

    def restore() -> None:
        vars(owner).clear()
        vars(owner).update(before)

    return restore


def _modules(modules: Sequence[nn.Module]) -> Callable[[], None]:
    saved = list(zip(modules, map(_FLAGS, modules), strict=True))

    def restore() -> None:
        for module, (flag, hooks, pre_hooks) in saved:
            module.training, module._backward_hooks, module._backward_pre_hooks = flag, hooks, pre_hooks

    return restore


def _modes() -> Callable[[], None]:
    """Take back gradients that are off and a recorder that still watches: an interruption may leave both."""
    enabled, watching = torch.is_grad_enabled(), torch._C._len_torch_function_stack()

    def restore() -> None:
        torch.set_grad_enabled(enabled)
        while torch._C._len_torch_function_stack() > watching:
            torch._C._pop_torch_function_stack()

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


def _give_back(held: list[Tensor], earlier: list[tuple[Tensor, Tensor]]) -> None:
    for parameter in held:
        parameter.grad = None
    for parameter, gradient in earlier:
        parameter.grad = gradient


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


def _bytes(tensor: Tensor) -> int:
    if tensor.layout == torch.strided:
        return tensor.nbytes
    return sum(part.nbytes for part in strided(tensor))


def clear(optimizer: Any) -> None:
    """Take every gradient away, as `optimizer.zero_grad()` does, whose profiling takes as long as a layer."""
    if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad or "zero_grad" in vars(optimizer):
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


class Signals:
    """Interruptions from the keyboard, held back and delivered later; in the main thread, where they come."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._caught: tuple[Any, ...] | None = None

    def hold(self) -> None:
        """Hold back what comes from now on."""
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._catch)

    def _catch(self, *given: Any) -> None:
        self._caught = given

    def deliver(self) -> None:
        """Let what came be handled as it would have been."""
        if self._handler is None:
            return
        handler, self._handler = self._handler, None
        signal.signal(signal.SIGINT, handler)
        caught, self._caught = self._caught, None
        if caught is not None:
            handler(*caught)


def _attributes_of_scaler(scaler: Any) -> dict[str, Any]:
    """Return a scaler's attributes, its numbers on the device copied."""
    return {
        name: value.clone() if isinstance(value, Tensor) else value for name, value in vars(scaler).items()
    }
