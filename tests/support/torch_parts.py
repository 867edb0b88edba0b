"""Parts of which random torch programs are made: each maps `(n, t, d)` to `(n, t, d)`.

Layers are the least of it: parameters that are shared, sliced, bound or closed over, gradients that are cut,
reversed, scaled or masked, state that is written in forward, samples that see one another. A parameter
whose name begins with a `w` is a matrix of a product, which a trace must name; no other is.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.support import torch_forwards as forwards
from tests.support.torch_functions import (
    Accumulating,
    Centred,
    ClosedOver,
    Custom,
    Forgetful,
    Product,
    Reversible,
    Signed,
)
from tests.support.torch_modules import Part

DOUBLE = torch.float64


def weights(*shape: int, dtype: torch.dtype = DOUBLE) -> nn.Parameter:
    return nn.Parameter(0.5 * torch.randn(shape, dtype=dtype))


def transposed(module: nn.Module) -> nn.Module:
    """Apply a module of `(n, d, t)`."""
    return Part(lambda p, h: p.inner(h.transpose(1, 2)).transpose(1, 2), inner=module.double())


def recurrent(kind: type[nn.RNNBase], d: int) -> nn.Module:
    cells = kind(d, d, 2, batch_first=True, bidirectional=True).double()
    return Part(lambda p, h: sum(p.cells(h)[0].chunk(2, -1)), cells=cells)


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


def with_masked_weight(d: int) -> nn.Linear:
    layer = linear(d)
    masked(layer.weight)
    return layer


def rows(d: int, **options: Any) -> nn.Embedding:
    """Return a table whose padding row is no zero, as one that was loaded is."""
    made = nn.Embedding(d, d, **options).double()
    nn.init.normal_(made.weight)
    return made


def table(d: int, **options: Any) -> nn.Module:
    return Part(forwards.looked_up, table=rows(d, **options))


def constant_ids(form: Callable[[int, Tensor], Tensor]) -> Callable[[int, int], nn.Module]:
    """Add learned positions, whose ids have no axis of the batch, one of size 1, or one that is expanded."""
    return lambda t, d: Part(
        lambda p, h: h + functional.embedding(form(len(h), torch.arange(t)), p.table), table=weights(t, d)
    )


def written_into(write: Callable[[Any], Tensor]) -> Callable[[int, int], nn.Module]:
    return lambda t, d: Part(
        lambda p, h: functional.linear(h, write(p)), base=linear(d), matrix=weights(d, d), row=weights(d)
    )


def matrix(function: Callable[[Any, Tensor], Tensor]) -> Callable[[int, int], nn.Module]:
    return lambda t, d: Part(function, w=weights(d, d))


def vector(function: Callable[[Any, Tensor], Tensor]) -> Callable[[int, int], nn.Module]:
    return lambda t, d: Part(function, v=weights(d))


def layers(function: Callable[[Any, Tensor], Tensor], *names: str) -> Callable[[int, int], nn.Module]:
    return lambda t, d: Part(function, **{name: linear(d) for name in names})


def routed(use: Callable[[Tensor, Tensor], Tensor]) -> Callable[[int, int], nn.Module]:
    """Send rows to experts, each of which uses its matrix in a way that the rule of experts may not fit."""
    return lambda t, d: Part(forwards.routed_rows, use=use, w_gate=weights(d, 2), w=weights(2, d, d))


def gained(write: Callable[[Tensor], Any]) -> Callable[[int, int], nn.Module]:
    """Scale by a frozen gain that the forward pass writes."""
    return lambda t, d: Part(
        forwards.rewritten,
        a=linear(d),
        write=write,
        gain=nn.Parameter(torch.ones(d, dtype=DOUBLE), requires_grad=False),
    )


# What is a function of one sample at a time, and what is linear in the losses' weights.
SOUND: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": lambda t, d: linear(d),
    "functional": matrix(lambda p, h: functional.linear(h, p.w)),
    "biased": lambda t, d: Part(lambda p, h: functional.linear(h, p.w, p.v), w=weights(d, d), v=weights(d)),
    "matmul": matrix(lambda p, h: h @ p.w),
    "left": lambda t, d: Part(lambda p, h: p.w @ h, w=weights(t, t)),
    "einsum": matrix(lambda p, h: torch.einsum("ntd,de->nte", h, p.w)),
    "batched": matrix(lambda p, h: torch.bmm(h, p.w.expand(len(h), -1, -1))),
    "tensordot": matrix(lambda p, h: torch.tensordot(h, p.w, dims=1)),
    "inner": matrix(lambda p, h: torch.inner(h, p.w)),
    "merged": matrix(lambda p, h: functional.linear(h.reshape(-1, h.shape[-1]), p.w).reshape(h.shape)),
    "time_first": matrix(lambda p, h: functional.linear(h.transpose(0, 1), p.w).transpose(0, 1)),
    "looped": matrix(lambda p, h: torch.stack([functional.linear(one, p.w) for one in h])),
    "halves": matrix(forwards.halves),
    "tanh": lambda t, d: nn.Sequential(linear(d), nn.Tanh()),
    "residual": layers(lambda p, h: h + p.a(functional.gelu(p.b(h))), "a", "b"),
    "layernorm": lambda t, d: nn.LayerNorm(d).double(),
    "rmsnorm": lambda t, d: nn.RMSNorm(d).double(),
    "prelu": lambda t, d: transposed(nn.PReLU(d)),
    "groupnorm": lambda t, d: transposed(nn.GroupNorm(1, d)),
    "batchnorm": lambda t, d: transposed(nn.BatchNorm1d(d).eval()),
    "normalised_alone": lambda t, d: Part(
        lambda p, h: torch.stack([p.norm(one) for one in h]),
        norm=nn.BatchNorm1d(d, track_running_stats=False).double(),
    ),
    "gain": lambda t, d: Part(lambda p, h: h * p.v + p.b, v=weights(d), b=weights(d)),
    "offset": lambda t, d: Part(lambda p, h: h - p.v, v=weights(t, 1)),
    "scalar": lambda t, d: Part(lambda p, h: h * p.v.exp(), v=weights()),
    "expanded": vector(lambda p, h: h + p.v.expand(*h.shape)),
    "where": vector(lambda p, h: torch.where(h > 0, h, p.v)),
    "token": vector(lambda p, h: h + torch.cat([p.v.expand(len(h), 1, -1), h[:, 1:]], 1)),
    "zero_gate": lambda t, d: Part(
        lambda p, h: h + p.v * functional.linear(h, p.w), w=weights(d, d), v=nn.Parameter(0 * weights().data)
    ),
    "shared": layers(lambda p, h: p.a(p.a(h).tanh()), "a"),
    "transposed": matrix(lambda p, h: (h @ p.w).tanh() @ p.w.T),
    "sliced": lambda t, d: Part(lambda p, h: (h @ p.w[:d]).tanh() @ p.w[d:], w=weights(2 * d, d)),
    "scaled": matrix(lambda p, h: functional.linear(h, p.w / p.w.norm(dim=1, keepdim=True))),
    "quadratic": lambda t, d: Part(
        lambda p, h: torch.einsum("ntd,nte,def->ntf", h, h, p.w).tanh(), w=weights(d, d, d)
    ),
    "bilinear": lambda t, d: Part(
        lambda p, h: functional.bilinear(h, h, p.w, p.v), w=weights(d, d, d), v=weights(d)
    ),
    "einsum_of_heads": lambda t, d: Part(
        lambda p, h: torch.einsum("ntd,hde->nthe", h, p.w).mean(2), w=weights(2, d, d)
    ),
    "sorted": matrix(lambda p, h: torch.sort(h, 2).values @ p.w),
    "everywhere": matrix(forwards.everywhere),
    "with_and_without_bias": layers(lambda p, h: functional.linear(p.a(h).tanh(), p.a.weight), "a"),
    "two_biases": lambda t, d: Part(
        lambda p, h: functional.linear(p.a(h).tanh(), p.a.weight, p.v), a=linear(d), v=weights(d)
    ),
    "derived_bias": matrix(
        lambda p, h: torch.addmm(p.w[0], h.reshape(-1, h.shape[-1]), p.w).reshape(h.shape)
    ),
    "with_matrix": written_into(forwards.with_matrix),
    "with_row": written_into(forwards.with_row),
    "through_a_view": written_into(forwards.through_a_view),
    "with_sparse": written_into(forwards.with_sparse),
    "empty": lambda t, d: Part(
        lambda p, h: p.a(torch.cat([h, p.none(h)], -1)), a=linear(d), none=linear(d, 0)
    ),
    "unreached": lambda t, d: Part(
        forwards.unreached, linear=linear(d), idle=nn.Conv1d(1, 2, 2).double(), table=rows(d)
    ),
    "windows": lambda t, d: Part(
        lambda p, h: (p.norm(p.a(h.reshape(-1, 1, d)).tanh()) * p.v).reshape(h.shape),
        a=linear(d),
        norm=nn.LayerNorm(d).double(),
        v=weights(d),
    ),
    "encoder_time_first": lambda t, d: Part(
        lambda p, h: p.encoder(h.transpose(0, 1)).transpose(0, 1),
        encoder=nn.TransformerEncoderLayer(d, 1, d, 0.0).double(),
    ),
    "convolution": lambda t, d: transposed(nn.Conv1d(d, d, 3, padding=1)),
    "depthwise": lambda t, d: transposed(nn.Conv1d(d, d, 3, padding=1, groups=d)),
    "mixed_positions": lambda t, d: nn.Conv1d(t, t, 1).double(),
    "unpadded": lambda t, d: Part(
        lambda p, h: p.inner(functional.pad(h, (1, 1, 1, 1))[:, None])[:, 0],
        inner=nn.Conv2d(1, 1, 3, padding="valid").double(),
    ),
    "deconvolution": lambda t, d: transposed(nn.ConvTranspose1d(d, d, 3, padding=1)),
    "folded": matrix(forwards.folded),
    "standardised": lambda t, d: Part(forwards.standardised, w=weights(d, d, 3)),
    "gru": lambda t, d: recurrent(nn.GRU, d),
    "lstm": lambda t, d: recurrent(nn.LSTM, d),
    "rnn": lambda t, d: recurrent(nn.RNN, d),
    "attention": lambda t, d: Part(forwards.attended, mixed=linear(d, 3 * d)),
    "heads": lambda t, d: Part(
        lambda p, h: h + p.a(h, h, h)[0], a=nn.MultiheadAttention(d, 1, batch_first=True).double()
    ),
    "cross_attention": lambda t, d: Part(
        lambda p, h: h + p.a(h, h[..., :2], h[..., :2])[0],
        a=nn.MultiheadAttention(d, 1, kdim=2, vdim=2, add_bias_kv=True, batch_first=True).double(),
    ),
    "by_distance": lambda t, d: Part(forwards.by_distance, table=weights(2 * t - 1)),
    "prototypes": matrix(lambda p, h: torch.cdist(h, p.w)),
    "spectrum": matrix(lambda p, h: torch.fft.ifft(torch.fft.fft(h) @ torch.fft.fft(p.w)).real),
    "spectral": lambda t, d: Part(forwards.spectral, filter=weights(d, dtype=torch.complex128)),
    "complex": lambda t, d: Part(
        lambda p, h: (h.to(p.w.dtype) @ p.w).real, w=weights(d, d, dtype=torch.complex128)
    ),
    "positions": lambda t, d: Part(lambda p, h: h + p.v[: h.shape[1]], v=weights(8, d)),
    "softmax_over_time": layers(lambda p, h: p.a(h).softmax(1) * h, "a"),
    "product": lambda t, d: Part(forwards.scattered, linear=linear(d), how="prod"),
    "largest": lambda t, d: Part(forwards.scattered, linear=linear(d), how="amax"),
    "strided": layers(forwards.strided, "linear"),
    "unpooled": layers(forwards.unpooled, "linear"),
    "residual_in_place": layers(lambda p, h: functional.relu(p.a(h).add_(h), inplace=True), "a"),
    "in_place": lambda t, d: Part(forwards.in_place, linear=linear(d), gain=weights(d)),
    "written": vector(forwards.written),
    "table": lambda t, d: table(d),
    "padded": lambda t, d: table(d, padding_idx=0),
    "padded_and_tied": lambda t, d: Part(
        lambda p, h: forwards.looked_up(p, h) @ p.table.weight, table=rows(d, padding_idx=0)
    ),
    "padded_and_summed": lambda t, d: Part(
        lambda p, h: forwards.looked_up(p, h) + p.table.weight[1] + p.table.weight.sum(),
        table=rows(d, padding_idx=0),
    ),
    "padded_last": lambda t, d: table(d, padding_idx=-1),
    "sparse": lambda t, d: table(d, sparse=True),
    "constant_ids": constant_ids(lambda n, steps: steps),
    "constant_ids_row": constant_ids(lambda n, steps: steps[None]),
    "constant_ids_expanded": constant_ids(lambda n, steps: steps.expand(n, -1)),
    "bag": lambda t, d: Part(forwards.bagged, table=nn.EmbeddingBag(d, d, mode="sum").double()),
    "bag_largest": lambda t, d: Part(forwards.bagged, table=nn.EmbeddingBag(d, d, mode="max").double()),
    "bag_of_a_sample": lambda t, d: Part(
        lambda p, h: h + p.table(h.detach().argsort(-1).flatten(1))[:, None],
        table=nn.EmbeddingBag(d, d, mode="sum").double(),
    ),
    "bag_sparse": lambda t, d: Part(
        forwards.bagged, table=nn.EmbeddingBag(d, d, mode="sum", sparse=True).double()
    ),
    "renormalised": lambda t, d: table(d, max_norm=0.5),
    "hardly_renormalised": lambda t, d: table(d, max_norm=9.0),
    "routed": layers(forwards.routed, "left", "right"),
    "routed_rows": routed(functional.linear),
    "routed_and_turned": routed(lambda rows, matrix: functional.linear(rows.flip(0), matrix).flip(0)),
    "routed_and_scaled": routed(lambda rows, matrix: functional.linear(rows, 2 * matrix)),
    "routed_twice": routed(lambda rows, matrix: functional.linear((rows @ matrix).tanh(), matrix)),
    "routed_and_summed": routed(lambda rows, matrix: functional.linear(rows, matrix) + matrix.sum()),
    "grouped": lambda t, d: Part(forwards.grouped, w_gate=weights(d, 2), w=weights(2, d, d)),
    "top_two": lambda t, d: Part(
        forwards.top_two, w_gate=weights(d, 3), w_up=weights(3, d + 1, d), w_down=weights(3, d, d + 1)
    ),
    "experts": lambda t, d: Part(forwards.experts, w=weights(d, d, d)),
    "matrix_of_a_sample": lambda t, d: Part(
        lambda p, h: torch.bmm(h, p.w[(h.detach()[:, 0, 0] > 0).long()]), w=weights(2, d, d)
    ),
    "ensemble": lambda t, d: Part(lambda p, h: torch.vmap(lambda w: h @ w)(p.w).mean(0), w=weights(2, d, d)),
    "side_by_side": layers(lambda p, h: p.a(h) * p.a(h.flip(1)).tanh(), "a"),
    "cut": layers(forwards.without_gradient, "cut", "kept"),
    "idle": matrix(forwards.idle),
    "detached": layers(lambda p, h: p.a(h) * p.b(h).detach(), "a", "b"),
    "twice": layers(lambda p, h: Custom.apply(p.a(h).tanh(), 2.0), "a"),
    "reversed": layers(lambda p, h: Custom.apply(p.a(h).tanh(), -2.0), "a"),
    "forgetful": layers(lambda p, h: Forgetful.apply(p.a(h).tanh(), 2.0), "a"),
    "straight": layers(lambda p, h: p.b(Signed.apply(p.a(h))), "a", "b"),
    "rounded": layers(lambda p, h: h + (p.a(h).round() - p.a(h)).detach() + p.a(h), "a"),
    "hidden": matrix(lambda p, h: Product.apply(h, p.w)),
    "once": matrix(lambda p, h: ClosedOver.apply(h, p.w)),
    "hooked": layers(lambda p, h: forwards.hooked(p.a(h), lambda g: g * 0.5), "a"),
    "masked_parameter": lambda t, d: with_masked_weight(d),
    "hooked_module": lambda t, d: nn.Sequential(backward_hook(linear(d), 0.5), nn.Tanh()),
    "checkpointed": layers(
        lambda p, h: checkpoint(lambda x: p.a(x.tanh()), h, use_reentrant=False).tanh(), "a"
    ),
    "checkpointed_and_made": matrix(
        lambda p, h: checkpoint(lambda x: (x @ (p.w * 2)).relu(), h, use_reentrant=False)
    ),
    "checkpointed_inputs": matrix(
        lambda p, h: checkpoint(lambda x: (x @ p.w).relu(), h.detach(), use_reentrant=False) + h
    ),
    "checkpointed_in_chunks": layers(
        lambda p, h: torch.cat([checkpoint(p.a, one, use_reentrant=False) for one in h.chunk(2, 1)], 1), "a"
    ),
    "products_saved": lambda t, d: Part(forwards.saved, a=linear(d), policy=forwards.products_saved),
    "list_saved": lambda t, d: Part(forwards.saved, a=linear(d), policy=[torch.ops.aten.tanh.default]),
    "partly_set_gain": gained(lambda gain: gain[:1].fill_(0.5)),
    "clamped_gain": gained(lambda gain: gain.clamp_(max=4.0)),  # which changes nothing at first
    "ragged": layers(forwards.ragged, "a"),
    "force": lambda t, d: Part(forwards.forced, first=linear(d), second=weights(d)),
    "streams": layers(forwards.streams, "linear"),
    "counted": lambda t, d: Part(forwards.counted, linear=linear(d), calls=torch.zeros((), dtype=DOUBLE)),
    "frozen": lambda t, d: nn.Sequential(linear(d).requires_grad_(requires_grad=False), nn.Tanh()),
    "normed_weight": lambda t, d: nn.utils.parametrizations.weight_norm(linear(d)),
    "normed_convolution": lambda t, d: transposed(
        nn.utils.parametrizations.weight_norm(nn.Conv1d(d, d, 3, padding=1))
    ),
    "vectorised": matrix(lambda p, h: torch.func.vmap(lambda x: x @ p.w)(h)),
    "scripted": lambda t, d: torch.jit.script(nn.Sequential(linear(d), nn.Tanh())),
    "scripted_function": matrix(lambda p, h: forwards.scripted(h, p.w)),
}

# Where samples see one another, the gradient of a sum is not the sum of gradients, or backward writes it.
UNSOUND: dict[str, Callable[[int, int], nn.Module]] = {
    "centred": layers(lambda p, h: p.a(h - h.mean(0)), "a"),
    "centred_without_gradient": layers(lambda p, h: p.a(h - h.mean(0).detach()), "a"),
    "normalised_batch": lambda t, d: transposed(nn.BatchNorm1d(d)),
    "normalised_always": lambda t, d: transposed(nn.BatchNorm1d(d, track_running_stats=False).eval()),
    "attended_batch": lambda t, d: Part(
        lambda p, h: forwards.attended(p, h.transpose(0, 1)).transpose(0, 1), mixed=linear(d, 3 * d)
    ),
    "summed_before": layers(lambda p, h: p.a(h.cumsum(0)), "a"),
    "next_sample": layers(lambda p, h: h + p.a(h.roll(1, 0)), "a"),
    "largest_so_far": lambda t, d: Part(
        forwards.largest_so_far,
        a=linear(d),
        gain=nn.Parameter(torch.zeros(d, dtype=DOUBLE), requires_grad=False),
    ),
    "by_frequency": lambda t, d: table(d, scale_grad_by_freq=True),
    "centred_by_a_function": layers(lambda p, h: Centred.apply(p.a(h)), "a"),
    "writing_gradients": layers(lambda p, h: Reversible.apply(p.a(h), p.b), "a", "b"),
    "writing_of_a_leaf": layers(
        lambda p, h: Reversible.apply(h.detach() + torch.zeros((), dtype=DOUBLE, requires_grad=True), p.a),
        "a",
    ),
    "writing_in_a_checkpoint": layers(
        lambda p, h: checkpoint(lambda x: Reversible.apply(x, p.a), h * p.b.weight[0], use_reentrant=False),
        "a",
        "b",
    ),
    "adding_gradients": layers(lambda p, h: Accumulating.apply(p.b(h), p.a, *p.a.parameters()), "a", "b"),
    "centred_gradient": layers(lambda p, h: forwards.hooked(p.a(h), lambda g: g - g.mean(0)), "a"),
    "clipped_gradient": layers(lambda p, h: forwards.hooked(p.a(h), lambda g: g.clamp(-0.02, 0.02)), "a"),
}
