"""Leave no trace: what a forward pass may change is put back, also when the model raises."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from itertools import chain, compress
from threading import RLock
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils import checkpoint

from lai_torch._model.modes import Caches, enter_own_eval_mode, has_own_modes
from lai_torch._model.precision import float8_layers
from lai_torch._model.snapshot import Streams, Tensors
from lai_torch._model.walk import (
    Step,
    collect_held,
    list_parameters,
    modules_of,
    restore_training,
    set_training,
)

_REENTRANT, _OTHERS = "CheckpointFunction", "_checkpoint_without_reentrant_generator"
_CHECKPOINT = _OTHERS
"""The name of torch's function that runs a checkpoint: since 2.14 another one."""
if hasattr(checkpoint, _OTHERS + "_impl"):
    _CHECKPOINT = _OTHERS + "_impl"


class _Refused:
    """Replace a reentrant checkpoint, whose backward pass does not support `autograd.grad`."""

    @staticmethod
    def apply(*_: Any) -> None:
        raise reentrant()


def reentrant() -> ValueError:
    """Build the error of a function that runs a backward pass of its own within one."""
    return ValueError(
        "model: expected checkpoints that allow a gradient to be asked for, got reentrant ones: pass "
        "use_reentrant=False to torch.utils.checkpoint (transformers: "
        "gradient_checkpointing_kwargs={'use_reentrant': False}), or score in eval mode"
    )


def _do_nothing(*args: Any, **options: Any) -> Iterator[None]:
    """Stand where torch sets up what runs again: before the function is called, and after."""
    yield


def allow_repeated_grad() -> AbstractContextManager[None]:
    """Run the body with checkpoints that allow several `autograd.grad` calls; refuse others.

    A selective checkpoint allows a single backward pass, so that its inside is computed again as a whole.
    """
    checkpointed = getattr(checkpoint, _CHECKPOINT)
    nothing = checkpoint.noop_context_fn

    def unselective(function: Any, first: Any, second: Any, *args: Any, **options: Any) -> Any:
        if _CHECKPOINT == _OTHERS:  # its third argument is the context
            return checkpointed(function, first, nothing, *args, **options)
        return checkpointed(function, first, second, *args, **options | {"context_fn": nothing})

    return _replace_functions({_REENTRANT: _Refused, _CHECKPOINT: unselective})


def skip_checkpoints() -> AbstractContextManager[None]:
    """Run the body without checkpoints: what every layer's record keeps need not be computed again."""
    return _replace_functions({_CHECKPOINT: _do_nothing})


@contextmanager
def _replace_functions(others: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(checkpoint, name) for name in others}
    try:
        vars(checkpoint).update(others)
        yield
    finally:
        vars(checkpoint).update(before)


_ALONE = RLock()
"""Held while a model's flags, hooks or values are not the user's."""
_NOTHING = nullcontext()
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def run_alone(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let one thread alone run a function that scores or trains.

    A second one meanwhile gets a `RuntimeError`. Inside `torch.nn.utils.parametrize.cached()` the function
    runs without that cache: a parametrized weight that was computed once has one graph, for one backward
    pass, and does not follow its parameters.
    """

    @wraps(function)
    def call_alone(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        if not _ALONE.acquire(blocking=False):
            msg = "expected one thread at a time to score or train, got a second one; use a process for each"
            raise RuntimeError(msg)
        Step.current = None  # a call within a step looks at its model itself
        depth = parametrize._cache_enabled
        try:
            if depth:
                parametrize._cache_enabled = 0
            return function(*args, **options)
        finally:
            if depth:
                parametrize._cache_enabled = depth
            _ALONE.release()

    return call_alone


@contextmanager
def preserve(model: nn.Module, loss: Any = None, *, hooks: bool = False) -> Iterator[Streams]:
    """Run the body eagerly, with gradients on and autocast off; put tensors and random state back.

    The body gets the random streams as they were.

    So are those of a loss that is a module. `.grad` is empty inside, and put back, for a backward pass may
    write there.

    Compiled modules run uncompiled inside: a recorder does not see into them. The user's backward hooks
    on modules run only with `hooks`: what is traced is the function, what trains may be more.
    """
    held, tensors = collect_held(model, loss), _tensors(model, loss)
    modules, streams, caches = held.modules, Streams(held.modules), Caches(held)
    flags = [module.training for module in modules]
    with (
        disable_compilation(),
        float8_layers(held, trained=False),
        allow_repeated_grad(),
        torch.inference_mode(mode=False) if torch.is_inference_mode_enabled() else _NOTHING,
        torch.enable_grad(),
        _NOTHING if hooks else _remove_backward_hooks(modules),
        empty_gradients(held.parameters.values()),
        ExitStack() as stack,
    ):
        if torch._C._is_any_autocast_enabled():
            placed = chain(held.parameters.values(), held.buffers.values())
            # a model on another device may still compute on the CPU
            for kind in {"cpu", *(one.device.type for one in placed)}:
                if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
        # put back from the last to the first, also where one of them raises
        for each in tensors:
            stack.callback(each.restore)
        stack.callback(restore_training, modules, flags)
        stack.callback(caches.restore)
        stack.callback(streams.restore)
        yield streams


def disable_compilation() -> AbstractContextManager[Any]:
    """Let compiled modules run as they are; without a compiler nothing can have been compiled."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else _NOTHING


def _tensors(model: nn.Module, loss: Any) -> list[Tensors]:
    return [Tensors(one) for one in (model, loss) if isinstance(one, nn.Module)]


@contextmanager
def undo(model: nn.Module, loss: Any = None) -> Iterator[None]:
    """Run the body as the caller would, from parameters without `.grad`; then put back what it changed.

    Restored are `.grad`, tensors and random state, also when the body raises.
    """
    with ExitStack() as stack:
        for each in _tensors(model, loss):
            stack.callback(each.restore)
        stack.callback(Streams(modules_of(model, loss)).restore)
        stack.enter_context(empty_gradients(list_parameters(model, loss).values()))
        yield


@contextmanager
def empty_gradients(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Run the body from parameters without `.grad`, and put it back."""
    gradients = [(parameter, parameter.grad) for parameter in parameters]
    try:
        for parameter, gradient in gradients:
            if gradient is not None:  # in here: an interruption would lose what earlier batches added
                parameter.grad = None
        yield
    finally:
        for parameter, gradient in gradients:
            # also what a pass wrote there by itself
            if parameter.grad is not gradient:
                parameter.grad = gradient


@contextmanager
def use_eval_mode(model: nn.Module) -> Iterator[None]:
    """Run the body with every module in eval mode; put each module's own flag back.

    Where a module overrides `train()` or `eval()`, the model's own methods are called.
    """
    modules = modules_of(model)
    flags = [module.training for module in modules]
    # a module may do more than set a flag there, such as merge weights
    if any(flags) and has_own_modes(modules):
        with enter_own_eval_mode(model, flags):
            yield
        return
    try:
        set_training(compress(modules, flags), mode=False)
        yield
    finally:
        restore_training(modules, flags)


@contextmanager
def remove_hooks(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Set the user's hooks on parameters aside: they are for gradients of training."""
    saved = [(parameter, parameter._backward_hooks) for parameter in parameters if parameter._backward_hooks]
    try:
        for parameter, _ in saved:
            parameter._backward_hooks = OrderedDict()
        yield
    finally:
        for parameter, hooks in saved:
            parameter._backward_hooks = hooks


@contextmanager
def _remove_backward_hooks(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Set the user's backward hooks aside: they are part of training, not of the function that is traced."""
    hooked = [
        (module, module._backward_hooks, module._backward_pre_hooks)
        for module in modules
        if module._backward_hooks or module._backward_pre_hooks
    ]
    try:
        for module, _, _ in hooked:
            module._backward_hooks, module._backward_pre_hooks = OrderedDict(), OrderedDict()
        yield
    finally:
        for module, hooks, pre_hooks in hooked:
            module._backward_hooks, module._backward_pre_hooks = hooks, pre_hooks
        before = {id(module) for module, _, _ in hooked}
        for module in modules:  # what a forward pass put there
            if (module._backward_hooks or module._backward_pre_hooks) and id(module) not in before:
                module._backward_hooks.clear()
                module._backward_pre_hooks.clear()
