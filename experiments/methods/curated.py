"""What the paper proposes and its kin, through `lai_torch.Curator`: what users call is what is measured."""

import warnings
from typing import Any

import lai_torch
from torch import Tensor

import lai_core as lai
from experiments.methods.base import LOSS, METHODS, Method, Run, Step

FORWARD = "a forward pass of batch and validation set"
BACKWARD = "a pass forward and back of batch and validation set"


def curated(estimator: Any, **options: Any) -> Any:
    """Return the start of a curator's run that keeps the samples with a positive score."""

    def start(run: Run) -> Step:
        curator = lai_torch.Curator(
            run.model,
            LOSS,
            run.optimizer,
            run.task.validation,
            estimator=estimator,
            policy=lai.keep_positive,
            **options,
        )

        def step(rows: Tensor) -> Tensor:
            with warnings.catch_warnings():  # what the validation set costs is what is measured
                warnings.filterwarnings("ignore", message="refresh: ")
                return curator.step(*run.batch(rows)).weights

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
):
    METHODS[name] = Method(name, "the validation set", costs, curated(estimator, **options))
