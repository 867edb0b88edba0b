"""Two rounds: train on everything, score every sample once, drop, and train again; both rounds are counted.

The first round is plain training, and the network that scores is the one with the highest validation accuracy
on the way: past it, it has learnt the wrong labels. What has a positive score is kept.
"""

import copy
from collections.abc import Callable

import lai_torch
import torch
from torch import Tensor, nn

import lai_core as lai
from experiments.methods import attribution
from experiments.methods.attribution import flat_gradients, sample_gradients
from experiments.methods.base import LOSS, METHODS, Run, Step

Score = Callable[[Run], Tensor]
DAMPING = 0.01
"""Of the mean training loss's curvature."""


def static(name: str) -> Callable[[Score], Score]:
    """Enter a method that keeps the samples with a positive score."""

    def enter(score: Score) -> Score:
        def start(run: Run) -> Step:
            with run.meter.all():
                kept = score(run) > 0
            return run.train_on(kept)

        METHODS[name] = start
        return score

    return enter


def first_round(run: Run) -> nn.Module:
    """Train on everything; return the network of the best validation accuracy."""
    first = Run(run.task, run.seed + 700)
    whole, best, highest = torch.ones(len(run.labels)), first.model, -1.0
    step = first.train_on(whole)
    for _ in range(run.task.epochs):
        order = torch.randperm(len(run.labels), generator=first.generator)
        for rows in order[: first.steps * run.task.batch].split(run.task.batch):
            step(rows)
        if (found := first.accuracy(run.task.validation)) > highest:
            best, highest = copy.deepcopy(first.model), found
    return best


@static("inner products (IP)")
def inner_products(run: Run) -> Tensor:
    """Score by the gradients' inner products with the summed validation gradient (Eq. 2)."""
    return ghost(first_round(run), run)


def ghost(model: nn.Module, run: Run) -> Tensor:
    """Return the inner products of all parameters' gradients."""
    model.eval()
    held, own = (
        lai_torch.trace(model, LOSS, *batch, gradients="all")
        for batch in (run.task.validation, (run.inputs, run.labels))
    )
    return lai.ghost_scores(held, own)


@static("LiSSA")
def lissa(run: Run) -> Tensor:
    """Score by influence of all layers, solved by a series (Agarwal et al. 2017)."""
    model, own = first_round(run), (run.inputs, run.labels)
    held, gradients = (flat_gradients(model, part) for part in (run.task.validation, own))
    product = attribution.curvature_product(model, own)
    solved = attribution.series(product, held.sum(0), damping=DAMPING, steps=100)
    return (gradients @ solved[:, None]).squeeze(1)  # a product of matrices: those are counted


@static("DataInf")
def datainf(run: Run) -> Tensor:
    """Score by a mean of inverses, not the inverse of a mean, a parameter at a time (Kwon et al. 2024)."""
    model = first_round(run)
    held, own = (
        sample_gradients(model, LOSS, part) for part in (run.task.validation, (run.inputs, run.labels))
    )
    total = torch.zeros(len(run.labels))
    for name, each in own.items():
        gradients = each.flatten(1)
        damping = 0.1 * float(gradients.square().mean())
        total += attribution.mean_of_inverses(held[name].sum(0).flatten(), gradients, damping=damping)
    return total


@static("TRAK")
def trak(run: Run) -> Tensor:
    """Score by the gradients of the log-odds, projected to 128 numbers (Park et al. 2023)."""
    model, width = first_round(run), 128
    run.meter.apart += attribution.inverse_operations(len(run.labels), width)
    return attribution.projected_values(
        model, (run.inputs, run.labels), run.task.validation, width=width, seed=run.seed
    )


@static("KNN-Shapley")
def knn_shapley(run: Run) -> Tensor:
    """Score by the exact Shapley value in a vote of the five nearest (Jia et al. 2019)."""
    return attribution.neighbour_values((run.inputs, run.labels), run.task.validation, nearest=5).sum(0)


@static("confident learning")
def confident(run: Run) -> Tensor:
    """Drop what classifiers that have not seen it confidently call something else (Northcutt et al. 2021)."""
    fold = torch.randperm(len(run.labels), generator=run.generator) % 5
    chance = torch.zeros(len(run.labels), int(run.labels.max()) + 1)
    for each in range(5):
        seen = fold != each
        model = attribution.linear(run.inputs[seen], run.labels[seen], chance.shape[1])
        chance[~seen] = model(run.inputs[~seen]).softmax(1)
    return (attribution.confident_class(chance, run.labels) == run.labels).float()
