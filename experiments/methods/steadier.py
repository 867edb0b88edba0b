"""Scores with less noise of the validation set: from summaries of several steps, and with error bars."""

import itertools
import warnings
from collections import deque

import lai_torch
import torch
from torch import Tensor

import lai_core as lai
from experiments.methods.base import LOSS, Run, Step, method

REMEMBERED = 4
"""A quarter of the validation set is traced at each step, in turn; the summaries of four steps score."""
PARTS = 10
"""Of the validation set, whose scores' spread makes the error bars."""


@method("LAI, four summaries", sees="the validation set", costs="a forward pass of batch and a quarter of it")
def four_summaries(run: Run) -> Step:
    """Keep what is positive against the sum of the summaries of the last four steps."""
    inputs, labels = run.task.validation
    held: deque[lai.ValidationSummary] = deque(maxlen=REMEMBERED)
    quarters = itertools.cycle(torch.randperm(len(labels), generator=run.generator).chunk(REMEMBERED))

    def step(rows: Tensor) -> Tensor:
        drawn = next(quarters)
        held.append(lai.summarize(lai_torch.trace(run.model, LOSS, inputs[drawn], labels[drawn]), "lai"))
        scores = lai.lai_scores(sum(held), lai_torch.trace(run.model, LOSS, *run.batch(rows)))
        return run.update(rows, lai.keep_positive(scores.cpu()))

    return step


@method("LAI, error bars", sees="the validation set", costs="a forward pass of batch and validation set")
def error_bars(run: Run) -> Step:
    """Drop only what hurts for certain: at most a tenth of what is dropped would not, on average."""
    curator = lai_torch.Curator(
        run.model,
        LOSS,
        run.optimizer,
        run.task.validation,
        estimator=lai_torch.LAI(parts=PARTS),
        policy=lai.drop_harmful,
    )

    def step(rows: Tensor) -> Tensor:
        with warnings.catch_warnings():  # what the validation set costs is what is measured
            warnings.filterwarnings("ignore", message="refresh: ")
            return curator.step(*run.batch(rows)).weights.cpu()

    return step
