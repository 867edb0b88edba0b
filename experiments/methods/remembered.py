"""The policies of the search: softer rules than the zero threshold, what earlier epochs said, mixing in."""

import warnings
from typing import Any

import lai_torch
import torch
from torch import Tensor

import lai_core as lai
from experiments.methods.base import LOSS, METHODS, Method, Run, Step

QUARTER = 0.25
"""Of the validation set, drawn anew at each step: what scores it costs a quarter."""
RULES: dict[str, Any] = {
    "positive": lambda scores, labels: lai.keep_positive(scores),
    "soft weights": lambda scores, labels: lai.reweight(scores),
    "half of each class": lambda scores, labels: lai_torch.GroupFloor(0.5)(scores, groups=labels),
}


def ruled(estimator: str, rule: str, *, mixed: bool, every: int = 1) -> Any:
    """Return the start of a run that weighs each batch by a rule, or by the majority of its epochs so far.

    Scores every so many epochs; in between the majority holds. `mixed`: each step is followed by one on a
    batch of the validation set.
    """

    def start(run: Run) -> Step:
        curator = lai_torch.Curator(
            run.model, LOSS, None, run.task.validation, estimator=estimator, share=QUARTER
        )
        votes = torch.zeros(len(run.labels))  # for keeping, less those against

        def step(rows: Tensor) -> Tensor:
            inputs, labels = run.batch(rows)
            if round(run.progress * run.task.epochs) % every == 0:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="refresh: ")
                    scores = curator.score(inputs, labels)[1].scores.cpu()
                votes[rows] += scores.sign()
            if rule in RULES:
                weights = run.update(rows, RULES[rule](scores, labels.cpu()))
            else:
                weights = run.train_on(votes >= 0)(rows)
            if mixed:
                run.mix_in()
            return weights

        return step

    return start


GRID: list[str] = []
"""The policies of the search, written down before any of them was run."""
for estimator, rule, every in (
    *(("LAI", rule, 1) for rule in (*RULES, "majority")),
    ("LAI", "majority", 4),
    ("Ghost", "majority", 4),
):
    for mixed in (False, True):
        name = f"{estimator}, {rule}" + ", each fourth epoch" * (every > 1) + ", mixed in" * mixed
        costs = f"a pass of batch and a quarter of the validation set every {every} epochs" + (
            "; a step on 32 validation samples" if mixed else ""
        )
        METHODS[name] = Method(
            name, "the validation set", costs, ruled(estimator.lower(), rule, mixed=mixed, every=every)
        )
        GRID.append(name)
