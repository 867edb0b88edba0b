"""Leave no trace: what a forward pass may change is put back, also when the model raises."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from threading import RLock
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from lai_torch._model.snapshot import Streams, Tensors
from lai_torch._model.walk import modules_of, set_training

ALONE = RLock()
"""Held while a model's flags, hooks or values are not the user's: a second thread waits for its turn.

Taken by functions (`alone`), not by generators, which an interruption may leave suspended."""
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def alone(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let one thread at a time run a function that scores or trains."""

    @wraps(function)
    def held(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with ALONE:
            return function(*args, **options)

    return held


@contextmanager
def preserved(model: nn.Module, loss: Any = None, *, hooks: bool = False) -> Iterator[None]:
    """Run the body eagerly, with gradients on and autocast off; put tensors and random state back.

    So are those of a loss that is a module.

    Compiled modules run uncompiled inside: a recorder does not see into them. The user's backward hooks
    on modules run only with `hooks`: what is traced is the function, what trains may be more.
    """
    with ExitStack() as stack:
        modules, tensors = modules_of(model, loss), _tensors(model, loss)
        streams = Streams(modules)
        for kind in {"cpu"}.union(*(each.devices for each in tensors)):
            if torch.amp.is_autocast_available(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if "torch._dynamo" in sys.modules:  # else nothing can have been compiled
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        if not hooks:
            stack.enter_context(_without_backward_hooks(modules))
        for each in tensors:
            stack.callback(each.restore)
        stack.callback(streams.restore)
        yield


def _tensors(model: nn.Module, loss: Any) -> list[Tensors]:
    roots = [model, *([loss] if isinstance(loss, nn.Module) else ())]
    return [Tensors(root, modules_of(root)) for root in roots]


@contextmanager
def undone(model: nn.Module, loss: Any = None) -> Iterator[None]:
    """Run the body as the caller would, from parameters without `.grad`; then put back what it changed.

    Restored are `.grad`, tensors and random state, also when the body raises.
    """
    with ExitStack() as stack:
        gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        for each in _tensors(model, loss):
            stack.callback(each.restore)
        stack.callback(Streams(modules_of(model, loss)).restore)
        stack.callback(_give_back, gradients)
        for parameter, _ in gradients:
            parameter.grad = None
        yield


def _give_back(gradients: list[tuple[nn.Parameter, Tensor | None]]) -> None:
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
    modules = modules_of(model)
    training = [module for module in modules if module.training]
    others = [module for module in modules if not module.training]
    try:
        set_training(training, mode=False)
        yield
    finally:
        set_training(training, mode=True)
        set_training([module for module in others if module.training], mode=False)


@contextmanager
def _without_backward_hooks(modules: list[nn.Module]) -> Iterator[None]:
    """Set the user's backward hooks aside: they are part of training, not of the function that is traced."""
    every = [(module, module._backward_hooks, module._backward_pre_hooks) for module in modules]
    hooked = [each for each in every if each[1] or each[2]]
    bare = [each for each in every if not (each[1] or each[2])]
    for module, _, _ in hooked:
        module._backward_hooks, module._backward_pre_hooks = OrderedDict(), OrderedDict()
    try:
        yield
    finally:
        for module, hooks, pre_hooks in hooked:
            module._backward_hooks, module._backward_pre_hooks = hooks, pre_hooks
        for _, hooks, pre_hooks in bare:  # what a forward pass put there
            hooks.clear()
            pre_hooks.clear()
