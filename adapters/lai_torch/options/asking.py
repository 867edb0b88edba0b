"""What a policy may see beside the scores, and when it is asked."""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

Policy = Callable[..., Tensor]
"""From scores `(n,)`, positive helps, to weights `(n,)`; from `(parts, n)` and `sizes=` with `parts`."""

SEEN = ("losses", "groups", "step", "validation_losses", "measured")
"""What a policy is given beside the scores, if its signature names it; `sizes` always comes with parts."""


def wants(policy: Policy) -> frozenset[str]:
    """Return which of `SEEN` a policy asks for by its signature, or by an attribute of this name."""
    declared = getattr(policy, "wants", None)
    if declared is not None:
        return frozenset(declared)
    given = policy.keywords if isinstance(policy, functools.partial) else {}
    return frozenset(name for name in SEEN if name in _arguments(policy) and name not in given)


_ARGUMENTS: WeakKeyDictionary[Policy, frozenset[str]] = WeakKeyDictionary()


def _arguments(policy: Policy) -> frozenset[str]:
    """Return the names of a policy's arguments, read once: that takes as long as a small policy."""
    try:
        return _ARGUMENTS[policy]
    except (KeyError, TypeError):  # not every callable can be a key
        pass
    try:
        found = frozenset(inspect.signature(policy).parameters)
    except ValueError:  # written in C
        found = frozenset()
    with suppress(TypeError):
        _ARGUMENTS[policy] = found
    return found


def ask(policy: Policy, scores: Tensor, seen: Mapping[str, Any]) -> Tensor:
    """Return a policy's weights, given the scores and what else it asks for of what there is to see."""
    asked = wants(policy) | ({"sizes"} & seen.keys())
    return policy(scores, **{name: seen[name] for name in asked})


def applies(policy: Policy, step: int) -> bool:
    """Say whether a policy is asked at a step; else the step trains on everything, and scores nothing."""
    applying = getattr(policy, "applies", None)
    return True if applying is None else bool(applying(step))
