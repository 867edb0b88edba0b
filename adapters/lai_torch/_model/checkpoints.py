"""Checkpoints, whose inside is run again in the backward pass, made to go with scoring."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

_REENTRANT, _OTHERS = "CheckpointFunction", "_checkpoint_without_reentrant_generator"


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


def _nothing(*args: Any, **options: Any) -> Iterator[None]:
    """Stand where torch sets up what runs again: before the function is called, and after."""
    yield


def asked() -> AbstractContextManager[None]:
    """Run the body with checkpoints that allow several `autograd.grad` calls; refuse others.

    A selective checkpoint allows a single backward pass, so that its inside is computed again as a whole.
    """
    library = sys.modules.get("torch.utils.checkpoint")
    if library is None:
        return nullcontext()
    checkpointed = getattr(library, _OTHERS)

    def unselective(function: Any, preserve: bool, _: Any, *args: Any, **options: Any) -> Any:
        return checkpointed(function, preserve, library.noop_context_fn, *args, **options)

    return _standing({_REENTRANT: _Refused, _OTHERS: unselective})


def once() -> AbstractContextManager[None]:
    """Run the body without checkpoints: what every layer's record keeps need not be computed again."""
    return _standing({_OTHERS: _nothing})


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
