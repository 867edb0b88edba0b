"""Random torch programs: parts one after another, a head, a loss, and two batches."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.torch_heads import CLASSES, HEADS, MATRICES, READOUTS
from tests.support.torch_modules import Part
from tests.support.torch_parts import DOUBLE, SOUND, UNSOUND, masked, weights

TIMES, WIDTH = 4, 6
N_TRAIN, N_VAL = 5, 3


class Body(nn.Module):
    """Parts one after another, and a head."""

    def __init__(self, parts: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.parts, self.head = nn.Sequential(*parts), head

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.parts(inputs))

    @property
    def matrix(self) -> nn.Parameter:
        return self.head.w if hasattr(self.head, "w") else self.head.layer.weight

    @property
    def products(self) -> set[str]:
        """Names of the matrices that parts multiply with the batch; of a module that holds one, its own."""
        names = {
            name
            for name, parameter in self.named_parameters()
            if name.rpartition(".")[2].startswith("w") and parameter.ndim > 1 and parameter.numel()
        }
        tables = {f"{name}.weight" for name, one in self.named_modules() if isinstance(one, nn.Embedding)}
        own = {"head.w"} if hasattr(self.head, "w") else set()  # a vector, too
        return own | {name.removesuffix(".weight") for name in names - tables}


class Proxies(nn.Module):
    """A loss with parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = weights(CLASSES, CLASSES)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(-(torch.cdist(outputs, self.centres) ** 2), targets, reduction="none")


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _tempered(model: Body) -> Callable[..., Tensor]:
    model.temperature = nn.Parameter(torch.zeros((), dtype=DOUBLE))
    return lambda o, t: cross_entropy(o * model.temperature.exp(), t)


def _hidden(model: Body) -> Callable[..., Tensor]:
    centres = weights(CLASSES, CLASSES)
    model.__dict__["hidden"] = [centres]  # it trains, and nothing that is handed over holds it
    return lambda o, t: cross_entropy(o @ centres, t)


def _fused(model: Body) -> Callable[..., Tensor]:
    options = getattr(functional, "LinearCrossEntropyOptions", None)
    if options is None:
        return cross_entropy
    matrix = model.matrix
    return lambda o, t: functional.linear_cross_entropy(
        o[:, :1].expand(-1, matrix.shape[1]), matrix, t, reduction="none", options=options()
    )


def _contrast(outputs: Tensor, targets: Tensor) -> Tensor:
    unit = functional.normalize(outputs, dim=1)
    alike, same = unit @ unit.T, (targets[:, None] == targets[None, :]).to(outputs)
    return alike.logsumexp(1) - (alike * same).sum(1) / same.sum(1)


def _two_views(outputs: Tensor, targets: Tensor) -> Tensor:
    """Contrast halves: sample i and sample i + n/2 are two views of one thing."""
    unit = functional.normalize(outputs, dim=1)
    alike = unit @ unit.roll(len(unit) // 2, 0).T
    return functional.cross_entropy(alike, torch.arange(len(unit)), reduction="none")


LOSSES: dict[str, Callable[[Body], Callable[..., Tensor]]] = {
    "cross_entropy": lambda _: cross_entropy,
    "square": lambda _: lambda o, t: ((o - functional.one_hot(t, CLASSES)) ** 2).sum(1),
    "penalised": lambda m: (
        lambda o, t: cross_entropy(o, t) + 0.1 * sum((p.abs() ** 2).sum() for p in m.parameters())
    ),
    "closed_over": lambda m: lambda o, t: cross_entropy(o @ (m.matrix @ m.matrix.T), t),
    "head_in_loss": lambda m: lambda o, t: cross_entropy(o + m.head.layer(m.matrix.mean(0)), t),
    "temperature": _tempered,
    "proxies": lambda _: Proxies(),
    "fused": _fused,
}
UNSOUND_LOSSES: dict[str, Callable[[Body], Callable[..., Tensor]]] = {
    "centred_loss": lambda _: lambda o, t: cross_entropy(o - o.mean(0), t),
    "centred_without_gradient_loss": lambda _: lambda o, t: cross_entropy(o - o.mean(0).detach(), t),
    "contrast": lambda _: _contrast,
    "two_views": lambda _: _two_views,
    "pairwise": lambda _: lambda o, t: functional.softplus(o - o.flip(0)).sum(1),
    "hidden_parameters": _hidden,
    "divided_by_samples": lambda _: lambda o, t: cross_entropy(o, t) / len(t),
}
PLAIN = ("cross_entropy", "square")
"""Losses that multiply by no matrix."""


ALONE = {
    *("writing_gradients", "writing_of_a_leaf", "writing_in_a_checkpoint", "adding_gradients"),
    *("checkpointed_in_chunks", "divided_by_samples", "in_chunks"),
    *("cross_attention", "normed_convolution"),
    *("normalised_alone", "normalised_always", "masked_outputs", "module_hooked"),
    *MATRICES,
}
"""Parts, losses and heads tried by themselves: random programs draw what they drew before these came."""


@dataclass
class Program:
    """A model, a loss, two batches, everything that trains, and the names of what it is made of."""

    model: Body
    loss: Callable[..., Tensor]
    validation: tuple[Tensor, Tensor]
    training: tuple[Tensor, Tensor]
    made_of: tuple[str, ...]

    def own(self) -> list[Tensor]:
        held = self.loss.parameters() if isinstance(self.loss, nn.Module) else ()
        return [*held, *self.model.__dict__.get("hidden", ())]

    def parameters(self) -> list[Tensor]:
        every = [*self.model.parameters(), *self.own()]
        return [parameter for parameter in every if parameter.requires_grad]


def program(seed: int, *, made_of: tuple[str, ...] | None = None) -> Program:
    """Draw a program; the same seed gives the same one, on tensors of its own."""
    rng = random.Random(seed)  # no secret
    times, width, n_train, n_val, frozen = TIMES, WIDTH, N_TRAIN, N_VAL, 0.0
    if made_of is None:
        made_of = drawn(rng)
        coupled = not UNSOUND.keys().isdisjoint(made_of)
        least = 2 if coupled else 1  # statistics of one number are an error
        times, width, n_train = rng.randint(least, 6), rng.randint(2, 6), rng.randint(least, 6)
        frozen = 0.1
    *names, loss_name, head_name, tie = made_of
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        modules = [(SOUND | UNSOUND)[name](times, width) for name in names]
        again = next(
            (one for one in modules if not hasattr(one, "write")), None
        )  # torch runs no such one twice
        if tie == "tied" and len(modules) > 1 and again is not None:
            modules.append(again)
        if tie == "shared":
            _share(modules)
        model = Body(modules, HEADS[head_name](times, width))
        for parameter in model.parts.parameters():
            if rng.random() < frozen:
                parameter.requires_grad_(requires_grad=False)
        if tie == "masked":
            masked(model.matrix)
        loss = (LOSSES | UNSOUND_LOSSES)[loss_name](model)
        sides = [
            (torch.randn(n, times, width, dtype=DOUBLE), torch.randint(CLASSES, (n,)))
            for n in (n_val, n_train)
        ]
    return Program(model, loss, sides[0], sides[1], made_of)


def _share(modules: list[nn.Module]) -> None:
    """Let parts that have a matrix `w` of one shape have the same."""
    owners = [module for module in modules if isinstance(module, Part) and hasattr(module, "w")]
    for index, module in enumerate(owners):
        for other in owners[:index]:
            if other.w.shape == module.w.shape and other.w.dtype == module.w.dtype:
                module.w = other.w


def drawn(rng: random.Random) -> tuple[str, ...]:
    """Draw the names of what a program is made of: parts, a loss, a head, and what they share."""
    sound, unsound, heads = ([one for one in of if one not in ALONE] for of in (SOUND, UNSOUND, HEADS))
    names = [rng.choice(sound) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.12:
        names.insert(rng.randrange(len(names) + 1), rng.choice(unsound))
    head = rng.choice(list(READOUTS) if rng.random() < 0.5 else heads)
    losses = [one for one in UNSOUND_LOSSES if one not in ALONE] if rng.random() < 0.08 else LOSSES
    loss = rng.choice(list(losses)) if rng.random() < 0.5 and head in READOUTS else "cross_entropy"
    ties = ["", "", "", "tied", "tied", "shared", "shared", "masked"]
    return (*names, loss, head, rng.choice(ties))
