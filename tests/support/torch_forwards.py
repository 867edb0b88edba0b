"""What parts of random torch programs compute from hidden values `(n, t, d)`, where it takes some lines."""

import functools
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(torch.matmul(x, w))


with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".*torch.jit.script.*")  # deprecated, and still met
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
        out = out.index_add(0, index, part.use(rows[index], part.w[expert]))
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


def top_two(part: Any, hidden: Tensor) -> Tensor:
    """Apply the two best of three experts, each to the rows that chose it."""
    rows = hidden.flatten(0, 1)
    gates, chosen = (rows @ part.w_gate).softmax(1).topk(2)
    out = torch.zeros_like(rows)
    for expert in range(3):
        row, place = torch.where(chosen == expert)
        up = functional.silu(functional.linear(rows[row], part.w_up[expert]))
        out = out.index_add(0, row, functional.linear(up, part.w_down[expert]) * gates[row, place, None])
    return out.reshape(hidden.shape)


def grouped(part: Any, hidden: Tensor) -> Tensor:
    """Sort rows by their expert and multiply each group at once."""
    rows = hidden.flatten(0, 1)
    chosen = (rows @ part.w_gate).argmax(1)
    order, sizes = chosen.argsort(), torch.bincount(chosen, minlength=2)
    parts = rows[order].split(sizes.tolist())
    out = torch.cat([one @ part.w[expert] for expert, one in enumerate(parts)])
    return torch.empty_like(out).index_copy(0, order, out).reshape(hidden.shape)


def standardised(part: Any, hidden: Tensor) -> Tensor:
    """Convolve with kernels brought to mean zero and variance one, by the statistics of a weight."""
    flat = functional.batch_norm(part.w.reshape(1, len(part.w), -1), None, None, training=True)
    return functional.conv1d(hidden.transpose(1, 2), flat.reshape_as(part.w), padding=1).transpose(1, 2)


def everywhere(part: Any, hidden: Tensor) -> Tensor:
    """Read a matrix as a table, multiply by it and by what it is doubled."""
    read = part.w[hidden.detach().argsort(-1)].sum(-2)
    return (hidden + read) @ part.w.T + functional.linear(read, part.w * 2)


def unreached(part: Any, hidden: Tensor) -> Tensor:
    """Run layers that reach no loss."""
    part.idle(hidden.flatten(0, 1)[:, None])
    part.table(hidden.detach().argsort(-1))
    return part.linear(hidden)


def with_matrix(part: Any) -> Tensor:
    matrix = part.base.weight.clone()
    matrix += part.matrix
    return matrix


def with_row(part: Any) -> Tensor:
    matrix = part.base.weight.clone()
    matrix[0] += part.row
    return matrix


def through_a_view(part: Any) -> Tensor:
    matrix = part.base.weight.clone()
    matrix.view(-1)[1 : 1 + len(part.row)].add_(part.row)
    return matrix


def with_sparse(part: Any) -> Tensor:
    place, matrix = torch.arange(len(part.row)), part.base.weight.clone()
    matrix += torch.sparse_coo_tensor(torch.stack([place, place.flip(0)]), 2.0 * part.row, matrix.shape)
    return matrix


def largest_so_far(part: Any, hidden: Tensor) -> Tensor:
    """Write a gain between a pass and its gradient, which is no error of torch's."""
    values = part.a(hidden)
    with torch.no_grad():
        part.gain.copy_(torch.maximum(part.gain, values.amax((0, 1))))
    return values * part.gain


def rewritten(part: Any, hidden: Tensor) -> Tensor:
    """Scale by a frozen gain, which a function writes without switching gradients off."""
    values = torch.relu(part.a(hidden))
    part.write(part.gain)
    return values * part.gain


def saved(part: Any, hidden: Tensor) -> Tensor:
    """Compute a layer again in the backward pass, but for what a policy saves."""
    contexts = functools.partial(create_selective_checkpoint_contexts, part.policy)
    return checkpoint(lambda x: part.a(x).tanh(), hidden.tanh(), use_reentrant=False, context_fn=contexts)


def products_saved(_: Any, function: Any, *args: Any, **options: Any) -> CheckpointPolicy:
    product = function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if product else CheckpointPolicy.PREFER_RECOMPUTE


def ragged(part: Any, hidden: Tensor) -> Tensor:
    """Run samples of several lengths as one nested tensor."""
    lengths = (1 + (hidden.detach()[:, 1:, 0] > 0).sum(1)).tolist()
    rows = [one[:length] for one, length in zip(hidden, lengths, strict=True)]
    values = torch.tanh(part.a(torch.nested.as_nested_tensor(rows, layout=torch.jagged)))
    return hidden + torch.nested.to_padded_tensor(values, 0.0).sum(1, keepdim=True)
