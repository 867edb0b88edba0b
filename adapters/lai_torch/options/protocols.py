"""What a policy is: a function of the scores, and of what else it names; and when it is called.

A function that names several of these by itself is a class with an attribute `wants`, which says them.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

Policy = Callable[..., Tensor]
"""From scores `(n,)`, positive helps, or `(parts, n)` beside their `sizes`, to weights `(n,)`.

Its signature may name any of `SEEN`; a curator checks it where it is made.
"""

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


def wants(policy: Policy) -> frozenset[str]:
    """Return which of `SEEN` a policy asks for by its signature, or by an attribute of this name."""
    declared = getattr(policy, "wants", None)
    if declared is not None:
        return frozenset(declared)
    asked = _arguments(policy)
    return asked.difference(policy.keywords) if isinstance(policy, functools.partial) else asked


_ARGUMENTS: WeakKeyDictionary[Policy, frozenset[str]] = WeakKeyDictionary()


def _arguments(policy: Policy) -> frozenset[str]:
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


def ask(policy: Policy, scores: Tensor, seen: Mapping[str, Any]) -> Tensor:
    """Return a policy's weights, given the scores and what else it asks for of what there is to see."""
    asked = wants(policy) | ({"sizes"} & seen.keys())
    # copies, so that a policy may write to its arguments
    return policy(_copy(scores), **{name: _copy(seen[name]) for name in asked})


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def applies(policy: Policy, step: int) -> bool:
    """Say whether a policy is asked at a step; else the step trains on everything, and scores nothing."""
    applying = getattr(policy, "applies", None)
    return True if applying is None else bool(applying(step))
