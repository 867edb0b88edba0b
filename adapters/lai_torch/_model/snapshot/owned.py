"""Inspect the graph of the losses: the leaves that it depends on, and functions that change gradients."""

import functools
import inspect
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

NOT_OWNED = (
    "wants a gradient and belongs to neither the model nor the loss, so that scores leave it out; hand over "
    "as loss a module that holds it as a parameter, or freeze it with requires_grad_(False)"
)


def nodes(losses: Tensor, behind: Container[Any] = ()) -> Iterator[Any]:
    """Yield the nodes of an autograd graph once each, stopping at `behind`."""
    seen, ahead = set(), [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen and node not in behind:
            seen.add(node)
            yield node
            ahead += [following for following, _ in node.next_functions]


def other_leaves(losses: Tensor, known: Iterable[Tensor]) -> dict[int, Tensor]:
    """Return the leaves of the losses' graph other than the `known` ones, by identity."""
    ids = set(map(id, known))
    leaves = (getattr(node, "variable", None) for node in nodes(losses))  # of those that add to `.grad`
    return {id(leaf): leaf for leaf in leaves if leaf is not None and id(leaf) not in ids}


def check_owned(loss: Any, found: Mapping[int, Tensor], again: Callable[[], Mapping[int, Tensor]]) -> None:
    """Raise if one of the leaves that nobody handed over is a parameter; warn of another tensor.

    A tensor that is no `Parameter` may want a gradient by oversight. One that forward itself makes, as a
    place to take a force at, is another one when the losses are computed `again`.
    """
    still = again() if found else {}
    for key, leaf in found.items():
        if key in still:
            message = (
                f"loss: it depends on {called(loss, leaf)} of shape {tuple(leaf.shape)}, which {NOT_OWNED}"
            )
            if isinstance(leaf, nn.Parameter):
                raise ValueError(message)
            warnings.warn(message, UserWarning, stacklevel=2)


def check_returned(parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise if a backward pass for which `.grad` was empty wrote there by itself."""
    for name, parameter in parameters.items():
        if parameter.grad is not None:
            msg = (
                "model: expected a backward pass that returns every gradient, got one that writes the .grad "
                f"of {name!r} itself, as a function does whose backward calls .backward() (a reversible "
                "block, a reentrant checkpoint): return what torch.autograd.grad gives, or pass "
                "use_reentrant=False to checkpoint (transformers: gradient_checkpointing_kwargs="
                "{'use_reentrant': False})"
            )
            raise ValueError(msg)


def called(loss: Any, leaf: Tensor) -> str:
    """Return what a loss calls a tensor that it holds or closes over, if that can be seen."""
    while isinstance(loss, functools.partial):
        held = [*loss.args, *loss.keywords.values()]
        if any(one is leaf for one in held):
            return "an argument of a partial"
        loss = loss.func
    outside: dict[str, Any] = {}
    function = getattr(loss, "__func__", loss)
    if inspect.isfunction(function):
        closed = inspect.getclosurevars(function)
        outside = {**closed.globals, **closed.nonlocals}
    owner = getattr(loss, "__self__", None if inspect.isfunction(loss) else loss)
    outside |= {f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()}
    for name, value in outside.items():
        if value is leaf:
            return repr(name)
        if isinstance(value, nn.Module):
            for path, parameter in value.named_parameters():
                if parameter is leaf:
                    return repr(f"{name}.{path}")
    return "a tensor"
