"""What every table carries: plain training, on other samples too; the null and the oracle."""

import torch
from torch import Tensor

from experiments.methods.base import Run, Step, method


def _whole(run: Run) -> Step:
    return lambda rows: run.update(rows, torch.full((len(rows),), 1.0 / len(rows)))


@method("plain", sees="nothing", costs="nothing")
def plain(run: Run) -> Step:
    """Train on everything: the null."""
    return _whole(run)


@method("right labels only", sees="which labels are wrong", costs="nothing")
def oracle(run: Run) -> Step:
    """Train on what a perfect curator would keep: the oracle."""
    right = (run.wrong == 0).nonzero().squeeze(1)
    (run.inputs, run.labels), run.wrong = run.batch(right), run.wrong[right]
    return _whole(run)


@method("validation only", sees="the validation set", costs="nothing")
def validation_only(run: Run) -> Step:
    """Train on the validation set alone, as many steps."""
    run.inputs, run.labels = run.task.validation
    run.wrong = torch.zeros(len(run.labels))
    return _whole(run)


@method("training + validation", sees="the validation set", costs="nothing")
def both(run: Run) -> Step:
    """Add the validation set to the training set."""
    (x, y), (u, v) = run.task.training, run.task.validation
    run.inputs, run.labels = torch.cat([x, u]), torch.cat([y, v])
    run.wrong = torch.cat([run.task.wrong, torch.zeros(len(v))])
    return _whole(run)


@method("validation batch mixed in", sees="the validation set", costs="a step on 32 of its samples")
def mixed_in(run: Run) -> Step:
    """After each step, another one on 32 validation samples drawn at random."""
    whole = _whole(run)

    def step(rows: Tensor) -> Tensor:
        weights = whole(rows)
        run.mix_in()
        return weights

    return step
