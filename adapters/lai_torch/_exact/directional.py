"""The derivative of every sample's loss along one direction of the parameters, in three ways."""

import traceback
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from lai_torch._model.function import Function, Point, real_product, vjp
from lai_torch._model.preserve import reentrant
from lai_torch._model.snapshot import check_owned as check_owned_leaves
from lai_torch._model.snapshot import nodes
from lai_torch._model.walk import list_parameters


def check_owned(function: Function, losses: Tensor) -> None:
    """Raise if the losses depend on a parameter that neither the model nor the loss holds."""
    if not losses.requires_grad:
        msg = (
            "loss: expected one that depends on a parameter that trains, got one that depends on none; the "
            "outputs may be detached, or computed without gradients"
        )
        raise ValueError(msg)
    if any("CheckpointFunction" in type(node).__name__ for node in nodes(losses)):
        raise reentrant()
    known = set(map(id, function.parameters().values()))
    leaves = (getattr(node, "variable", None) for node in nodes(losses))  # of those that add to `.grad`
    others = [leaf for leaf in leaves if leaf is not None and id(leaf) not in known]
    check_owned_leaves(others)
    if others:  # without them, a function that writes `.grad`, on no way to a parameter, would not run
        torch.autograd.grad(losses.sum(), others, allow_unused=True, retain_graph=True)


def precision(losses: Tensor) -> float:
    """Return the machine epsilon of the coarsest type in the graph of the losses."""
    kinds = {meta.dtype for node in nodes(losses) for meta in node._input_metadata}
    floats = [kind for kind in kinds | {losses.dtype} if kind.is_floating_point or kind.is_complex]
    return max(torch.finfo(kind).eps for kind in floats)


def check_reads_outputs(model: nn.Module, loss: Any, losses: Tensor, outputs: Iterable[Tensor]) -> None:
    """Raise if losses depend on something that trains by another way than the model's `outputs`."""
    behind = {output.grad_fn for output in outputs}
    leaves = (getattr(node, "variable", None) for node in nodes(losses, behind))
    found = next((leaf for leaf in leaves if leaf is not None), None)
    if found is None:
        return
    names = {id(parameter): repr(name) for name, parameter in list_parameters(model, loss).items()}
    msg = (
        "backward: 'selective' expects a loss that depends on what trains by the model's outputs alone, this "
        f"one reads {names.get(id(found), 'another tensor')} itself; use backward='kept'"
    )
    raise ValueError(msg)


Pair = tuple[Tensor, Tensor]
"""Derivatives and losses, `(n,)` each."""


def forward(function: Function, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """One forward pass with dual numbers, which the parameters themselves carry.

    It gives the derivative of what forward computes. That is not the gradient where reverse mode is told
    otherwise (a hook, a custom backward pass, `detach`), nor where torch's two modes differ.
    """
    with (
        function.preserve(),
        forward_ad.dual_level(),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", ".*torch.jit.script.*")  # torch's own rules
        parameters = function.parameters()
        for name, parameter in parameters.items():
            dual = forward_ad.make_dual(parameter.detach().clone(), direction[name])
            with _unsafe_preserve_version_counter(parameter):  # torch 2.6 takes one at a time
                parameter.copy_(dual)  # the same value; the tangent ends with the level
        found = forward_ad.unpack_dual(function(batch))
        losses = found.primal.detach().clone()
        # without a tangent, the losses do not depend on what moves
        if found.tangent is None:
            return torch.zeros_like(losses), losses
        return found.tangent.detach().clone(), losses


def double_backward(function: Function, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """Transpose the transpose: the gradient of `sum_j w_j l_j`, along the direction, is linear in w.

    It follows reverse mode wherever that is itself differentiable.
    """
    with function.preserve():
        parameters = function.parameters()
        losses = function(batch)
        weights = torch.zeros_like(losses).requires_grad_()
        pieces = vjp(losses, weights, parameters, create_graph=True)
        along = torch.zeros_like(losses).sum()
        for name, piece in zip(parameters, pieces, strict=True):
            if piece is not None and piece.requires_grad:
                along = along + real_product(piece, direction[name]).sum().to(along)
        if not along.requires_grad:
            return torch.zeros_like(losses).detach(), losses.detach()
        (scores,) = torch.autograd.grad(along, weights)
        return scores, losses.detach()


def reverse(function: Function, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """One reverse pass a sample, over the graph of one forward pass: the definition itself."""
    with function.preserve():
        parameters = function.parameters()
        losses = function(batch)
        scores = torch.zeros_like(losses).detach()
        for j, one in enumerate(torch.eye(len(losses), dtype=losses.dtype, device=losses.device)):
            pieces = vjp(losses, one, parameters, retain_graph=True)
            for name, piece in zip(parameters, pieces, strict=True):
                if piece is not None:
                    scores[j] += real_product(piece, direction[name]).sum().to(scores)
        return scores, losses.detach()


METHODS = {"forward": forward, "double backward": double_backward, "reverse": reverse}
"""The ways, the cheapest first: about 2, 5 and 2 n forward passes."""


def explain_error(error: Exception) -> str:
    """Return an error's first line, preceded by the custom function that it is about, if it is one."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        kind = getattr(frame.f_locals.get("self"), "_forward_cls", None)  # torch's own frame around the rule
        if kind is not None:
            return f"{kind.__name__}: {line}"
    return line
