"""Models of the guide's page *Per-sample gradients*, and the ways whose answers it compares."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lai_torch
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

from tests.peers import opacus_gradients
from tests.peers.cases import SAMPLE_LOSSES, Case, tokens, vectors

N, WORDS = 6, 11


class Body(nn.Module):
    """Vectors of seven to words, by a function between two layers."""

    def __init__(self, function: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.body, self.head = function, nn.Linear(7, 4), nn.Linear(4, WORDS)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.function(self.body, inputs)))


class Read(nn.Module):
    """Word embeddings through a module, averaged over positions."""

    def __init__(self, module: nn.Module, *, attends: bool = False) -> None:
        super().__init__()
        self.words, self.module, self.attends = nn.Embedding(WORDS, 4), module, attends
        self.head = nn.Linear(4, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        words = self.words(ids)
        found = self.module(words, words, words) if self.attends else self.module(words)
        return self.head(found[0].mean(1))


class Placed(nn.Module):
    """Words and positions; one row of positions for the whole batch, as transformers makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(WORDS, 4), nn.Embedding(5, 4), nn.Linear(4, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.places(torch.arange(ids.shape[1])[None])
        return self.head(torch.tanh(self.words(ids) + places).mean(1))


class Tied(nn.Module):
    """The head is the words' matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 4), nn.Linear(4, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.words(ids)).mean(1))


class Bilinear(nn.Module):
    """A parameter that no layer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(7, 7, WORDS))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.einsum("ni,ijk,nj->nk", inputs, self.weight, inputs)


def attended(body: nn.Linear, inputs: Tensor) -> Tensor:
    hidden = body(inputs)
    return torch.softmax(hidden @ hidden.mT, -1) @ hidden


def normalised(*, training: bool) -> nn.Module:
    layers = nn.Linear(7, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, WORDS)
    model = nn.Sequential(*layers)
    model(torch.randn(9, 7))
    return model.train(training)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "tied embedding and head": (Tied, tokens),
    "a parameter in an `einsum`": (Bilinear, vectors),
    "a layer's weight in `F.linear`": (
        lambda: Body(lambda body, x: nn.functional.linear(x, body.weight, body.bias)),
        vectors,
    ),
    "one row of positions for all": (Placed, tokens),
    "`nn.MultiheadAttention`": (
        lambda: Read(nn.MultiheadAttention(4, 2, batch_first=True), attends=True),
        tokens,
    ),
    "`nn.LSTM`": (lambda: Read(nn.LSTM(4, 4, batch_first=True)), tokens),
    "a checkpointed layer": (lambda: Body(lambda b, x: checkpoint(b, x, use_reentrant=False)), vectors),
    "BatchNorm, eval mode": (lambda: normalised(training=False), vectors),
    "coupled: BatchNorm, training mode": (lambda: normalised(training=True), vectors),
    "coupled: centred over the batch": (lambda: Body(lambda b, x: (h := b(x)) - h.mean(0)), vectors),
    "coupled: attention over the batch": (lambda: Body(attended), vectors),
}


@dataclass(frozen=True)
class Asked:
    """A model and a batch."""

    model: nn.Module
    batch: tuple[Tensor, Tensor]

    def kernel(self) -> Tensor:
        """Return the inner products of gradients of one sample at a time, each alone, by plain autograd."""
        found = []
        for one, target in zip(*self.batch, strict=True):
            losses = SAMPLE_LOSSES(self.model(one[None]), target[None])
            found.append(torch.autograd.grad(losses.sum(), list(self.model.parameters())))
        rows = torch.stack([torch.cat([part.flatten() for part in row]) for row in found])
        return rows @ rows.mT


def asked(name: str) -> Asked:
    """Draw a model's weights and its batch from a fixed seed."""
    made, draw = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, inputs = made().double(), draw(N)
    return Asked(model, (inputs, torch.arange(N) % WORDS))


def of_lai_torch(one: Asked) -> Tensor:
    return lai_torch.per_sample_inner_products(one.model, SAMPLE_LOSSES, one.batch, one.batch)


def of_opacus(one: Asked) -> Tensor:
    model: Any = one.model
    rows = opacus_gradients.gradients(Case(model, one.batch, one.batch, torch.float64), one.batch, last=False)
    return rows @ rows.mT


def of_opacus_norms(one: Asked) -> Tensor:
    """Return squared norms, all that ghost clipping finds."""
    return opacus_gradients.norms(one.model, one.batch) ** 2


def of_torch_func(one: Asked) -> Tensor:
    model = copy.deepcopy(one.model)
    parameters = {name: part.detach() for name, part in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(values: dict[str, Tensor], sample: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(model, (values, buffers), (sample[None],))
        return SAMPLE_LOSSES(outputs, target[None]).sum()

    parts = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, *one.batch)
    rows = torch.cat([part.flatten(1) for part in parts.values()], 1)
    return rows @ rows.mT


WAYS = {
    "lai_torch": of_lai_torch,
    "opacus": of_opacus,
    "opacus, ghost clipping": of_opacus_norms,
    "torch.func": of_torch_func,
}
