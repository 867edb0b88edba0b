"""What the graph of the losses tells: whose the trainable tensors are, and how precisely it computes."""

import inspect
import warnings
from collections.abc import Container, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import tensors
from lai_torch._model.function import Function, reentrant
from lai_torch._model.walk import named_parameters


def check_owned(function: Function, losses: Tensor, batch: tuple[Any, Any]) -> None:
    """Raise if the losses depend on a parameter that neither the model nor the loss holds.

    A tensor that is no `Parameter` may want a gradient by oversight: it is named in a warning. One that
    forward itself makes, as a place to take a force at, is another one in the next forward pass.
    """
    if not losses.requires_grad:
        msg = (
            "loss: expected one that depends on a parameter that trains, got one that depends on none; the "
            "outputs may be detached, or computed without gradients"
        )
        raise ValueError(msg)
    if any("CheckpointFunction" in type(node).__name__ for node in _nodes(losses)):
        raise reentrant()
    found = _strangers(function, losses, batch)
    again = _strangers(function, function(batch), batch) if found else {}
    for key, leaf in found.items():
        if key not in again:
            continue
        message = (
            f"loss: it depends on {_called(function.loss, leaf)} of shape {tuple(leaf.shape)}, which wants a "
            "gradient and belongs to neither the model nor the loss, so that scores leave it out; hand over "
            "as loss a module that holds it as a parameter, or freeze it with requires_grad_(False)"
        )
        if isinstance(leaf, nn.Parameter):
            raise ValueError(message)
        warnings.warn(message, UserWarning, stacklevel=2)


def _strangers(function: Function, losses: Tensor, batch: tuple[Any, Any]) -> dict[int, Tensor]:
    """Return the leaves of the losses' graph that nobody handed over, by identity."""
    known = {id(tensor) for tensor in tensors(batch)}
    known |= {id(parameter) for parameter in function.parameters().values()}
    leaves = (getattr(node, "variable", None) for node in _nodes(losses))  # of those that add to `.grad`
    return {id(leaf): leaf for leaf in leaves if leaf is not None and id(leaf) not in known}


def precision(losses: Tensor) -> float:
    """Return the precision of the coarsest type that stands on the way to the losses."""
    kinds = {meta.dtype for node in _nodes(losses) for meta in node._input_metadata}
    floats = [kind for kind in kinds | {losses.dtype} if kind.is_floating_point or kind.is_complex]
    return max(torch.finfo(kind).eps for kind in floats)


def check_reads_outputs(model: nn.Module, loss: Any, losses: Tensor, outputs: Iterable[Tensor]) -> None:
    """Raise if losses depend on something that trains by another way than the model's `outputs`."""
    behind = {output.grad_fn for output in outputs}
    leaves = [getattr(node, "variable", None) for node in _nodes(losses, behind)]
    if all(leaf is None for leaf in leaves):
        return
    called = {id(parameter): repr(name) for name, parameter in named_parameters(model, loss).items()}
    found = next(leaf for leaf in leaves if leaf is not None)
    msg = (
        "backward: 'selective' expects a loss that depends on what trains by the model's outputs alone, this "
        f"one reads {called.get(id(found)) or _called(loss, found)} itself; use backward='kept'"
    )
    raise ValueError(msg)


def _nodes(losses: Tensor, behind: Container[Any] = ()) -> Iterator[Any]:
    """Yield the nodes of a graph, each once, as far as those that all else is `behind`."""
    seen, ahead = set(), [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen and node not in behind:
            seen.add(node)
            yield node
            ahead += [following for following, _ in node.next_functions]


def _called(loss: Any, leaf: Tensor) -> str:
    """Return what a loss calls a tensor that it closes over, if that can be seen."""
    if inspect.isfunction(loss):
        outside = inspect.getclosurevars(loss)
        for name, value in {**outside.globals, **outside.nonlocals}.items():
            if value is leaf:
                return repr(name)
            if isinstance(value, nn.Module):
                for path, parameter in value.named_parameters():
                    if parameter is leaf:
                        return repr(f"{name}.{path}")
    return "a tensor"
