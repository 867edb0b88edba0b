"""Choices by a second network: co-teaching's peer, and a guide that is trained on the validation set."""

import torch
from torch import Tensor

from experiments.methods.base import Run, Step, descend, lowest, method, outputs

GUIDE_STEPS = 100


@method("co-teaching", sees="losses of a second network; the share of wrong labels", costs="a second network")
def co_teaching(run: Run) -> Step:
    """Let two networks choose their lowest losses for each other, fewer in the first ten epochs."""
    peer, optimizer = run.another(run.seed + 500)
    share = float(run.wrong.mean())

    def step(rows: Tensor) -> Tensor:
        keep = 1.0 - share * min(1.0, run.progress * run.task.epochs / 10)
        chosen = [lowest(run.losses(rows, model), keep) for model in (run.model, peer)]
        descend(peer, optimizer, run.batch(rows[chosen[0] > 0]), chosen[0][chosen[0] > 0])
        return run.update(rows, chosen[1])

    return step


@method("RHO-loss", sees="the validation set", costs="a guide trained on it; one forward pass")
def rho(run: Run) -> Step:
    """Keep the half whose loss is furthest above that of a guide trained on the validation set."""
    guide = run.trained(run.task.validation, seed=run.seed + 900, steps=GUIDE_STEPS)
    with run.meter.all():
        irreducible = run.losses(torch.arange(len(run.labels)), guide)
    return lambda rows: run.update(rows, lowest(irreducible[rows] - run.losses(rows), 0.5))


@method("guide agrees", sees="the validation set", costs="a guide trained on it")
def agreement(run: Run) -> Step:
    """Keep the samples whose label is what a guide trained on the validation set says."""
    guide = run.trained(run.task.validation, seed=run.seed + 900, steps=GUIDE_STEPS)
    with run.meter.all():
        agrees = outputs(guide, run.inputs, run.task.part).argmax(1) == run.labels
    return run.train_on(agrees.cpu())
