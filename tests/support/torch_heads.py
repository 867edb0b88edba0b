"""Heads of random torch programs: what turns hidden values `(n, t, d)` into three numbers a sample.

Each but a readout has one matrix or vector `w`, which is its last layer; whatever else it trains is no layer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.support.torch_forwards import hooked
from tests.support.torch_functions import Product
from tests.support.torch_modules import Part
from tests.support.torch_parts import backward_hook, linear, weights

CLASSES = 3
Head = Callable[[int, int], nn.Module]


def head(function: Callable[[Any, Tensor], Tensor], *shape: int, **own: int | tuple[int, ...]) -> Head:
    """Return what makes a head of a function of `(n, t, d)`, a `w` of this shape, and others by name.

    In the shape, 0 stands for the width and -1 for the times.
    """

    def made(t: int, d: int) -> nn.Module:
        w = weights(*({0: d, -1: t}.get(size, size) for size in shape))
        others = {name: (size,) if isinstance(size, int) else size for name, size in own.items()}
        return Part(function, w=w, **{name: weights(*size) for name, size in others.items()})

    return made


def of_mean(function: Callable[[Any, Tensor], Tensor], *shape: int, **own: int | tuple[int, ...]) -> Head:
    """Return what makes a head of a function of the mean over positions, `(n, d)`."""
    return head(lambda p, h: function(p, h.mean(1)), *shape, **own)


def number(function: Callable[[Any, Tensor], Tensor]) -> Head:
    """Return what makes a head of a vector and of a function that gives one number a sample, `(n,)`."""
    return of_mean(lambda p, h: spread(function(p, h)), 0)


def behind(function: Callable[[Any, Tensor], Tensor], *shape: int) -> Head:
    """Return what makes a head of a layer, and of a function of its outputs that reads a parameter `v`."""
    return of_mean(lambda p, h: function(p, functional.linear(h, p.w)), 3, 0, v=shape)


def spread(values: Tensor) -> Tensor:
    """Return one logit a class of one number a sample `(n,)`."""
    return values[:, None] * torch.arange(1.0 * CLASSES)


def scaled_in_place(hidden: Tensor, vector: Tensor) -> Tensor:
    hidden[:, 1:].mul_(vector[1:])
    return hidden


def twice(function: Callable[[Tensor], Tensor], hidden: Tensor) -> Tensor:
    return (function(hidden).tanh() + function(hidden.sin())).mean(0)


def convolved(maps: Tensor, kernel: Tensor, **options: int) -> Tensor:
    """Average the maps that a convolution makes of each sample's `(channels, length)`."""
    return functional.conv2d(maps[..., None], kernel, **options).tanh().mean((2, 3))


def module_hooked(t: int, d: int) -> nn.Module:
    """Read by a module with hooks that scale gradients of outputs and inputs, and look at a weight's."""
    layer = backward_hook(linear(d, CLASSES), 0.5)
    layer.weight.register_hook(lambda gradient: None)
    layer.register_full_backward_pre_hook(lambda _, gradients: tuple(one * 3 for one in gradients))
    return Part(lambda p, h: p.layer(h.mean(1)), layer=layer)


READOUTS: dict[str, Head] = {
    "mean": lambda t, d: Part(lambda p, h: p.layer(h.mean(1)), layer=linear(d, CLASSES)),
    "last": lambda t, d: Part(lambda p, h: p.layer(h[:, -1]), layer=linear(d, CLASSES)),
    "flat": lambda t, d: Part(lambda p, h: p.layer(h.flatten(1)), layer=linear(d * t, CLASSES)),
}
READ: dict[str, Head] = {
    "functional": of_mean(lambda p, h: functional.linear(h, p.w), 3, 0),
    "product": head(lambda p, h: h[:, 0] @ p.w, 0, 3),
    "einsum": of_mean(lambda p, h: torch.einsum("nd,dk->nk", h, p.w), 0, 3),
    "einsum_by_ellipsis": of_mean(lambda p, h: torch.einsum("kd,...d->...k", p.w, h), 3, 0),
    "einsum_with_a_vector": number(lambda p, h: torch.einsum("nd,d->n", h, p.w)),
    "tensordot": of_mean(lambda p, h: torch.tensordot(h, p.w, 1), 0, 3),
    "tensordot_by_axes": of_mean(lambda p, h: torch.tensordot(h, p.w, ([1], [0])), 0, 3),
    "tensordot_over_two_axes": head(lambda p, h: torch.tensordot(h, p.w, ([1, 2], [0, 1])), -1, 0, 3),
    "tensordot_with_a_vector": number(lambda p, h: torch.tensordot(h, p.w, 1)),
    "inner": of_mean(lambda p, h: torch.inner(h, p.w), 3, 0),
    "inner_with_a_vector": number(lambda p, h: torch.inner(h, p.w)),
    "vector": number(lambda p, h: torch.mv(h, p.w)),
    "times_a_vector": number(lambda p, h: h @ p.w),
    "vector_on_the_left": number(lambda p, h: p.w @ h.T),
    "view": of_mean(lambda p, h: functional.linear(h, p.w.view(CLASSES, -1)), 3, 0, 1),
    "stacked": of_mean(
        lambda p, h: torch.vmap(lambda w: functional.linear(h, w))(p.w).tanh().mean(0), 5, CLASSES, 0
    ),
    "in_chunks": head(
        lambda p, h: sum(
            checkpoint(functional.linear, one.mean(1), p.w, use_reentrant=False) for one in h.chunk(2, 1)
        ),
        3,
        0,
    ),
    "module_hooked": module_hooked,
    "masked_outputs": of_mean(
        lambda p, h: hooked(functional.linear(h, p.w), lambda g: g * torch.arange(3.0)), 3, 0
    ),
    "dots": number(lambda p, h: torch.vmap(lambda one: torch.dot(one, p.w))(h)),
    "matrix_a_position": head(lambda p, h: torch.einsum("ntd,tdc->ntc", h, p.w).tanh().mean(1), -1, 0, 3),
    "matrices_as_rows": head(lambda p, h: torch.bmm(h.transpose(0, 1), p.w.mT).tanh().mean(0), -1, 3, 0),
    "matrices_twice": head(lambda p, h: twice(lambda one: torch.bmm(one, p.w), h.transpose(0, 1)), -1, 0, 3),
    "copies_of_one": head(
        lambda p, h: torch.bmm(h.transpose(0, 1), p.w.expand(h.shape[1], -1, -1)).tanh().mean(0), 0, 3
    ),
    "maps_side_by_side": head(
        lambda p, h: convolved(h.reshape(-1, 2, h.shape[2]), p.w).unflatten(0, (len(h), -1)).sum(1),
        3,
        2,
        3,
        1,
    ),
    "groups_of_maps_twice": head(
        lambda p, h: sum(convolved(one, p.w, groups=2)[:, 1:] for one in (h, h.sin())), 4, 2, 3, 1
    ),
}
UNREAD: dict[str, tuple[Head, str]] = {
    "summed_product": (number(lambda p, h: (h * p.w).sum(-1)), "mul"),
    "summed_by_a_function": (number(lambda p, h: torch.sum(p.w * h, dim=1)), "mul"),
    "summed_and_kept": (number(lambda p, h: h.mul(p.w).sum(-1, keepdim=True)[:, 0]), "mul"),
    "mean_product": (number(lambda p, h: (h * p.w).mean(-1)), "mul"),
    "mean_of_products": (of_mean(lambda p, h: (h[:, None] * p.w).mean(2), 3, 0), "mul"),
    "sum_of_products": (of_mean(lambda p, h: (h[:, None] * p.w).sum(2), 3, 0), "mul"),
    "sum_of_columns": (of_mean(lambda p, h: (h[:, :, None] * p.w).sum(1), 0, 3), "mul"),
    "sum_over_positions": (head(lambda p, h: (h[..., None] * p.w).sum((1, 2)), 0, 3), "mul"),
    "sum_over_positions_and_kept": (
        head(lambda p, h: (h[..., None] * p.w).sum((1, 2), keepdim=True)[:, 0, 0], 0, 3),
        "mul",
    ),
    "prototypes": (of_mean(lambda p, h: -torch.cdist(h, p.w), 3, 0), "cdist"),
    "hidden": (head(lambda p, h: Product.apply(h, p.w).mean(1), 0, 3), "ruled"),
    "product_of_a_fixed_matrix": (
        of_mean(lambda p, h: (h * p.w) @ torch.arange(3.0 * len(p.w), dtype=h.dtype).reshape(-1, 3).cos(), 0),
        "mul",
    ),
    "cumulated": (number(lambda p, h: (h * p.w).cumsum(1)[:, -1]), "mul"),
    "pooled_product": (
        number(lambda p, h: functional.avg_pool1d((h * p.w)[:, None], len(p.w)).flatten()),
        "mul",
    ),
    "reshaped": (number(lambda p, h: (h * p.w).reshape(len(h), 1, -1).sum((1, 2))), "mul"),
    "loop_over_features": (number(lambda p, h: sum(h[:, i] * p.w[i] for i in range(len(p.w)))), "mul"),
    "multiplied_in_place": (number(lambda p, h: h.clone().mul_(p.w).sum(-1)), "mul|copy_slices"),
    "part_in_place": (number(lambda p, h: scaled_in_place(h.clone(), p.w).sum(-1)), "mul|copy_slices"),
    "divided": (number(lambda p, h: (h / p.w).sum(-1)), "div"),
    "addcmul": (number(lambda p, h: torch.addcmul(h, h, p.w).sum(-1)), "addcmul"),
    "lerp": (number(lambda p, h: torch.lerp(h, 2 * h, p.w).sum(-1)), "lerp"),
    "expanded_vector": (number(lambda p, h: (h * p.w.expand_as(h)).sum(-1)), "mul"),
    "rows_of_a_table": (
        of_mean(lambda p, h: spread((h * functional.embedding(h.detach().argmax(-1), p.w)).sum(-1)), 0, 0),
        "embedding",
    ),
    "differences": (head(lambda p, h: -(h[:, :1] - p.w).square().sum(2), 3, 0), "sub"),
    "differences_one_by_one": (
        of_mean(lambda p, h: -torch.stack([((h - one) ** 2).sum(-1) for one in p.w], 1), 3, 0),
        "sub",
    ),
    "cosines": (
        of_mean(lambda p, h: functional.cosine_similarity(h[:, None], p.w, dim=-1), 3, 0),
        "mul|linalg_vector_norm",
    ),
    "gain_and_norm": (behind(lambda p, o: functional.normalize(o * p.v), 3), "mul"),
    "mean_of_maps": (
        head(lambda p, h: (functional.conv1d(h.transpose(1, 2), p.w) * p.v[:, None]).mean(2), 3, 0, 1, v=3),
        "mul",
    ),
    "row_of_offsets": (
        of_mean(lambda p, h: functional.linear(h + p.v[0, 0], p.w) + p.v[1], 3, 0, v=(2, CLASSES)),
        "add",
    ),
}
"""Heads that may be layers, which LAI and LLI do not read, and what uses them by the refusal's words."""
BEHIND: dict[str, Head] = {
    "gain": behind(lambda p, o: o * p.v, 3),
    "gained": of_mean(
        lambda p, h: functional.linear(h, p.w) * p.gain + p.offset, 3, 0, gain=CLASSES, offset=CLASSES
    ),
    "gain_and_softmax": behind(lambda p, o: torch.log_softmax(o * p.v, -1), 3),
    "absolute_errors": behind(lambda p, o: -(o * p.v - 1).abs(), 3),
    "offset_a_sample": of_mean(
        lambda p, h: functional.linear(h, p.w) + p.v[h.detach().argmax(-1)], 3, 0, v=(6, CLASSES)
    ),
    "tempered": behind(lambda p, o: o * p.v.exp()),
    "offset": behind(lambda p, o: o + p.v, 3),
    "half_of_an_offset": behind(lambda p, o: o + p.v[3:], 6),
    "sum_of_offsets": behind(lambda p, o: o + p.v.sum(), 3),
    "thresholds": behind(lambda p, o: spread(o[:, 0]) + p.v, 3),
    "normed": behind(lambda p, o: functional.layer_norm(o, (CLASSES,), p.v), 3),
    "maps": head(lambda p, h: functional.conv1d(h.transpose(1, 2), p.w).mean(2), 3, 0, 1),
    "offset_maps": head(lambda p, h: (functional.conv1d(h.mT, p.w) + p.v[:, None]).mean(2), 3, 0, 1, v=3),
    "normed_maps": head(
        lambda p, h: functional.layer_norm(functional.conv1d(h.mT, p.w).mT, (3,), p.v).mean(1), 3, 0, 1, v=3
    ),
}
"""Heads with temperatures, norms and offsets behind the last layer, which are no layers."""
MATRICES = (
    *("matrix_a_position", "matrices_as_rows", "matrices_twice", "copies_of_one"),
    *("maps_side_by_side", "groups_of_maps_twice"),
)
"""Heads that are read whose matrix is several matrices, or several rows' of a sample."""
HEADS = READOUTS | READ | {name: made for name, (made, _) in UNREAD.items()} | BEHIND
