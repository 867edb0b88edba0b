"""Checkpoints, whose inside is run again in the backward pass, made to go with scoring."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

_REENTRANT, _OTHERS = "CheckpointFunction", "_checkpoint_without_reentrant_generator"


class _Asked:
    """Stands where torch puts a reentrant checkpoint; its values and gradients are the same.

    A reentrant one runs a backward pass of its own within the other, which writes `.grad` and of which no
    gradient can be asked. What is inside trains only where an argument wants a gradient; so it is here.
    """

    @staticmethod
    def apply(function: Any, preserve: bool, *args: Any) -> Any:
        if not _wanted(args):
            return _constant(function, *args)
        options = {"use_reentrant": False, "preserve_rng_state": preserve}
        return sys.modules["torch.utils.checkpoint"].checkpoint(function, *args, **options)


class _Once:
    """Likewise, with nothing that is run again."""

    @staticmethod
    def apply(function: Any, preserve: bool, *args: Any) -> Any:
        return function(*args) if _wanted(args) else _constant(function, *args)


def _wanted(args: tuple[Any, ...]) -> bool:
    return any(isinstance(one, Tensor) and one.requires_grad for one in args)


def _constant(function: Any, *args: Any) -> Any:
    with torch.no_grad():
        return function(*args)


def _nothing(*args: Any, **options: Any) -> Iterator[None]:
    """Stand where torch sets up what runs again: before the function is called, and after."""
    yield


def asked() -> AbstractContextManager[None]:
    """Run the body with checkpoints of which a gradient can be asked, and more than one.

    A selective checkpoint allows a single backward pass, so that its inside is computed again as a whole.
    """
    library = sys.modules.get("torch.utils.checkpoint")
    if library is None:
        return nullcontext()
    checkpointed = getattr(library, _OTHERS)

    def unselective(function: Any, preserve: bool, _: Any, *args: Any, **options: Any) -> Any:
        return checkpointed(function, preserve, library.noop_context_fn, *args, **options)

    return _standing({_REENTRANT: _Asked, _OTHERS: unselective})


def once() -> AbstractContextManager[None]:
    """Run the body without checkpoints: what every layer's record keeps need not be computed again."""
    return _standing({_REENTRANT: _Once, _OTHERS: _nothing})


@contextmanager
def _standing(others: dict[str, Any]) -> Iterator[None]:
    """Run the body with others in the place of what torch's module of checkpoints calls."""
    library = sys.modules.get("torch.utils.checkpoint")
    if library is None:  # nothing can have been checkpointed
        yield
        return
    before = {name: getattr(library, name) for name in others}
    try:
        vars(library).update(others)
        yield
    finally:
        vars(library).update(before)
