"""The derivative of every sample's loss along one direction of the parameters."""

import traceback
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from lai_torch._model.functional import Function, Point, plain_attention
from lai_torch._model.preserve import preserved

Pair = tuple[Tensor, Tensor]


class Method(NamedTuple):
    """The way by which derivatives were found, and why not by an earlier one; None for the first."""

    name: str
    reason: str | None


Derivative = tuple[Tensor, Tensor, Method]


def along(function: Function, point: Point, direction: Point, batch: tuple[Any, Any]) -> Derivative:
    """Return the derivatives and the losses, `(n,)`, and the way by which they were found.

    An error that the model raises without any derivative too comes up as it is.
    """
    reasons: list[str] = []
    for name, way in (("forward", _forward), ("double backward", _double_backward)):
        failed = None
        try:
            with preserved(function.model), plain_attention():
                return (*way(function, point, direction, batch), _method(name, reasons))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, NotImplementedError) as error:
            failed = f"{name}: {_named(error)}"
        if not reasons:
            with preserved(function.model), plain_attention(), torch.no_grad():
                function(point, batch)  # an error of the model's own is no missing derivative
        reasons.append(failed)
    with preserved(function.model), plain_attention():
        return (*_differences(function, point, direction, batch), _method("differences", reasons))


def _method(name: str, reasons: list[str]) -> Method:
    return Method(name, "; ".join(reasons) or None)


def _named(error: Exception) -> str:
    """Return an error's first line, preceded by the custom function that it is about, if it is one."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    for frame, _ in traceback.walk_tb(error.__traceback__):
        kind = frame.f_locals.get("cls")
        if isinstance(kind, type) and issubclass(kind, torch.autograd.Function):
            return f"{kind.__name__}: {line}"
    return line


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
