"""Choices without a curator: none at all, at random, by the samples' losses, by a second network."""

import torch
from torch import Tensor

from experiments.methods.base import METHODS, Run, Step, descend, lowest

HALF = 0.5
GUIDE_STEPS = 100


def plain(run: Run) -> Step:
    """Train on everything: the null."""
    return lambda rows: run.update(rows, torch.full((len(rows),), 1.0 / len(rows)))


def oracle(run: Run) -> Step:
    """Train on what a perfect curator would keep: the oracle."""
    right = (run.wrong == 0).nonzero().squeeze(1)
    (run.inputs, run.labels), run.wrong = run.batch(right), run.wrong[right]
    return plain(run)


def validation_only(run: Run) -> Step:
    """Train on the validation set alone, as many steps."""
    run.inputs, run.labels = run.task.validation
    run.wrong = torch.zeros(len(run.labels))
    return plain(run)


def both(run: Run) -> Step:
    """Add the validation set to the training set."""
    (x, y), (u, v) = run.task.training, run.task.validation
    run.inputs, run.labels = torch.cat([x, u]), torch.cat([y, v])
    run.wrong = torch.cat([run.task.wrong, torch.zeros(len(v))])
    return plain(run)


def mixed_in(run: Run) -> Step:
    """After each step, another one on 32 validation samples drawn at random."""
    whole, (inputs, labels) = plain(run), run.task.validation

    def step(rows: Tensor) -> Tensor:
        weights = whole(rows)
        drawn = torch.randint(len(labels), (32,), generator=run.generator)
        descend(run.model, run.optimizer, (inputs[drawn], labels[drawn]), torch.full((32,), 1 / 32))
        return weights

    return step


def self_paced(run: Run) -> Step:
    """Keep the lowest losses, half of them at first, all after four fifths of the run."""
    return lambda rows: run.update(rows, lowest(run.losses(rows), min(1.0, HALF + HALF * run.progress / 0.8)))


def rho(run: Run) -> Step:
    """Keep the half whose loss is furthest above that of a guide trained on the validation set."""
    guide, optimizer = run.another(run.seed + 900)
    held = len(run.task.validation[1])
    with run.meter.all():
        for _ in range(GUIDE_STEPS):
            descend(guide, optimizer, run.task.validation, torch.full((held,), 1.0 / held))
        irreducible = run.losses(torch.arange(len(run.labels)), guide)
    return lambda rows: run.update(rows, lowest(irreducible[rows] - run.losses(rows), HALF))


METHODS |= {
    "plain": plain,
    "right labels only": oracle,
    "validation only": validation_only,
    "training + validation": both,
    "validation batch mixed in": mixed_in,
    "random": lambda run: (
        lambda rows: run.update(rows, lowest(torch.rand(len(rows), generator=run.generator), HALF))
    ),
    "small loss": lambda run: lambda rows: run.update(rows, lowest(run.losses(rows), HALF)),
    "self-paced (SPL)": self_paced,
    "RHO-loss": rho,
}
