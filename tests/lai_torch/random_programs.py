"""Random torch programs nobody wrote by hand, and torch's own answer for each: one backward pass a sample.

A program maps hidden states `(n, t, d)` through random parts to a random head. A part says which of its
parameters are matrices of a product, so that a trace can be held to name every one of them.
"""

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Part:
    """Parameters by name for `t` positions of width `d`; what they do to `(n, t, d)`; the products' names."""

    make: Callable[[int, int], Parameters]
    apply: Callable[[Any, Tensor], Tensor]
    products: tuple[str, ...] = ()


def matrix(t: int, d: int) -> Parameters:
    return {"w": torch.randn(d, d) / d**0.5}


def vector(t: int, d: int) -> Parameters:
    return {"v": torch.randn(d)}


class Squared(torch.autograd.Function):
    """A product inside a function that no mode sees into."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return torch.einsum("ntd,de->nte", x, w)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return torch.einsum("nte,de->ntd", gradients[0], w), torch.einsum("ntd,nte->de", x, gradients[0])


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(torch.matmul(x, w))


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # deprecated, and still met
    scripted = torch.jit.script(product)


def routed(p: Any, h: Tensor) -> Tensor:
    """Top-1 experts on the rows that the values choose."""
    rows = h.reshape(-1, h.shape[-1])
    chosen = (rows @ p.gate).argmax(1)
    out = torch.zeros_like(rows)
    for expert in range(p.w.shape[0]):
        (index,) = torch.where(chosen == expert)
        out = out.index_add(0, index, functional.linear(rows[index], p.w[expert]))
    return h + out.reshape(h.shape)


def indexed(p: Any, h: Tensor) -> Tensor:
    """Each sample's own choice of a matrix, gathered."""
    chosen = (h.detach().sum((1, 2)) > 0).long()
    return torch.bmm(h, p.w[chosen])


def looped(p: Any, h: Tensor) -> Tensor:
    return torch.stack([functional.linear(one, p.w) for one in h])


def merged(p: Any, h: Tensor) -> Tensor:
    return functional.linear(h.reshape(-1, h.shape[-1]), p.w).reshape(h.shape)


def time_first(p: Any, h: Tensor) -> Tensor:
    return functional.linear(h.transpose(0, 1), p.w).transpose(0, 1)


def halves(p: Any, h: Tensor) -> Tensor:
    """Apply the matrix to the first half of the batch, and to the rest: chunks of two sizes."""
    cut = (len(h) + 1) // 2
    return torch.cat([h[:cut] @ p.w, h[cut:] @ p.w])


def slope(p: Any, h: Tensor) -> Tensor:
    """Take a gradient inside the forward pass: of an energy, as force models do."""
    x = h if h.requires_grad else h.detach().requires_grad_()
    energy = torch.tanh(functional.linear(x, p.w)).square().sum()
    return h + torch.autograd.grad(energy, x, create_graph=True)[0]


def hooked(p: Any, h: Tensor) -> Tensor:
    out = functional.linear(h, p.w)
    if out.requires_grad:
        out.register_hook(lambda gradient: 2 * gradient)
    return out


def idle(p: Any, h: Tensor) -> Tensor:
    """Run a branch whose result goes nowhere, and one under no_grad."""
    functional.linear(h, p.w)
    with torch.no_grad():
        scale = functional.linear(h, p.w).abs().mean(-1, keepdim=True)
    return h / (1 + scale)


def written(p: Any, h: Tensor) -> Tensor:
    h = h.clone()
    h[:, 0] += p.v
    h[:, -1] = torch.tanh(h[:, -1].clone()) * p.v
    return h


def recomputed(p: Any, h: Tensor) -> Tensor:
    return checkpoint(lambda x: functional.linear(torch.tanh(x), p.w) + p.v, h, use_reentrant=False)


def similarity(p: Any, h: Tensor) -> Tensor:
    """Attention with a bias per distance of positions, read from a table."""
    t = h.shape[1]
    place = torch.arange(t)
    bias = p.table[(place[:, None] - place[None, :]) + t - 1]
    return torch.softmax(h @ h.transpose(1, 2) + bias, -1) @ h


def bag(p: Any, h: Tensor) -> Tensor:
    ids = h.detach().mul(3).long().remainder(5).reshape(len(h), -1)
    return h + functional.embedding_bag(ids, p.table, mode="sum")[:, None]


def words(p: Any, h: Tensor) -> Tensor:
    ids = h.detach().sum(-1).mul(3).long().remainder(5)
    return h + functional.embedding(ids, p.table, padding_idx=0)


def constant_words(p: Any, h: Tensor) -> Tensor:
    return h + functional.embedding(torch.arange(h.shape[1]) % 5, p.table)


def memory(kind: str) -> Part:
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[kind]

    def make(t: int, d: int) -> Parameters:
        return {"i": torch.randn(gates * d, d), "h": torch.randn(gates * d, d)}

    def apply(p: Any, h: Tensor) -> Tensor:
        start = h.new_zeros(1, len(h), h.shape[-1])
        hidden = (start, start) if kind == "lstm" else start
        return getattr(torch, kind)(h, hidden, [p.i, p.h], False, 1, 0.0, False, False, True)[0]

    return Part(make, apply, ("i", "h"))


def folded(p: Any, h: Tensor) -> Tensor:
    """Convolve with the batch folded into channels: a matrix a group."""
    n, t, d = h.shape
    out = functional.conv1d(h.permute(1, 0, 2).reshape(t, n * d, 1), p.w.repeat(n, 1)[..., None], groups=n)
    return out.reshape(t, n, d).permute(1, 0, 2)


STEPS: dict[str, Part] = {
    "linear": Part(matrix, lambda p, h: functional.linear(h, p.w), ("w",)),
    "biased": Part(
        lambda t, d: matrix(t, d) | vector(t, d), lambda p, h: functional.linear(h, p.w, p.v), ("w",)
    ),
    "matmul": Part(matrix, lambda p, h: h @ p.w, ("w",)),
    "left": Part(lambda t, d: {"w": torch.randn(t, t)}, lambda p, h: p.w @ h, ("w",)),
    "twice": Part(matrix, lambda p, h: torch.tanh(h @ p.w) @ p.w.T, ("w",)),
    "sliced": Part(
        lambda t, d: {"w": torch.randn(d + 2, d)},
        lambda p, h: functional.linear(h, p.w[: h.shape[-1]]),
        ("w",),
    ),
    "scaled": Part(matrix, lambda p, h: functional.linear(h, p.w / p.w.norm(dim=1, keepdim=True)), ("w",)),
    "merged": Part(matrix, merged, ("w",)),
    "time first": Part(matrix, time_first, ("w",)),
    "loop over samples": Part(matrix, looped, ("w",)),
    "two chunks": Part(matrix, halves, ("w",)),
    "gain": Part(vector, lambda p, h: h * p.v),
    "offset": Part(lambda t, d: {"v": torch.randn(t, 1)}, lambda p, h: h - p.v),
    "scalar": Part(lambda t, d: {"v": torch.randn(())}, lambda p, h: h * p.v.exp()),
    "norm": Part(vector, lambda p, h: functional.layer_norm(h, h.shape[-1:], p.v)),
    "where": Part(vector, lambda p, h: torch.where(h > 0, h, p.v)),
    "convolution": Part(
        lambda t, d: {"w": torch.randn(d, d, 3)},
        lambda p, h: functional.conv1d(h.transpose(1, 2), p.w, padding=1).transpose(1, 2),
        ("w",),
    ),
    "transposed convolution": Part(
        lambda t, d: {"w": torch.randn(d, d, 3)},
        lambda p, h: functional.conv_transpose1d(h.transpose(1, 2), p.w, padding=1).transpose(1, 2),
        ("w",),
    ),
    "folded convolution": Part(matrix, folded, ("w",)),
    "bilinear": Part(
        lambda t, d: {"w": torch.randn(d, d, d) / d}, lambda p, h: functional.bilinear(h, h, p.w), ("w",)
    ),
    "einsum": Part(matrix, lambda p, h: torch.einsum("ntd,de->nte", h, p.w), ("w",)),
    "batched": Part(matrix, lambda p, h: torch.bmm(h, p.w.expand(len(h), -1, -1)), ("w",)),
    "tensordot": Part(matrix, lambda p, h: torch.tensordot(h, p.w, dims=1), ("w",)),
    "inner": Part(matrix, lambda p, h: torch.inner(h, p.w), ("w",)),
    "distance": Part(matrix, lambda p, h: torch.cdist(h, p.w), ("w",)),
    "spectrum": Part(matrix, lambda p, h: torch.fft.ifft(torch.fft.fft(h) @ torch.fft.fft(p.w)).real, ("w",)),
    "complex": Part(
        lambda t, d: {"w": torch.randn(d, d, dtype=torch.complex64)},
        lambda p, h: (h.to(p.w.dtype) @ p.w).real,
        ("w",),
    ),
    "hidden function": Part(matrix, lambda p, h: Squared.apply(h, p.w), ("w",)),
    "scripted": Part(matrix, lambda p, h: scripted(h, p.w), ("w",)),
    "vmapped": Part(matrix, lambda p, h: torch.vmap(lambda one: one @ p.w)(h), ("w",)),
    "ensemble": Part(
        lambda t, d: {"w": torch.randn(2, d, d)},
        lambda p, h: torch.vmap(lambda w: h @ w)(p.w).mean(0),
        ("w",),
    ),
    "routed": Part(
        lambda t, d: {"gate": torch.randn(d, 2), "w": torch.randn(2, d, d)}, routed, ("gate", "w")
    ),
    "indexed": Part(lambda t, d: {"w": torch.randn(2, d, d)}, indexed, ("w",)),
    "gradient inside": Part(matrix, slope, ("w",)),
    "tensor hook": Part(matrix, hooked, ("w",)),
    "idle": Part(matrix, idle, ("w",)),
    "written": Part(vector, written),
    "checkpoint": Part(lambda t, d: matrix(t, d) | vector(t, d), recomputed, ("w",)),
    "distance table": Part(lambda t, d: {"table": torch.randn(2 * t - 1)}, similarity),
    "bag": Part(lambda t, d: {"table": torch.randn(5, d)}, bag),
    "words": Part(lambda t, d: {"table": torch.randn(5, d)}, words),
    "constant words": Part(lambda t, d: {"table": torch.randn(5, d)}, constant_words),
    "token": Part(vector, lambda p, h: h + torch.cat([p.v.expand(len(h), 1, -1), h[:, 1:]], 1)),
    "zero gate": Part(
        lambda t, d: matrix(t, d) | {"v": torch.zeros(())},
        lambda p, h: h + p.v * functional.linear(h, p.w),
        ("w",),
    ),
    "detached": Part(matrix, lambda p, h: h + functional.linear(h, p.w).detach(), ("w",)),
    "lstm": memory("lstm"),
    "gru": memory("gru"),
    "rnn": memory("rnn_tanh"),
}

HEADS: dict[str, Part] = {
    "linear": Part(
        lambda t, d: {"w": torch.randn(3, d)}, lambda p, h: functional.linear(h.mean(1), p.w), ("w",)
    ),
    "product": Part(lambda t, d: {"w": torch.randn(d, 3)}, lambda p, h: h[:, 0] @ p.w, ("w",)),
    "einsum": Part(
        lambda t, d: {"w": torch.randn(d, 3)}, lambda p, h: torch.einsum("nd,dk->nk", h.mean(1), p.w), ("w",)
    ),
    "tensordot": Part(
        lambda t, d: {"w": torch.randn(d, 3)}, lambda p, h: torch.tensordot(h.mean(1), p.w, 1), ("w",)
    ),
    "inner": Part(lambda t, d: {"w": torch.randn(3, d)}, lambda p, h: torch.inner(h.mean(1), p.w), ("w",)),
    "prototypes": Part(
        lambda t, d: {"w": torch.randn(3, d)}, lambda p, h: -torch.cdist(h.mean(1), p.w), ("w",)
    ),
    "scripted": Part(lambda t, d: {"w": torch.randn(d, 3)}, lambda p, h: scripted(h.mean(1), p.w), ("w",)),
    "vector": Part(
        lambda t, d: {"w": torch.randn(d)},
        lambda p, h: torch.mv(h.mean(1), p.w)[:, None] * torch.arange(3.0),
        ("w",),
    ),
    "summed product": Part(
        lambda t, d: {"w": torch.randn(d)},
        lambda p, h: (h.mean(1) * p.w).sum(-1, keepdim=True) * torch.arange(3.0),
        ("w",),
    ),
    "mean of products": Part(
        lambda t, d: {"w": torch.randn(3, d)}, lambda p, h: (h.mean(1)[:, None] * p.w).mean(2), ("w",)
    ),
    "product of a fixed matrix": Part(
        lambda t, d: {"w": torch.randn(d)},
        lambda p, h: (h.mean(1) * p.w) @ torch.arange(3.0 * len(p.w), dtype=h.dtype).reshape(-1, 3).cos(),
        ("w",),
    ),
    "loop over features": Part(
        lambda t, d: {"w": torch.randn(d)},
        lambda p, h: sum(h[:, 0, i, None] * p.w[i] for i in range(len(p.w))) * torch.arange(3.0),
        ("w",),
    ),
    "differences": Part(
        lambda t, d: {"w": torch.randn(3, d)}, lambda p, h: -(h[:, :1] - p.w).square().sum(2), ("w",)
    ),
    "dots": Part(
        lambda t, d: {"w": torch.randn(d)},
        lambda p, h: torch.vmap(lambda one: torch.dot(one, p.w))(h.mean(1))[:, None] * torch.arange(3.0),
        ("w",),
    ),
    "tempered": Part(
        lambda t, d: {"w": torch.randn(3, d), "temperature": torch.randn(())},
        lambda p, h: functional.linear(h.mean(1), p.w) * p.temperature.exp(),
        ("w",),
    ),
    "gained": Part(
        lambda t, d: {"w": torch.randn(3, d), "gain": torch.randn(3), "offset": torch.randn(3)},
        lambda p, h: functional.linear(h.mean(1), p.w) * p.gain + p.offset,
        ("w",),
    ),
    "normed": Part(
        lambda t, d: {"w": torch.randn(3, d), "gain": torch.randn(3)},
        lambda p, h: functional.layer_norm(functional.linear(h.mean(1), p.w), (3,), p.gain),
        ("w",),
    ),
    "mean of maps": Part(
        lambda t, d: {"w": torch.randn(3, d, 1), "gain": torch.randn(3, 1)},
        lambda p, h: (functional.conv1d(h.transpose(1, 2), p.w) * p.gain).mean(2),
        ("w",),
    ),
    "hidden": Part(lambda t, d: {"w": torch.randn(d, 3)}, lambda p, h: Squared.apply(h, p.w).mean(1), ("w",)),
}


class Program(nn.Module):
    """Random parts with a tanh before each, some sharing their parameters, and a random head."""

    def __init__(self, names: list[str], shared: list[int], head: str, positions: int, width: int) -> None:
        super().__init__()
        self.names, self.shared, self.head_name = names, shared, head
        self.parts = nn.ModuleList()
        for name in names:
            self.parts.append(nn.ParameterDict(STEPS[name].make(positions, width)))
        self.head = nn.ParameterDict(HEADS[head].make(positions, width))

    def forward(self, hidden: Tensor) -> Tensor:
        for index, name in enumerate(self.names):
            hidden = STEPS[name].apply(self.parts[self.shared[index]], torch.tanh(hidden))
        return HEADS[self.head_name].apply(self.head, hidden)

    @property
    def products(self) -> set[str]:
        """Names of the parameters that some part multiplies with the batch."""
        found = {f"head.{name}" for name in HEADS[self.head_name].products}
        for index, name in enumerate(self.names):
            found |= {f"parts.{self.shared[index]}.{each}" for each in STEPS[name].products}
        return found


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def centred(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs - outputs.mean(0), targets, reduction="none")


@dataclass
class Drawn:
    """A program with a batch, and whether its samples are coupled."""

    model: Program
    loss: Any
    inputs: Tensor
    targets: Tensor
    coupled: bool = False


def draw(seed: int) -> Drawn:
    """Draw a program and a batch of at most six samples, positions and features."""
    choose = random.Random(seed)
    samples, positions, width = choose.randint(1, 6), choose.randint(1, 6), choose.randint(2, 6)
    names = choose.choices(sorted(STEPS), k=choose.randint(1, 4))
    shared = list(range(len(names)))
    for index, name in enumerate(names):
        makes = STEPS[name].make
        same = [other for other in range(index) if STEPS[names[other]].make is makes]
        if same and choose.random() < 0.5:
            shared[index] = shared[choose.choice(same)]
    head = choose.choice(["linear"] * 6 + ["product"] * 3 + sorted(HEADS))
    coupled = samples > 1 and choose.random() < 0.05
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Program(names, shared, head, positions, width)
        model = model.to(torch.float64) if "complex" not in names else double(model)
        inputs = torch.randn(samples, positions, width, dtype=torch.float64)
        for name, parameter in model.named_parameters():
            if choose.random() < 0.1 and not name.startswith("head"):
                parameter.requires_grad_(False)
    targets = torch.arange(samples) % 3
    return Drawn(model, centred if coupled else loss, inputs, targets, coupled)


def double(model: Program) -> Program:
    """Cast to double precision, complex parameters to complex ones."""
    for values in model.modules():
        for name, value in list(values._parameters.items()):
            kind = torch.complex128 if value.is_complex() else torch.float64
            values._parameters[name] = nn.Parameter(value.data.to(kind))
    return model


def sample_gradients(drawn: Drawn) -> dict[str, Tensor]:
    """`(n, size)` per trainable parameter: one reverse pass a sample; complex numbers as pairs of reals."""
    trainable = {name: p for name, p in drawn.model.named_parameters() if p.requires_grad}
    losses = drawn.loss(drawn.model(drawn.inputs), drawn.targets)
    rows: dict[str, list[Tensor]] = {name: [] for name in trainable}
    for value in losses:
        found = torch.autograd.grad(value, list(trainable.values()), retain_graph=True, allow_unused=True)
        for (name, parameter), gradient in zip(trainable.items(), found, strict=True):
            one = torch.zeros_like(parameter) if gradient is None else gradient
            rows[name].append((torch.view_as_real(one) if one.is_complex() else one).flatten())
    return {name: torch.stack(each) for name, each in rows.items()}
