"""Functions with gradients by hand, as custom autograd functions have them."""

from typing import Any

import torch
from torch import Tensor


class Custom(torch.autograd.Function):
    """Twice its input; `backward` multiplies by what it is told, which need not be two."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return hidden * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * ctx.factor, None


class Centred(torch.autograd.Function):
    """Its gradient is centred over the batch."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient - gradient.mean(0)


class Forgetful(Custom):
    """The same by numpy: there is no second derivative, and no word of it."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return torch.from_numpy(gradient.detach().numpy() * ctx.factor), None


class Signed(torch.autograd.Function):
    """The sign, passed straight through backwards; its forward mode is the true one, zero."""

    @staticmethod
    def forward(hidden: Tensor) -> Tensor:
        return hidden.sign()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return torch.zeros_like(tangent)


class Product(torch.autograd.Function):
    """A product with a matrix that comes as an argument, its gradient by hand."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, matrix)
        return hidden @ matrix

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        hidden, matrix = ctx.saved_tensors
        return gradient @ matrix.T, torch.einsum("ntd,nte->de", hidden, gradient)


class ClosedOver(Product):
    """The same, which can be differentiated once."""

    backward = staticmethod(torch.autograd.function.once_differentiable(Product.backward))


class Reversible(torch.autograd.Function):
    """A function that is run again backwards, by a backward pass of its own that writes `.grad`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, function: Any) -> Tensor:
        ctx.save_for_backward(hidden)
        ctx.function = function
        with torch.no_grad():
            return function(hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (hidden,) = ctx.saved_tensors
        with torch.enable_grad():
            again = hidden.detach().requires_grad_()
            ctx.function(again).backward(gradient)
        return again.grad, None


class Accumulating(torch.autograd.Function):
    """The same by gradients that are asked for, and added to `.grad` by hand."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, function: Any, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(hidden)
        ctx.function, ctx.parameters = function, parameters
        with torch.no_grad():
            return function(hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (hidden,) = ctx.saved_tensors
        with torch.enable_grad():
            again = hidden.detach().requires_grad_()
            found = torch.autograd.grad(ctx.function(again), [again, *ctx.parameters], gradient)
        for parameter, own in zip(ctx.parameters, found[1:], strict=True):
            parameter.grad = own if parameter.grad is None else parameter.grad.add_(own)
        return found[0], None, *(None for _ in ctx.parameters)
