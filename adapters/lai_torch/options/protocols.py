"""What a policy is: a function of the scores, and of what else it names; and when it is called."""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor

from lai_torch._model.batch import map_tensors

Policy = Callable[..., Tensor]
"""From scores `(n,)`, positive helps, or `(parts, n)` beside their `sizes`, to weights `(n,)`.

Its signature may name any of `SEEN`; a curator checks it where it is made.
"""

SEEN = ("losses", "groups", "step", "validation_losses")
"""What a policy is given beside the scores, if its signature names it; `sizes` always comes with parts."""


def check_policy(policy: Any, parts: int | None = None) -> None:
    """Raise unless a policy accepts scores, or per-part scores, and the arguments that it names."""
    if isinstance(policy, type):
        msg = f"policy: expected a function from scores to weights, got the class {policy.__name__}; call it"
        raise TypeError(msg)
    if not callable(policy):
        msg = f"policy: expected a function such as lai_core.keep_positive, got {policy!r}"
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


_WANTED: WeakKeyDictionary[Policy, frozenset[str]] = WeakKeyDictionary()


def wants(policy: Policy) -> frozenset[str]:
    """Return which of `SEEN` a policy's signature names, and with `**` what its own `policy` asks for."""
    # read once: that takes as long as a small policy; not every callable can be a key
    with suppress(KeyError, TypeError):
        return _WANTED[policy]
    parameters: Mapping[str, inspect.Parameter] = {}
    with suppress(ValueError):  # a policy that is written in C
        parameters = inspect.signature(policy).parameters
    found = frozenset(SEEN).intersection(parameters)
    if isinstance(policy, functools.partial):
        found = found.difference(policy.keywords)
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        found = found.union(*map(wants, unwrap(policy)[1:2]))
    with suppress(TypeError):
        _WANTED[policy] = found
    return found


def ask(policy: Policy, scores: Tensor, seen: Mapping[str, Any]) -> Tensor:
    """Return a policy's weights, given the scores and what else it asks for of what there is to see."""
    asked = wants(policy) | ({"sizes"} & seen.keys())
    # copies, so that a policy may write to its arguments
    return policy(scores.clone(), **map_tensors({name: seen[name] for name in asked}, Tensor.clone))


def unwrap(policy: Any) -> list[Any]:
    """Return a policy and those that it asks, each the attribute `policy` of the one before."""
    inner = getattr(policy, "policy", None)
    return [policy, *unwrap(inner)] if callable(inner) else [policy]


def applies(policy: Policy, step: int) -> bool:
    """Say whether a policy is asked at a step; else the step trains on everything, and scores nothing."""
    return all(each.applies(step) for each in unwrap(policy) if hasattr(each, "applies"))
