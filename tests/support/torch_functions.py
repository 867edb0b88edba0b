"""Functions that parts of random torch programs apply, and functions with gradients by hand."""

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


class Custom(torch.autograd.Function):
    """Twice its input; `backward` multiplies by what it is told, which need not be two."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return hidden * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * ctx.factor, None


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


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(torch.matmul(x, w))


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # deprecated, and still met
    scripted = torch.jit.script(product)


def hooked(hidden: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
    hidden = hidden * 1.0
    if hidden.requires_grad:
        hidden.register_hook(hook)
    return hidden


def without_gradient(part: Any, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        scale = part.cut(hidden).sigmoid()
    return part.kept(hidden) * scale


def idle(part: Any, hidden: Tensor) -> Tensor:
    """Run a branch whose result goes nowhere, and one under no_grad, on one matrix."""
    functional.linear(hidden, part.w)
    with torch.no_grad():
        scale = functional.linear(hidden, part.w).abs().mean(-1, keepdim=True)
    return hidden / (1 + scale)


def scattered(part: Any, hidden: Tensor) -> Tensor:
    values = part.linear(hidden)
    index = torch.arange(values.shape[2]).remainder(2).expand_as(values)
    reduced = torch.ones_like(values).scatter_reduce(2, index, values, reduce=part.how, include_self=False)
    return values + reduced


def strided(part: Any, hidden: Tensor) -> Tensor:
    values = part.linear(hidden).contiguous()
    column = values[..., 0] * 2
    return torch.as_strided_scatter(
        values, column, column.shape, (values.stride(0), values.stride(1)), values.storage_offset()
    )


def unpooled(part: Any, hidden: Tensor) -> Tensor:
    values = part.linear(hidden).transpose(1, 2)
    if values.shape[2] < 2:
        return hidden
    pooled, index = functional.max_pool1d(values, 2, return_indices=True)
    return hidden + functional.max_unpool1d(pooled, index, 2, output_size=values.shape[2:]).transpose(1, 2)


def forced(part: Any, hidden: Tensor) -> Tensor:
    """Force of an energy, as physicists' models return it."""
    with torch.enable_grad():
        place = hidden if hidden.requires_grad else hidden.detach().requires_grad_()
        energy = (part.first(place).tanh() * part.second).sum()
        return hidden + torch.autograd.grad(energy, place, create_graph=True)[0]


def streams(part: Any, hidden: Tensor) -> Tensor:
    moved = random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002 # the global ones
    return part.linear(hidden) + 0.0 * moved


def counted(part: Any, hidden: Tensor) -> Tensor:
    part.calls.data.add_(1.0)
    part.calls += 1.0
    return part.linear(hidden)


def looked_up(part: Any, hidden: Tensor) -> Tensor:
    ids = hidden.detach().argsort(-1)  # a sample's own table rows, chosen by its values
    return hidden + part.table(ids).sum(-2)


def bagged(part: Any, hidden: Tensor) -> Tensor:
    ids = hidden.detach().argsort(-1)
    bags = part.table(ids.flatten(0, 1)).unflatten(0, hidden.shape[:2])
    return hidden + bags


def routed(part: Any, hidden: Tensor) -> Tensor:
    chosen = hidden.detach()[:, 0, 0] > 0  # a sum may be rounding alone: normalised, it is
    out = torch.zeros_like(hidden)
    for side, expert in ((chosen, part.left), (~chosen, part.right)):
        if bool(side.any()):
            out[side] = expert(hidden[side])
    return hidden + out


def routed_rows(part: Any, hidden: Tensor) -> Tensor:
    """Top-1 experts on the rows that the values choose, by their numbers."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    chosen = (rows @ part.w_gate).argmax(1)
    out = torch.zeros_like(rows)
    for expert in range(part.w.shape[0]):
        (index,) = torch.where(chosen == expert)
        out = out.index_add(0, index, functional.linear(rows[index], part.w[expert]))
    return hidden + out.reshape(hidden.shape)


def experts(part: Any, hidden: Tensor) -> Tensor:
    matrices = part.w[hidden.detach().argmax(-1)]
    return hidden + torch.einsum("ntd,ntde->nte", hidden, matrices)


def spectral(part: Any, hidden: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(hidden, dim=1) * part.filter, n=hidden.shape[1], dim=1)


def attended(part: Any, hidden: Tensor) -> Tensor:
    query, key, value = part.mixed(hidden).chunk(3, -1)
    return hidden + functional.scaled_dot_product_attention(query, key, value)


def by_distance(part: Any, hidden: Tensor) -> Tensor:
    """Attention with a bias per distance of positions, read from a table."""
    place = torch.arange(hidden.shape[1])
    bias = part.table[place[:, None] - place[None, :] + hidden.shape[1] - 1]
    return torch.softmax(hidden @ hidden.transpose(1, 2) + bias, -1) @ hidden


def folded(part: Any, hidden: Tensor) -> Tensor:
    """Convolve with the batch folded into channels: a matrix a group."""
    n, t, d = hidden.shape
    rows = hidden.permute(1, 0, 2).reshape(t, n * d, 1)
    return functional.conv1d(rows, part.w.repeat(n, 1)[..., None], groups=n).reshape(t, n, d).permute(1, 0, 2)


def halves(part: Any, hidden: Tensor) -> Tensor:
    """Apply the matrix to the first half of the batch, and to the rest: chunks of two sizes."""
    cut = (len(hidden) + 1) // 2
    return torch.cat([hidden[:cut] @ part.w, hidden[cut:] @ part.w])


def in_place(part: Any, hidden: Tensor) -> Tensor:
    out = part.linear(hidden)
    out[:, 0] = out[:, 0] * 2
    out.mul_(part.gain)
    return out


def written(part: Any, hidden: Tensor) -> Tensor:
    hidden = hidden.clone()
    hidden[:, 0] += part.v
    hidden[:, -1] = torch.tanh(hidden[:, -1].clone()) * part.v
    return hidden
