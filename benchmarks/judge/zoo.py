"""Ways of writing a model, one case each, small enough that a loop of autograd says what is right.

A case is one entry of `CASES`; pages and reports show its source as it stands here.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from tests.support.torch_functions import ruled
from tests.support.torch_modules import Part

N, T, D, WORDS = 6, 5, 4, 11
COUPLED = "coupled: "
"""Cases whose names begin so have no per-sample gradients: the right answer is a refusal."""


Product = ruled(
    lambda inputs, weight: inputs @ weight.T,
    lambda ctx, gradient: (gradient @ ctx.saved_tensors[1], gradient.T @ ctx.saved_tensors[0]),
    saved=2,
)
"""A matrix product, as custom functions are commonly written: no rule for `vmap`."""


def vectors() -> Tensor:
    """Draw `(n, 7)`."""
    return torch.randn(N, 7)


def images() -> Tensor:
    """Draw `(n, 4, 8, 8)`."""
    return torch.randn(N, D, 8, 8)


def tokens() -> Tensor:
    """Draw `(n, t)` ids, rows of several lengths; the last is all padding (id 0)."""
    lengths = torch.tensor([5, 4, 3, 5, 2, 0])
    return torch.randint(1, WORDS, (N, T)) * (torch.arange(T) < lengths[:, None])


def on_vectors(run: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> Part:
    """Return a net with a body, which reads vectors, and a head."""
    return Part(run, body=nn.Linear(7, D), head=head(), **parts)


def on_tokens(run: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> Part:
    """Return a net with words, which embed ids, and a head."""
    return Part(run, words=nn.Embedding(WORDS, D), head=head(), **parts)


def body() -> nn.Linear:
    return nn.Linear(7, D)


def head(width: int = D) -> nn.Linear:
    return nn.Linear(width, WORDS)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape))


def freeze(model: Part, prefix: str) -> Part:
    """Freeze the parameters whose names begin so."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(prefix))
    return model


def tie(model: Part) -> Part:
    """Give the head the matrix of the words."""
    model.head.weight = model.words.weight
    return model


def pool(model: Part, ids: Tensor) -> Tensor:
    """Average over the words that are no padding."""
    mask = (ids > 0)[..., None]
    return model.head((model.words(ids) * mask).sum(1) / mask.sum(1).clamp(1))


def route(model: Part, inputs: Tensor) -> Tensor:
    """Send each row to one of two experts."""
    first, outputs = inputs[:, 0] > 0, inputs.new_zeros(len(inputs), D)
    outputs[first] = model.body(inputs[first])
    outputs[~first] = model.other(inputs[~first])
    return model.head(outputs.tanh())


def attend(model: Part, ids: Tensor) -> Tensor:
    """Attend by torch's function, causally."""
    hidden = model.words(ids)
    query, key, value = model.project(hidden).chunk(3, -1)
    found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return model.head(found.mean(1))


VECTORS: dict[str, Callable[[], nn.Module]] = {
    "linear layers": lambda: nn.Sequential(body(), nn.Tanh(), head()),
    "LayerNorm": lambda: nn.Sequential(body(), nn.LayerNorm(D), head()),
    "a layer's weight in F.linear": lambda: on_vectors(
        lambda m, x: m.head(functional.linear(x, m.body.weight, m.body.bias).tanh())
    ),
    "a transposed parameter in a matmul": lambda: Part(
        lambda m, x: m.head((x @ m.weight.T).tanh()), weight=weight(D, 7), head=head()
    ),
    "a parameter in an einsum": lambda: Part(
        lambda m, x: torch.einsum("ni,ijk,nj->nk", x, m.weight, x), weight=weight(7, 7, WORDS)
    ),
    "weight normalisation": lambda: nn.Sequential(weight_norm(body()), nn.Tanh(), head()),
    "a layer used twice": lambda: on_vectors(
        lambda m, x: m.head(m.twice(m.twice(m.body(x)).tanh())), twice=nn.Linear(D, D)
    ),
    "a parameter that nothing uses": lambda: on_vectors(
        lambda m, x: m.head(m.body(x).tanh()), idle=nn.Linear(D, D)
    ),
    "a frozen layer": lambda: freeze(on_vectors(lambda m, x: m.head(m.body(x).tanh())), "body"),
    "a frozen bias": lambda: freeze(on_vectors(lambda m, x: m.head(m.body(x).tanh())), "body.bias"),
    "a checkpointed layer": lambda: on_vectors(
        lambda m, x: m.head(checkpoint(m.body, x, use_reentrant=False).tanh())
    ),
    "torch.compile (aot_eager)": lambda: torch.compile(
        nn.Sequential(body(), nn.Tanh(), head()), backend="aot_eager"
    ),
    "autocast to bfloat16": lambda: on_vectors(
        torch.autocast("cpu", torch.bfloat16)(lambda m, x: m.head(m.body(x).tanh()))
    ),
    "a reentrant checkpoint": lambda: on_vectors(
        lambda m, x: m.head(checkpoint(m.body, x.requires_grad_(), use_reentrant=True).tanh())
    ),
    "a low-rank addition to a weight": lambda: on_vectors(
        lambda m, x: m.head(functional.linear(x, m.body.weight + m.up @ m.down)),
        up=weight(D, 2),
        down=weight(2, 7),
    ),
    "a gradient in the forward pass": lambda: on_vectors(
        lambda m, x: m.head((h := m.body(x)) + torch.autograd.grad(h.cos().sum(), h, create_graph=True)[0])
    ),
    "a custom Function of activations": lambda: on_vectors(
        lambda m, x: m.head(Product.apply(m.body(x), 2 * torch.eye(D).to(x)).tanh())
    ),
    "a custom Function of a parameter": lambda: Part(
        lambda m, x: m.head(Product.apply(x, m.weight).tanh()), weight=weight(D, 7), head=head()
    ),
    "outputs in a dictionary": lambda: on_vectors(
        lambda m, x: {"last": {"logits": m.head(m.body(x).tanh())}}
    ),
    "experts that take some rows": lambda: on_vectors(route, other=body()),
    "BatchNorm, eval mode": lambda: nn.Sequential(body(), nn.BatchNorm1d(D).eval(), nn.Tanh(), head()),
    "dropout, training mode": lambda: nn.Sequential(body(), nn.Dropout(0.5), head()),
    "coupled: BatchNorm, training mode": lambda: nn.Sequential(body(), nn.BatchNorm1d(D), head()),
    "coupled: centred over the batch": lambda: on_vectors(lambda m, x: m.head((h := m.body(x)) - h.mean(0))),
    "coupled: attention over the batch": lambda: on_vectors(
        lambda m, x: m.head(((h := m.body(x)) @ h.mT).softmax(-1) @ h)
    ),
    "coupled: a contrastive loss": lambda: on_vectors(
        lambda m, x: m.head(m.body(x)) @ m.other(x).mT, other=nn.Linear(7, WORDS)
    ),
}
TOKENS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: on_tokens(lambda m, x: m.head(m.words(x).tanh().mean(1))),
    "tied weights, as modules": lambda: tie(on_tokens(lambda m, x: m.head(m.words(x).tanh().mean(1)))),
    "tied weights, by a function": lambda: Part(
        lambda m, x: functional.linear(m.words(x).tanh().mean(1), m.words.weight),
        words=nn.Embedding(WORDS, D),
    ),
    "scaled_dot_product_attention": lambda: on_tokens(attend, project=nn.Linear(D, 3 * D)),
    "nn.MultiheadAttention": lambda: on_tokens(
        lambda m, x: m.head(m.attention(*[m.words(x)] * 3, need_weights=False)[0].mean(1)),
        attention=nn.MultiheadAttention(D, 2, batch_first=True),
    ),
    "nn.LSTM": lambda: on_tokens(
        lambda m, x: m.head(m.rnn(m.words(x))[0].mean(1)), rnn=nn.LSTM(D, D, batch_first=True)
    ),
    "nn.GRU": lambda: on_tokens(
        lambda m, x: m.head(m.rnn(m.words(x))[0].mean(1)), rnn=nn.GRU(D, D, batch_first=True)
    ),
    "one row of positions for all": lambda: on_tokens(
        lambda m, x: m.head((m.words(x) + m.places(torch.arange(T)[None])).tanh().mean(1)),
        places=nn.Embedding(T, D),
    ),
    "one class token for all": lambda: on_tokens(
        lambda m, x: m.head(m.mix(torch.cat([m.token.expand(len(x), 1, D), m.words(x)], 1)).tanh().mean(1)),
        token=weight(1, 1, D),
        mix=nn.Linear(D, D),
    ),
    "a row that is all padding": lambda: on_tokens(pool),
}
IMAGES: dict[str, Callable[[], nn.Module]] = {
    "convolution": lambda: nn.Sequential(nn.Conv2d(D, 6, 3), nn.Tanh(), nn.Flatten(), head(216)),
    "grouped convolution": lambda: nn.Sequential(nn.Conv2d(D, 6, 3, groups=2), nn.Flatten(), head(216)),
    "GroupNorm": lambda: nn.Sequential(nn.Conv2d(D, 6, 3), nn.GroupNorm(2, 6), nn.Flatten(), head(216)),
}
CASES = {**VECTORS, **TOKENS, **IMAGES}
MODES = {"dropout, training mode", "coupled: BatchNorm, training mode"}
"""Cases that are other functions in eval mode."""
LOSS = nn.CrossEntropyLoss(reduction="none")


@dataclass
class Case:
    """A model and its batch."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        """Note which parameters train: a library may change that."""
        self.trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def losses(self, outputs: Any, targets: Tensor) -> Tensor:
        return LOSS(read(outputs), targets)

    def gradients(self) -> dict[str, Tensor]:
        """Return each sample's gradients `(n, size)` by name: a loop of passes, one for each loss."""
        rows = []
        # A pass for each loss: a compiled graph gives its buffers away, so that it goes back once.
        for row in range(len(self.targets)):
            torch.manual_seed(1)
            self.model.zero_grad()
            self.losses(self.model(self.inputs), self.targets)[row].backward()
            rows.append(
                {
                    name: p.new_zeros(p.shape) if p.grad is None else p.grad
                    for name, p in self.trainable.items()
                }
            )
        return {name: torch.stack([row[name] for row in rows]).flatten(1) for name in self.trainable}


def read(outputs: Any) -> Tensor:
    return outputs["last"]["logits"] if isinstance(outputs, dict) else outputs


def build(name: str, *, training: bool = True) -> Case:
    """Draw a case's weights and its batch from a fixed seed, in double precision where the case can."""
    draw = next(
        draw for draw, cases in ((vectors, VECTORS), (tokens, TOKENS), (images, IMAGES)) if name in cases
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = CASES[name](), draw()
    if "bfloat16" not in name:
        model, inputs = model.double(), inputs.double() if inputs.is_floating_point() else inputs
    if not training:
        model.eval()
    return Case(model, inputs, torch.arange(N))


def code(name: str) -> str:
    """Return the source of a case."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    tables = (node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    entries = (
        pair
        for table in tables
        if isinstance(table, ast.Dict)
        for pair in zip(table.keys, table.values, strict=True)
    )
    return next(ast.unparse(value.body) for key, value in entries if ast.literal_eval(key) == name)
