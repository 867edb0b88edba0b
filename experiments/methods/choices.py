"""Choices without a curator: none at all, at random, by the samples' losses, by a second network."""

import torch
from torch import Tensor

from experiments.methods.base import Run, Step, lowest, method

HALF = 0.5
GUIDE_STEPS = 100


def _whole(run: Run) -> Step:
    return lambda rows: run.update(rows, torch.full((len(rows),), 1.0 / len(rows)))


@method("plain")
def plain(run: Run) -> Step:
    """Train on everything: the null."""
    return _whole(run)


@method("right labels only")
def oracle(run: Run) -> Step:
    """Train on what a perfect curator would keep: the oracle."""
    right = (run.wrong == 0).nonzero().squeeze(1)
    (run.inputs, run.labels), run.wrong = run.batch(right), run.wrong[right]
    return _whole(run)


@method("validation only")
def validation_only(run: Run) -> Step:
    """Train on the validation set alone, as many steps."""
    run.inputs, run.labels = run.task.validation
    run.wrong = torch.zeros(len(run.labels))
    return _whole(run)


@method("training + validation")
def both(run: Run) -> Step:
    """Add the validation set to the training set."""
    (x, y), (u, v) = run.task.training, run.task.validation
    run.inputs, run.labels = torch.cat([x, u]), torch.cat([y, v])
    run.wrong = torch.cat([run.task.wrong, torch.zeros(len(v))])
    return _whole(run)


@method("validation batch mixed in")
def mixed_in(run: Run) -> Step:
    """After each step, another one on 32 validation samples drawn at random."""
    whole = _whole(run)

    def step(rows: Tensor) -> Tensor:
        weights = whole(rows)
        run.mix_in()
        return weights

    return step


@method("random")
def random(run: Run) -> Step:
    """Keep half, drawn at random."""
    return lambda rows: run.update(rows, lowest(torch.rand(len(rows), generator=run.generator), HALF))


@method("small loss")
def small_loss(run: Run) -> Step:
    """Keep the half with the lowest losses."""
    return lambda rows: run.update(rows, lowest(run.losses(rows), HALF))


@method("self-paced (SPL)")
def self_paced(run: Run) -> Step:
    """Keep the lowest losses, half of them at first, all after four fifths of the run."""
    return lambda rows: run.update(rows, lowest(run.losses(rows), min(1.0, HALF + HALF * run.progress / 0.8)))


@method("RHO-loss")
def rho(run: Run) -> Step:
    """Keep the half whose loss is furthest above that of a guide trained on the validation set."""
    guide = run.trained(run.task.validation, seed=run.seed + 900, steps=GUIDE_STEPS)
    with run.meter.all():
        irreducible = run.losses(torch.arange(len(run.labels)), guide)
    return lambda rows: run.update(rows, lowest(irreducible[rows] - run.losses(rows), 0.5))
