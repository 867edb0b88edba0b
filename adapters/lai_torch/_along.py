"""The derivative of every sample's loss along one direction of the parameters."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lai_torch._functional import Function, Point, plain_attention
from lai_torch._preserve import preserved

Pair = tuple[Tensor, Tensor]
Derivative = tuple[Tensor, Tensor, str]


def along(function: Function, point: Point, direction: Point, batch: tuple[Any, Any]) -> Derivative:
    """Return the derivatives and the losses, `(n,)`, and the way by which they were found."""
    ways = (("forward", _forward), ("double backward", _double_backward), ("differences", _differences))
    for name, way in ways[:-1]:
        try:
            with preserved(function.model), plain_attention():
                return (*way(function, point, direction, batch), name)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError):  # an operation without such a derivative
            continue
    name, way = ways[-1]
    with preserved(function.model), plain_attention():
        return (*way(function, point, direction, batch), name)


def _forward(function: Function, point: Point, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """One forward pass with dual numbers."""
    with forward_ad.dual_level(), torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)  # torch's own rules
        duals = {name: forward_ad.make_dual(value, direction[name]) for name, value in point.items()}
        values = function(duals, batch)
        tangent = forward_ad.unpack_dual(values).tangent
        losses = forward_ad.unpack_dual(values).primal.detach().clone()
        return torch.zeros_like(losses) if tangent is None else tangent.detach().clone(), losses


def _double_backward(function: Function, point: Point, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """Transpose the transpose: the gradient of `sum_j w_j l_j`, along the direction, is linear in w."""
    leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
    values = function(leaves, batch)
    weights = torch.zeros_like(values).requires_grad_()
    found = torch.autograd.grad(
        (values * weights).sum(), list(leaves.values()), create_graph=True, allow_unused=True
    )
    pairs = zip(found, direction.values(), strict=True)
    terms = [(piece * part).sum() for piece, part in pairs if piece is not None]
    (scores,) = torch.autograd.grad(sum(terms, start=torch.zeros_like(values).sum()), weights)
    return scores, values.detach()


def _differences(function: Function, point: Point, direction: Point, batch: tuple[Any, Any]) -> Pair:
    """Central differences, with the step that balances rounding against curvature."""
    length = torch.stack([part.norm() for part in direction.values()]).norm()
    size = torch.stack([value.norm() for value in point.values()]).norm()
    precision = torch.finfo(next(iter(point.values())).dtype).eps
    step = float(precision ** (1 / 3) * (1.0 + size) / length.clamp(min=torch.finfo(length.dtype).tiny))
    sides = []
    for sign in (1.0, -1.0):
        moved = {name: value + sign * step * direction[name] for name, value in point.items()}
        with preserved(function.model), torch.no_grad():
            sides.append(function(moved, batch))
    return (sides[0] - sides[1]) / (2.0 * step), (sides[0] + sides[1]) / 2.0
