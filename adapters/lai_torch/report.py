"""What one step of the curator did."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Report:
    """What one step did.

    Attributes
    ----------
    step
        Number of the step, from 0.
    scores
        `(n,)`; positive helps: the first-order decrease of the summed validation loss per unit
        learning rate, on the parameters the estimator sees. NaN for dropped samples. None in warm-up.
    weights
        `(n,)`: the update minimised `sum_j weights_j loss_j`.
    losses
        `(n,)`, each sample's loss when it was scored; in warm-up, when it was trained on.
    loss
        `sum_j weights_j loss_j`; NaN if nothing was kept.
    kept
        How many samples have a positive weight.
    dropped
        How many were left out because their score or loss was not finite.
    skipped
        Whether the batch contributed nothing: no sample kept, or a gradient that is not finite.
    updated
        Whether the optimizer stepped: always, unless skipped or while gradients accumulate.
    positions
        What LAI's product means on layers with positions; None where it does not matter.
    age
        How many steps ago the validation set was traced.
    group_drops
        Of each group, the share that got no weight; None without groups.
    backward
        Which way the step took, `kept`, `selective` or `whole`.
    layer_weights
        `(L,)`: what calibrated LAI multiplied each layer by, in the order of the trace; else None.
    cost
        What scoring by pairs of tokens took, sketched or not, in forward passes of the batch, counted in
        multiply-adds; None where scores are not made from pairs of tokens.
    method, reason
        How exact scores were computed, and why not by forward mode; see `exact_scores`. Else None.
    """

    step: int
    scores: Tensor | None
    weights: Tensor
    losses: Tensor
    loss: float
    kept: int
    dropped: int
    skipped: bool
    updated: bool
    positions: str | None
    age: int
    group_drops: dict[Any, float] | None = None
    backward: str = "kept"
    layer_weights: Tensor | None = None
    cost: float | None = None
    method: str | None = None
    reason: str | None = None


def unscored(step: int, weights: Tensor) -> Report:
    """Build the report of a step that trains on everything.

    Returns
    -------
    Report
        Without scores.
    """
    return Report(
        step=step,
        scores=None,
        weights=weights,
        losses=torch.full_like(weights, math.nan),
        loss=math.nan,
        kept=len(weights),
        dropped=0,
        skipped=False,
        updated=False,
        positions=None,
        age=0,
    )


def write_audit(path: Path, report: Report, ids: Any) -> None:
    """Append one JSON line per sample: its id, the step, score, weight and decision."""
    names = list(range(len(report.weights))) if ids is None else _listed(ids)
    scores = [None] * len(names) if report.scores is None else report.scores.tolist()
    lines = []
    for name, score, weight in zip(names, scores, report.weights.tolist(), strict=True):
        finite = score if score is None or math.isfinite(score) else None
        decision = "kept" if weight > 0 else "dropped"
        line = {"step": report.step, "id": name, "score": finite, "weight": weight, "decision": decision}
        lines.append(json.dumps(line))
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))


def _listed(ids: Any) -> list[Any]:
    return ids.tolist() if isinstance(ids, Tensor) else list(ids)
