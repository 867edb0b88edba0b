"""Functions with gradients by hand, as custom autograd functions have them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Rule = Callable[..., Any]


def ruled(function: Callable[..., Tensor], backward: Rule, saved: int = 0) -> type[torch.autograd.Function]:
    """Return a function whose gradient is a rule of context and cotangent; its first inputs are saved."""

    def forward(ctx: Any, *given: Any) -> Tensor:
        ctx.save_for_backward(*given[:saved])
        ctx.others = given[1:]
        return function(*given)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Ruled", (torch.autograd.Function,), members)


class Signed(torch.autograd.Function):
    """The sign, passed straight through backwards; its forward mode is the true one, zero."""

    forward = staticmethod(lambda hidden: hidden.sign())
    backward = staticmethod(lambda ctx, gradient: gradient)
    jvp = staticmethod(lambda ctx, tangent: torch.zeros_like(tangent))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


def _of_a_product(ctx: Any, gradient: Tensor) -> Any:
    hidden, matrix = ctx.saved_tensors
    return gradient @ matrix.T, torch.einsum("ntd,nte->de", hidden, gradient)


def _twice(hidden: Tensor, factor: float) -> Tensor:
    return hidden * 2


# Twice its input; backwards it multiplies by what it is told, which need not be two.
Custom = ruled(_twice, lambda ctx, gradient: (gradient * ctx.others[0], None))
# The same by numpy: there is no second derivative, and no word of it.
Forgetful = ruled(
    _twice, lambda ctx, gradient: (torch.from_numpy(gradient.detach().numpy() * ctx.others[0]), None)
)
# Its gradient is centred over the batch.
Centred = ruled(lambda hidden: hidden.clone(), lambda ctx, gradient: gradient - gradient.mean(0))
# A product with a matrix that comes as an argument, its gradient by hand, or such that it can be taken once.
Product = ruled(lambda hidden, matrix: hidden @ matrix, _of_a_product, saved=2)
ClosedOver = ruled(lambda hidden, matrix: hidden @ matrix, once_differentiable(_of_a_product), saved=2)


def _run_again(ctx: Any, gradient: Tensor) -> Any:
    (hidden,) = ctx.saved_tensors
    with torch.enable_grad():
        again = hidden.detach().requires_grad_()
        ctx.others[0](again).backward(gradient)
    return again.grad, None


def _added_by_hand(ctx: Any, gradient: Tensor) -> Any:
    (hidden,), (function, *parameters) = ctx.saved_tensors, ctx.others
    with torch.enable_grad():
        again = hidden.detach().requires_grad_()
        found = torch.autograd.grad(function(again), [again, *parameters], gradient)
    for parameter, own in zip(parameters, found[1:], strict=True):
        parameter.grad = own if parameter.grad is None else parameter.grad.add_(own)
    return found[0], None, *(None for _ in parameters)


# A function that is run again backwards, by a backward pass of its own that writes `.grad`.
Reversible = ruled(lambda hidden, function: function(hidden), _run_again, saved=1)
# The same by gradients that are asked for, and added to `.grad` by hand.
Accumulating = ruled(lambda hidden, function, *parameters: function(hidden), _added_by_hand, saved=1)
