"""Parts of which random torch programs are made: each maps `(n, t, d)` to `(n, t, d)`.

Layers are the least of it: parameters that are shared, sliced, bound or closed over, gradients that are cut,
reversed, scaled or masked, state that is written in forward, samples that see one another.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.support.torch_functions import ClosedOver, Custom, Forgetful, Signed

DOUBLE = torch.float64


def weights(*shape: int) -> nn.Parameter:
    return nn.Parameter(0.5 * torch.randn(*shape, dtype=DOUBLE))


class Part(nn.Module):
    """A function of the hidden values and of parameters, buffers and modules by name."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **own: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in own.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.function(self, hidden)


def hooked(hidden: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
    hidden = hidden * 1.0
    if hidden.requires_grad:
        hidden.register_hook(hook)
    return hidden


def without_gradient(part: Any, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        scale = part.cut(hidden).sigmoid()
    return part.kept(hidden) * scale


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


def experts(part: Any, hidden: Tensor) -> Tensor:
    matrices = part.matrices[hidden.detach().argmax(-1)]
    return hidden + torch.einsum("ntd,ntde->nte", hidden, matrices)


def spectral(part: Any, hidden: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(hidden, dim=1) * part.filter, n=hidden.shape[1], dim=1)


def attended(part: Any, hidden: Tensor) -> Tensor:
    query, key, value = part.mixed(hidden).chunk(3, -1)
    return hidden + functional.scaled_dot_product_attention(query, key, value)


def in_place(part: Any, hidden: Tensor) -> Tensor:
    out = part.linear(hidden)
    out[:, 0] = out[:, 0] * 2
    out.mul_(part.gain)
    return out


def backward_hook(module: nn.Module, factor: float) -> nn.Module:
    def scaled(_: nn.Module, inputs: Any, __: Any) -> Any:
        return tuple(None if gradient is None else gradient * factor for gradient in inputs)

    module.register_full_backward_hook(scaled)
    return module


def masked(parameter: nn.Parameter) -> nn.Parameter:
    parameter.register_hook(lambda gradient: gradient * (torch.arange(gradient.shape[-1]) % 2))
    return parameter


def linear(d: int, out: int | None = None) -> nn.Linear:
    return nn.Linear(d, d if out is None else out).double()


def clipped(gradient: Tensor) -> Tensor:
    return gradient.clamp(-0.02, 0.02)


def with_masked_weight(d: int) -> nn.Linear:
    layer = linear(d)
    masked(layer.weight)
    return layer


def sparse(d: int) -> nn.Module:
    return Part(looked_up, table=nn.Embedding(d, d, sparse=True).double())


def table(d: int, **options: Any) -> nn.Module:
    return Part(looked_up, table=nn.Embedding(d, d, **options).double())


# What is a function of one sample at a time, and what is linear in the losses' weights.
SOUND: dict[str, Callable[[int], nn.Module]] = {
    "linear": linear,
    "tanh": lambda d: nn.Sequential(linear(d), nn.Tanh()),
    "residual": lambda d: Part(lambda p, h: h + p.a(functional.gelu(p.b(h))), a=linear(d), b=linear(d)),
    "layernorm": lambda d: nn.LayerNorm(d).double(),
    "groupnorm": lambda d: Part(
        lambda p, h: p.n(h.transpose(1, 2)).transpose(1, 2), n=nn.GroupNorm(1, d).double()
    ),
    "batchnorm": lambda d: Part(
        lambda p, h: p.n(h.transpose(1, 2)).transpose(1, 2), n=nn.BatchNorm1d(d).double().eval()
    ),
    "gain": lambda d: Part(lambda p, h: h * p.w + p.b, w=weights(d), b=weights(d)),
    "shared": lambda d: Part(lambda p, h: p.a(p.a(h).tanh()), a=linear(d)),
    "transposed": lambda d: Part(lambda p, h: (h @ p.w).tanh() @ p.w.T, w=weights(d, d)),
    "sliced": lambda d: Part(lambda p, h: (h @ p.w[:d]).tanh() @ p.w[d:], w=weights(2 * d, d)),
    "einsum": lambda d: Part(
        lambda p, h: torch.einsum("ntd,nte,def->ntf", h, h, p.w).tanh(), w=weights(d, d, d)
    ),
    "convolution": lambda d: Part(
        lambda p, h: p.c(h.transpose(1, 2)).transpose(1, 2), c=nn.Conv1d(d, d, 3, padding=1).double()
    ),
    "deconvolution": lambda d: Part(
        lambda p, h: p.c(h.transpose(1, 2)).transpose(1, 2), c=nn.ConvTranspose1d(d, d, 3, padding=1).double()
    ),
    "gru": lambda d: Part(lambda p, h: p.r(h)[0], r=nn.GRU(d, d, batch_first=True).double()),
    "attention": lambda d: Part(attended, mixed=linear(d, 3 * d)),
    "heads": lambda d: Part(
        lambda p, h: h + p.a(h, h, h)[0], a=nn.MultiheadAttention(d, 1, batch_first=True).double()
    ),
    "prototypes": lambda d: Part(lambda p, h: torch.cdist(h, p.w), w=weights(d, d)),
    "spectral": lambda d: Part(spectral, filter=nn.Parameter(torch.randn(d, dtype=torch.complex128))),
    "positions": lambda d: Part(lambda p, h: h + p.w[: h.shape[1]], w=weights(8, d)),
    "softmax_over_time": lambda d: Part(lambda p, h: p.a(h).softmax(1) * h, a=linear(d)),
    "product": lambda d: Part(scattered, linear=linear(d), how="prod"),
    "largest": lambda d: Part(scattered, linear=linear(d), how="amax"),
    "strided": lambda d: Part(strided, linear=linear(d)),
    "unpooled": lambda d: Part(unpooled, linear=linear(d)),
    "in_place": lambda d: Part(in_place, linear=linear(d), gain=weights(d)),
    "table": table,
    "padded": lambda d: table(d, padding_idx=0),
    "padded_and_tied": lambda d: Part(
        lambda p, h: looked_up(p, h) @ p.table.weight, table=nn.Embedding(d, d, padding_idx=0).double()
    ),
    "sparse": sparse,
    "bag": lambda d: Part(bagged, table=nn.EmbeddingBag(d, d, mode="sum").double()),
    "bag_largest": lambda d: Part(bagged, table=nn.EmbeddingBag(d, d, mode="max").double()),
    "renormalised": lambda d: table(d, max_norm=0.5),
    "routed": lambda d: Part(routed, left=linear(d), right=linear(d)),
    "experts": lambda d: Part(experts, matrices=weights(d, d, d)),
    "cut": lambda d: Part(without_gradient, cut=linear(d), kept=linear(d)),
    "detached": lambda d: Part(lambda p, h: p.a(h) * p.b(h).detach(), a=linear(d), b=linear(d)),
    "twice": lambda d: Part(lambda p, h: Custom.apply(p.a(h).tanh(), 2.0), a=linear(d)),
    "reversed": lambda d: Part(lambda p, h: Custom.apply(p.a(h).tanh(), -2.0), a=linear(d)),
    "forgetful": lambda d: Part(lambda p, h: Forgetful.apply(p.a(h).tanh(), 2.0), a=linear(d)),
    "straight": lambda d: Part(lambda p, h: p.b(Signed.apply(p.a(h))), a=linear(d), b=linear(d)),
    "rounded": lambda d: Part(lambda p, h: h + (p.a(h).round() - p.a(h)).detach() + p.a(h), a=linear(d)),
    "once": lambda d: Part(lambda p, h: ClosedOver.apply(h, p.w), w=weights(d, d)),
    "hooked": lambda d: Part(lambda p, h: hooked(p.a(h), lambda g: g * 0.5), a=linear(d)),
    "masked_parameter": with_masked_weight,
    "hooked_module": lambda d: nn.Sequential(backward_hook(linear(d), 0.5), nn.Tanh()),
    "checkpointed": lambda d: Part(lambda p, h: checkpoint(p.a, h, use_reentrant=False).tanh(), a=linear(d)),
    "force": lambda d: Part(forced, first=linear(d), second=weights(d)),
    "streams": lambda d: Part(streams, linear=linear(d)),
    "counted": lambda d: Part(counted, linear=linear(d), calls=torch.zeros((), dtype=DOUBLE)),
    "frozen": lambda d: nn.Sequential(linear(d).requires_grad_(requires_grad=False), nn.Tanh()),
    "normed_weight": lambda d: nn.utils.parametrizations.weight_norm(linear(d)),
    "vectorised": lambda d: Part(lambda p, h: torch.func.vmap(lambda x: x @ p.w)(h), w=weights(d, d)),
    "scripted": lambda d: torch.jit.script(nn.Sequential(linear(d), nn.Tanh())),
}

# Where samples see one another, or the gradient of a sum is not the sum of gradients.
UNSOUND: dict[str, Callable[[int], nn.Module]] = {
    "centred": lambda d: Part(lambda p, h: p.a(h - h.mean(0)), a=linear(d)),
    "normalised_batch": lambda d: Part(
        lambda p, h: p.n(h.transpose(1, 2)).transpose(1, 2), n=nn.BatchNorm1d(d).double()
    ),
    "attended_batch": lambda d: Part(
        lambda p, h: attended(p, h.transpose(0, 1)).transpose(0, 1), mixed=linear(d, 3 * d)
    ),
    "summed_before": lambda d: Part(lambda p, h: p.a(h.cumsum(0)), a=linear(d)),
    "next_sample": lambda d: Part(lambda p, h: h + p.a(h.roll(1, 0)), a=linear(d)),
    "by_frequency": lambda d: table(d, scale_grad_by_freq=True),
    "centred_gradient": lambda d: Part(lambda p, h: hooked(p.a(h), lambda g: g - g.mean(0)), a=linear(d)),
    "clipped_gradient": lambda d: Part(
        lambda p, h: hooked(p.a(h), lambda g: g.clamp(-0.02, 0.02)), a=linear(d)
    ),
}
