"""What a policy is: a function of the scores, and of what else it names; and when it is called.

A function that names several of these by itself is a class with an attribute `wants`, which says them.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from torch import Tensor

AnyPolicy = Callable[..., Tensor]
"""A policy once it has been checked."""


class OfScores(Protocol):
    """From scores `(n,)`, positive helps, to weights `(n,)`."""

    def __call__(self, scores: Tensor, /) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfParts(Protocol):
    """From scores `(parts, n)` and the parts' sizes to weights `(n,)`."""

    def __call__(self, scores: Tensor, /, *, sizes: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfLosses(Protocol):
    """Sees each sample's loss, too."""

    def __call__(self, scores: Tensor, /, *, losses: Tensor) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfGroups(Protocol):
    """Sees the groups of a batch, too."""

    def __call__(self, scores: Tensor, /, *, groups: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfSteps(Protocol):
    """Sees the number of the step, too."""

    def __call__(self, scores: Tensor, /, *, step: int) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfValidationLosses(Protocol):
    """Sees the validation set's losses, too."""

    def __call__(self, scores: Tensor, /, *, validation_losses: Tensor) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfLossesAndValidation(Protocol):
    """Sees the batch's losses and the validation set's, too."""

    def __call__(self, scores: Tensor, /, *, losses: Tensor, validation_losses: Tensor) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfLossesAndSteps(Protocol):
    """Sees each sample's loss and the number of the step, too."""

    def __call__(self, scores: Tensor, /, *, losses: Tensor, step: int) -> Tensor:
        """Return the weights `(n,)`."""
        ...


class OfMeasured(Protocol):
    """Sees what its own method measures of a batch, too."""

    def __call__(self, scores: Tensor, /, *args: Any, **seen: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...

    def measure(self, inputs: Any, targets: Any) -> Tensor:
        """Return one number a sample."""
        ...


class Declaring(Protocol):
    """Sees what it declares in `wants`, too."""

    def __call__(self, scores: Tensor, /, *args: Any, **seen: Any) -> Tensor:
        """Return the weights `(n,)`."""
        ...

    @property
    def wants(self) -> Iterable[str]:
        """Name what is seen beside the scores."""
        ...


Policy = (
    OfScores
    | OfParts
    | OfLosses
    | OfGroups
    | OfSteps
    | OfValidationLosses
    | OfLossesAndValidation
    | OfLossesAndSteps
    | OfMeasured
    | Declaring
)
"""What a curator takes as a policy."""


SEEN = ("losses", "groups", "step", "validation_losses", "measured")
"""What a policy is given beside the scores, if its signature names it; `sizes` always comes with parts."""


POLICIES = ("keep_all", "keep_positive", "keep_top", "reweight", "drop_harmful")
"""Policies of the core, for those who name one."""


def check_policy(policy: Any, parts: int | None = None) -> None:
    """Raise unless a policy accepts scores, or per-part scores, and the arguments that it names."""
    if isinstance(policy, type):
        msg = f"policy: expected a function from scores to weights, got the class {policy.__name__}; call it"
        raise TypeError(msg)
    if not callable(policy):
        named = policy if isinstance(policy, str) else ""
        near = get_close_matches(named.lower(), POLICIES, n=1)
        known = f"; pass lai_core.{near[0]}" if near else ""
        msg = f"policy: expected a function from scores to weights, got {policy!r}{known}"
        raise TypeError(msg)
    if callable(inner := getattr(policy, "policy", None)):  # the one that it asks
        check_policy(inner, parts)
    asked, way_out = wants(policy), "functools.partial(lai_core.keep_top, fraction=0.5)"
    if parts is not None:
        asked, way_out = asked | {"sizes"}, "the sizes of the parts, as lai_core.drop_harmful takes them"
    try:
        inspect.signature(policy).bind(None, **dict.fromkeys(asked))
    except ValueError:
        return  # written in C: it will show
    except TypeError as error:
        name = getattr(policy, "__name__", type(policy).__name__)
        msg = (
            f"policy: expected a function of the scores, and of any of {', '.join(SEEN)} by these names, got "
            f"{name} ({error}); give it the rest, such as {way_out}"
        )
        raise TypeError(msg) from error


def wants(policy: AnyPolicy) -> frozenset[str]:
    """Return which of `SEEN` a policy asks for by its signature, or by an attribute of this name."""
    declared = getattr(policy, "wants", None)
    if declared is not None:
        return frozenset(declared)
    asked = _arguments(policy)
    return asked.difference(policy.keywords) if isinstance(policy, functools.partial) else asked


_ARGUMENTS: WeakKeyDictionary[AnyPolicy, frozenset[str]] = WeakKeyDictionary()


def _arguments(policy: AnyPolicy) -> frozenset[str]:
    """Return which of `SEEN` a policy's arguments are, read once: that takes as long as a small policy."""
    try:
        return _ARGUMENTS[policy]
    except (KeyError, TypeError):  # not every callable can be a key
        pass
    try:
        found = frozenset(SEEN).intersection(inspect.signature(policy).parameters)
    except ValueError:  # written in C
        found = frozenset()
    with suppress(TypeError):
        _ARGUMENTS[policy] = found
    return found


def ask(policy: AnyPolicy, scores: Tensor, seen: Mapping[str, Any]) -> Tensor:
    """Return a policy's weights, given the scores and what else it asks for of what there is to see."""
    asked = wants(policy) | ({"sizes"} & seen.keys())
    # copies, so that a policy may write to its arguments
    return policy(_copy(scores), **{name: _copy(seen[name]) for name in asked})


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def applies(policy: AnyPolicy, step: int) -> bool:
    """Say whether a policy is asked at a step; else the step trains on everything, and scores nothing."""
    applying = getattr(policy, "applies", None)
    return True if applying is None else bool(applying(step))
