"""Random torch programs, and what plain reverse mode says of them, one sample at a time."""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.torch_parts import DOUBLE, SOUND, UNSOUND, linear, masked, weights

TIMES, WIDTH, CLASSES = 4, 4, 3
N_TRAIN, N_VAL = 5, 3
TOLERANCE = 1e-7


class Body(nn.Module):
    """Parts one after another, a readout of time, a head."""

    def __init__(self, parts: list[nn.Module], readout: str) -> None:
        super().__init__()
        self.parts, self.readout = nn.Sequential(*parts), readout
        self.head = linear(WIDTH if readout != "flat" else WIDTH * TIMES, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.parts(inputs)
        if self.readout == "flat":
            return self.head(hidden.flatten(1))
        return self.head(hidden[:, -1] if self.readout == "last" else hidden.mean(1))


class Proxies(nn.Module):
    """A loss with parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = weights(CLASSES, CLASSES)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(-(torch.cdist(outputs, self.centres) ** 2), targets, reduction="none")


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def _penalised(model: Body) -> Callable[..., Tensor]:
    return lambda o, t: cross_entropy(o, t) + 0.1 * sum((p.abs() ** 2).sum() for p in model.parameters())


def _closed(model: Body) -> Callable[..., Tensor]:
    matrix = model.head.weight
    return lambda o, t: cross_entropy(o @ (matrix @ matrix.T), t)


def _headed(model: Body) -> Callable[..., Tensor]:
    return lambda o, t: cross_entropy(o + model.head(model.head.weight.mean(0)), t)


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
    matrix = model.head.weight
    return lambda o, t: functional.linear_cross_entropy(
        o[:, :1].expand(-1, matrix.shape[1]), matrix, t, reduction="none", options=options()
    )


def _smooth(model: Body) -> Callable[..., Tensor]:
    return lambda o, t: ((o - functional.one_hot(t, CLASSES)) ** 2).sum(1)


LOSSES: dict[str, Callable[[Body], Callable[..., Tensor]]] = {
    "cross_entropy": lambda _: cross_entropy,
    "square": _smooth,
    "penalised": _penalised,
    "closed_over": _closed,
    "head_in_loss": _headed,
    "temperature": _tempered,
    "proxies": lambda _: Proxies(),
    "fused": _fused,
}
UNSOUND_LOSSES: dict[str, Callable[[Body], Callable[..., Tensor]]] = {
    "centred_loss": lambda _: lambda o, t: cross_entropy(o - o.mean(0), t),
    "pairwise": lambda _: lambda o, t: functional.softplus(o - o.flip(0)).sum(1),
    "hidden_parameters": _hidden,
}


@dataclass
class Program:
    """A model, a loss, two batches, everything that trains, and the names of what it is made of."""

    model: Body
    loss: Callable[..., Tensor]
    validation: tuple[Tensor, Tensor]
    training: tuple[Tensor, Tensor]
    made_of: tuple[str, ...]

    def own(self) -> list[Tensor]:
        """Return the loss's parameters."""
        held = self.loss.parameters() if isinstance(self.loss, nn.Module) else ()
        return [*held, *self.model.__dict__.get("hidden", ())]

    def parameters(self) -> list[Tensor]:
        """Return everything that trains."""
        every = [*self.model.parameters(), *self.own()]
        return [parameter for parameter in every if parameter.requires_grad]


def program(seed: int, *, made_of: tuple[str, ...] | None = None) -> Program:
    """Draw a program; the same seed gives the same one, on tensors of its own."""
    rng = random.Random(seed)  # no secret
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if made_of is None:
            made_of = _drawn(rng)
        *names, loss_name, readout, tie = made_of
        parts = {**SOUND, **UNSOUND}
        modules = [parts[name](WIDTH) for name in names]
        if tie == "tied" and len(modules) > 1:
            modules.append(modules[0])
        model = Body(modules, readout)
        if tie == "masked":
            masked(model.head.weight)
        loss = {**LOSSES, **UNSOUND_LOSSES}[loss_name](model)
        sides = [
            (torch.randn(n, TIMES, WIDTH, dtype=DOUBLE), torch.randint(CLASSES, (n,)))
            for n in (N_VAL, N_TRAIN)
        ]
    return Program(model, loss, sides[0], sides[1], made_of)


def _drawn(rng: random.Random) -> tuple[str, ...]:
    names = [rng.choice(list(SOUND)) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.12:
        names.insert(rng.randrange(len(names) + 1), rng.choice(list(UNSOUND)))
    losses = UNSOUND_LOSSES if rng.random() < 0.08 else LOSSES
    loss = rng.choice(list(losses)) if rng.random() < 0.6 else "cross_entropy"
    return (*names, loss, rng.choice(["mean", "last", "flat"]), rng.choice(["", "", "", "tied", "masked"]))


def gradients(drawn: Program, batch: tuple[Tensor, Tensor], *, alone: bool) -> Tensor:
    """Return each sample's gradient `(n, size)`, of its loss alone or of its loss in the batch."""
    parameters, found = drawn.parameters(), []
    for j in range(len(batch[1])):
        rows = list(range(len(batch[1])))
        if alone:  # twice, where of a batch of one torch 2.13 can get BatchNorm in eval mode wrong
            rows = [j, j] if "batchnorm" in drawn.made_of else [j]
        losses = drawn.loss(drawn.model(batch[0][rows]), batch[1][rows])
        pieces = torch.autograd.grad(losses[0 if alone else j], parameters, allow_unused=True)
        pairs = zip(pieces, parameters, strict=True)
        full = [torch.zeros_like(p) if piece is None else piece.to_dense() for piece, p in pairs]
        found.append(torch.cat([torch.view_as_real(g.to(torch.complex128)).flatten() for g in full]))
    return torch.stack(found)


def truth(seed: int, made_of: tuple[str, ...] | None = None) -> Tensor | None:
    """Return the scores by one reverse pass a sample, on programs of their own; None where there are none.

    There are none where a sample's score in the batch is not its own alone.
    """
    found = []
    for alone in (True, False):
        validation, training = (
            gradients(drawn, getattr(drawn, side), alone=alone)
            for side in ("validation", "training")
            for drawn in [program(seed, made_of=made_of)]
        )
        found.append(training @ validation.sum(0))
    return found[0] if error(found[1], found[0]) <= TOLERANCE else None


def error(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest score."""
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-300))


def state(drawn: Program) -> list[Any]:
    """Return copies of whatever a program holds that scoring could move."""
    tensors = [tensor for _, tensor in sorted(drawn.model.state_dict().items())] + drawn.own()
    flags = [module.training for module in drawn.model.modules()]
    grads = [p.grad for p in drawn.parameters()]
    streams = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    return [copy.deepcopy([t.detach() for t in tensors]), flags, grads, streams]


def moved(before: list[Any], after: list[Any]) -> bool:
    """Whether two states differ by a bit."""
    same = all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    return not same or before[1:] != after[1:]


def verdict(
    seed: int, scores: Callable[[Program], Tensor], made_of: tuple[str, ...] | None = None
) -> tuple[str, str]:
    """Judge a scoring function on one program: `exact`, `refused`, `wrong` or `crash`, and a word on it."""
    expected, drawn = truth(seed, made_of), program(seed, made_of=made_of)
    before = state(drawn)
    try:
        found = scores(drawn)
    except ValueError as raised:
        outcome = "refused", str(raised)
    except Exception as raised:  # whatever else is a crash
        outcome = "crash", f"{type(raised).__name__}: {raised}".splitlines()[0]
    else:
        if expected is None:
            outcome = "wrong", "scored, and samples have no scores"
        else:
            error = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-300))
            outcome = ("exact" if error <= TOLERANCE else "wrong"), f"{error:.1e}"
    if moved(before, state(drawn)):
        outcome = "wrong", f"state moved ({outcome[0]}: {outcome[1]})"
    if expected is None and outcome[0] == "refused":
        outcome = "rightly refused", outcome[1]
    return outcome
