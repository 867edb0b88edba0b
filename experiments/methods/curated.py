"""What the paper proposes and its kin, through `lai_torch.Curator`: what users call is what is measured."""

from collections.abc import Callable
from functools import partial
from typing import Any

import lai_torch
from torch import Tensor

import lai_core as lai
from experiments.methods.base import LOSS, METHODS, Run, Step


def curated(
    estimator: Any, *, warm: float = 0.0, floor: float = 0.0, policy: Any = lai.keep_positive, **options: Any
) -> Callable[[Run], Step]:
    """Return the start of a curator's run that keeps the samples with a positive score, or as a policy says.

    It begins after a share `warm` of the epochs, and keeps a share `floor` of each class at least.
    """

    def start(run: Run) -> Step:
        curator = lai_torch.Curator(
            run.model,
            LOSS,
            run.optimizer,
            run.task.validation,
            estimator=estimator,
            policy=lai_torch.GroupFloor(floor, policy) if floor else policy,
            warmup=round(warm * run.task.epochs) * run.steps,
            **options,
        )

        def step(rows: Tensor) -> Tensor:
            groups = run.labels[rows] if floor else None
            report = curator.step(*run.batch(rows), groups=groups)
            if report.scores is not None:
                run.scores[rows] = report.scores
            return report.weights

        return step

    return start


METHODS |= {
    "Ghost": curated("ghost"),
    "LAI": curated("lai"),
    "LLI": curated("lli"),
    "preconditioned LAI": curated("preconditioned_lai"),
    "calibrated LAI": curated("calibrated_lai"),
    "gate-corrected LAI": curated("gate_lai"),
    # what the paper's "negative influence is discarded" keeps, taken literally
    "LAI as printed": curated("lai", policy=lambda scores: lai.keep_positive(-scores)),
    "plain, scored by LAI": curated("lai", policy=lai.keep_all),
    "midpoint": curated("midpoint"),
    "Ghost, refresh 8": curated("ghost", refresh=8),
    "LAI, refresh 8": curated("lai", refresh=8),
    "LAI, best half": curated("lai", policy=partial(lai.keep_top, fraction=0.5)),
    "LAI, half of each class": curated("lai", floor=0.5),
    "LAI, after a warm-up": curated("lai", warm=0.6),
    "Ghost, after a warm-up": curated("ghost", warm=0.6),
    "LAI, warm-up and half of each class": curated("lai", warm=0.6, floor=0.5),
    # At most a tenth of what is dropped does no harm, on average: the parts' spread makes the error bars.
    "LAI, error bars": curated(lai_torch.LAI(parts=10), policy=lai.drop_harmful),
}
