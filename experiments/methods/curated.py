"""What the paper proposes and its kin, through `lai_torch.Curator`: what users call is what is measured."""

import warnings
from functools import partial
from typing import Any

import lai_torch
from torch import Tensor

import lai_core as lai
from experiments.methods.base import LOSS, METHODS, Method, Run, Step

FORWARD = "a forward pass of batch and validation set"
BACKWARD = "a pass forward and back of batch and validation set"


def curated(
    estimator: Any, *, warm: float = 0.0, floor: float = 0.0, policy: Any = lai.keep_positive, **options: Any
) -> Any:
    """Return the start of a curator's run that keeps the samples with a positive score, or as a policy says.

    It begins after a share `warm` of the epochs, and keeps a share `floor` of each class at least.
    """

    def start(run: Run) -> Step:
        masked = estimator == "lai" and run.task.valid is not None
        curator = lai_torch.Curator(
            run.model,
            LOSS,
            run.optimizer,
            run.task.validation,
            estimator=lai_torch.LAI(valid=run.task.valid) if masked else estimator,
            share=run.task.share,
            policy=lai_torch.GroupFloor(floor, policy) if floor else policy,
            warmup=round(warm * run.task.epochs) * run.steps,
            **options,
        )

        def step(rows: Tensor) -> Tensor:
            with warnings.catch_warnings():  # what the validation set costs is what is measured
                warnings.filterwarnings("ignore", message="refresh: ")
                inputs, labels = run.batch(rows)
                return curator.step(inputs, labels, groups=labels if floor else None).weights.cpu()

        return step

    return start


for name, costs, estimator, options in (
    ("Ghost", BACKWARD, "ghost", {}),
    ("LAI", FORWARD, "lai", {}),
    ("LLI", FORWARD, "lli", {}),
    ("preconditioned LAI", FORWARD, "preconditioned_lai", {}),
    ("calibrated LAI", FORWARD, "calibrated_lai", {}),
    ("midpoint", BACKWARD + ", twice", "midpoint", {}),
    ("Ghost, refresh 8", BACKWARD + " every 8 steps", "ghost", {"refresh": 8}),
    ("LAI, refresh 8", FORWARD + " every 8 steps", "lai", {"refresh": 8}),
    ("LAI, best half", FORWARD, "lai", {"policy": partial(lai.keep_top, fraction=0.5)}),
    ("LAI, half of each class", FORWARD, "lai", {"floor": 0.5}),
    ("LAI, after a warm-up", FORWARD + " in two fifths of the steps", "lai", {"warm": 0.6}),
    ("Ghost, after a warm-up", BACKWARD + " in two fifths of the steps", "ghost", {"warm": 0.6}),
    (
        "LAI, warm-up and half of each class",
        FORWARD + " in two fifths of the steps",
        "lai",
        {"warm": 0.6, "floor": 0.5},
    ),
):
    METHODS[name] = Method(name, "the validation set", costs, curated(estimator, **options))
