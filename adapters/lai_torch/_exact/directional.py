"""The derivative of every sample's loss along one direction of the parameters, in three ways."""

import traceback
import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from lai_torch._model.function import Function, Point, inner, vjp

Pair = tuple[Tensor, Tensor]
"""Derivatives and losses, `(n,)` each."""


def forward(function: Function, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """One forward pass with dual numbers, which the parameters themselves carry.

    It gives the derivative of what forward computes. That is not the gradient where reverse mode is told
    otherwise (a hook, a custom backward pass, `detach`), nor where torch's two modes differ.
    """
    with (
        function.preserved(),
        forward_ad.dual_level(),
        torch.no_grad(),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)  # torch's own rules
        parameters = function.parameters()
        with _unsafe_preserve_version_counter(tuple(parameters.values())):
            for name, parameter in parameters.items():
                dual = forward_ad.make_dual(parameter.detach().clone(), direction[name])
                parameter.copy_(dual)  # the same value; the tangent ends with the level
        found = forward_ad.unpack_dual(function(batch))
        losses = found.primal.detach().clone()
        return torch.zeros_like(losses) if found.tangent is None else found.tangent.detach().clone(), losses


def double_backward(function: Function, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """Transpose the transpose: the gradient of `sum_j w_j l_j`, along the direction, is linear in w.

    It follows reverse mode wherever that is itself differentiable.
    """
    with function.preserved():
        parameters = function.parameters()
        losses = function(batch)
        weights = torch.zeros_like(losses).requires_grad_()
        pieces = vjp(losses, weights, parameters, create_graph=True)
        along = torch.zeros_like(losses).sum()
        for name, piece in zip(parameters, pieces, strict=True):
            if piece is not None and piece.requires_grad:
                along = along + inner(piece, direction[name]).to(along)
        if not along.requires_grad:
            return torch.zeros_like(losses).detach(), losses.detach()
        (scores,) = torch.autograd.grad(along, weights)
        return scores, losses.detach()


def reverse(function: Function, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """One reverse pass a sample, over the graph of one forward pass: the definition itself."""
    with function.preserved():
        parameters = function.parameters()
        losses = function(batch)
        scores = torch.zeros_like(losses).detach()
        for j, one in enumerate(torch.eye(len(losses), dtype=losses.dtype, device=losses.device)):
            pieces = vjp(losses, one, parameters, retain_graph=True)
            for name, piece in zip(parameters, pieces, strict=True):
                if piece is not None:
                    scores[j] += inner(piece, direction[name]).to(scores)
        return scores, losses.detach()


METHODS = {"forward": forward, "double backward": double_backward, "reverse": reverse}
"""The ways, the cheapest first: about 2, 5 and 2 n forward passes."""


def why(error: Exception) -> str:
    """Return an error's first line, preceded by the custom function that it is about, if it is one."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        kind = frame.f_locals.get("cls")
        if isinstance(kind, type) and issubclass(kind, torch.autograd.Function):
            return f"{kind.__name__}: {line}"
    return line
