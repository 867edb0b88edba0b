"""Choices by the samples' own losses, and at random: no validation set, but for a threshold."""

import torch
from torch import Tensor

from experiments.methods.base import LOSS, Run, Step, lowest, method, outputs

HALF = 0.5


@method("random", sees="nothing", costs="nothing; trains on half")
def random(run: Run) -> Step:
    """Keep half, drawn at random."""
    return lambda rows: run.update(rows, lowest(torch.rand(len(rows), generator=run.generator), HALF))


@method("small loss", sees="losses", costs="one forward pass")
def small_loss(run: Run) -> Step:
    """Keep the half with the lowest losses."""
    return lambda rows: run.update(rows, lowest(run.losses(rows), HALF))


@method("high loss", sees="losses", costs="one forward pass")
def high_loss(run: Run) -> Step:
    """Keep the half with the highest losses."""
    return lambda rows: run.update(rows, lowest(-run.losses(rows), HALF))


@method("loss below the validation's", sees="losses; those of the validation set", costs="its forward pass")
def below_validation(run: Run) -> Step:
    """Keep what has a lower loss than nine in ten validation samples."""
    inputs, labels = run.task.validation

    def step(rows: Tensor) -> Tensor:
        bound = LOSS(outputs(run.model, inputs, run.task.part), labels).cpu().quantile(0.9)
        kept = (run.losses(rows) <= bound).float()
        return run.update(rows, kept / kept.sum().clamp(min=1.0))

    return step


@method("self-paced (SPL)", sees="losses", costs="one forward pass")
def self_paced(run: Run) -> Step:
    """Keep the lowest losses, half of them at first, all after four fifths of the run."""
    return lambda rows: run.update(rows, lowest(run.losses(rows), min(1.0, HALF + HALF * run.progress / 0.8)))


@method("InfoBatch", sees="losses", costs="one forward pass")
def infobatch(run: Run) -> Step:
    """Drop half of the samples below the mean loss, at random, and count the other half of them double."""

    def step(rows: Tensor) -> Tensor:
        losses = run.losses(rows)
        drawn = torch.rand(len(rows), generator=run.generator) < HALF
        weights = torch.where(losses < losses.mean(), 2.0 * drawn, torch.ones_like(losses))
        return run.update(rows, weights / len(rows))

    return step
