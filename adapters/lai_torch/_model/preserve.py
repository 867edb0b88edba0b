"""Leave no trace: what a forward pass may change is put back, also when the model raises."""

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Run the body eagerly, with gradients on and autocast off; put buffers and random state back.

    Compiled modules run uncompiled inside: a recorder does not see into them.
    """
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    buffers = _Buffers(model)
    with ExitStack() as stack:
        cuda = [device.index for device in devices if device.type == "cuda"]
        stack.enter_context(torch.random.fork_rng(devices=cuda))
        for kind in {device.type for device in devices} | {"cpu"}:
            if torch.amp.is_autocast_available(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if "torch._dynamo" in sys.modules:  # else nothing can have been compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_without_backward_hooks(model))
        stack.callback(buffers.restore)
        yield


@contextmanager
def undone(model: nn.Module) -> Iterator[None]:
    """Run the body as the caller would, from parameters without `.grad`; then put back what it changed.

    Restored are `.grad`, buffers and random state, also when the body raises.
    """
    buffers = _Buffers(model)
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    cuda = {parameter.device.index for parameter, _ in gradients if parameter.device.type == "cuda"}
    try:
        for parameter, _ in gradients:
            parameter.grad = None
        with torch.random.fork_rng(devices=sorted(cuda)):
            yield
    finally:
        buffers.restore()
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextmanager
def eager() -> Iterator[None]:
    """Run the body uncompiled with gradients on, as a step of training: nothing is put back."""
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.enable_grad())
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the body with every module in eval mode; put each module's own flag back."""
    flags = [(module, module.training) for module in model.modules()]
    for module, _ in flags:
        module.training = False
    try:
        yield
    finally:
        for module, flag in flags:
            module.training = flag


@contextmanager
def _without_backward_hooks(model: nn.Module) -> Iterator[None]:
    """Set the user's backward hooks aside: they are part of training, not of the function that is traced."""
    saved = [(module, module._backward_hooks, module._backward_pre_hooks) for module in model.modules()]
    for module, _, _ in saved:
        module._backward_hooks, module._backward_pre_hooks = OrderedDict(), OrderedDict()
    try:
        yield
    finally:
        for module, hooks, pre_hooks in saved:
            module._backward_hooks, module._backward_pre_hooks = hooks, pre_hooks


class _Buffers:
    """The buffers of a model as they were: the tensors themselves, their versions and their values."""

    def __init__(self, model: nn.Module) -> None:
        self.saved: list[tuple[nn.Module, str, Tensor | None, Tensor | None, int]] = []
        for module in model.modules():
            for name, buffer in module._buffers.items():
                copy, version = (None, 0) if buffer is None else (buffer.detach().clone(), buffer._version)
                self.saved.append((module, name, buffer, copy, version))

    def restore(self) -> None:
        """Put back what was replaced, and the values of what was written to."""
        for module, name, buffer, copy, version in self.saved:
            if module._buffers.get(name) is not buffer:
                module._buffers[name] = buffer
            if buffer is not None and copy is not None and buffer._version != version:
                with torch.no_grad():
                    buffer.copy_(copy)
