"""What one step of the curator did, as an object and as rows."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lai_core._adapters import warn_of_old_name

QUANTILES = {"low": 0.05, "median": 0.5, "high": 0.95}
"""Quantiles of a batch's scores that are logged."""


@dataclass(frozen=True, repr=False)
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
        `(n,)`, each sample's loss when it was scored; in warm-up, when it was trained on (NaN from `weigh`).
    kept
        How many samples have a positive weight; of several processes, on all of them.
    dropped
        How many were left out because their score or loss was not finite.
    skipped
        Whether the batch contributed nothing: no sample kept, or a gradient that is not finite. Parameters,
        buffers and the optimizer's state are then as if it had not come.
    updated
        Whether the optimizer stepped: always, unless skipped or while gradients accumulate.
    positions
        What LAI's product means on layers with positions; None where it does not matter.
    age
        How many steps ago the validation set was traced.
    group_drops
        Of each group, the share that got no weight; None without groups.
    backward
        Which pass the step took, `kept`, `selective` or `whole`.
    layer_weights
        `(L,)`: what calibrated LAI multiplied each layer by, in the order of the trace; else None.
    method
        How exact scores were computed; see `exact_scores`. Else None.
    reason
        Why exact scores were not computed by forward mode; None where they were, and for other scores.
    parts
        The scores against each of the parts that the validation set was cut into, `(m, n)`, for
        `lai_core.standard_errors`; None where it was not cut.
    sizes
        How many samples each part has; None where the validation set was not cut.
    kept_fraction
        The fraction of the batch, on all processes, that has a positive weight.
    trained_losses
        `(n,)`, the losses that were minimised, NaN of rows that `kept` did not run; None: `losses`.
    total
        The sum of the weighted losses on all processes; None where there is one.
    collectives
        How many collectives the call took beside those of a wrapper's own training; 0 on one process.
    bytes_sent
        How many bytes this process handed to these collectives; 0 on one process.
    """

    step: int
    scores: Tensor | None
    weights: Tensor
    losses: Tensor
    kept: int
    dropped: int
    skipped: bool
    updated: bool
    positions: str | None = None
    age: int = 0
    group_drops: dict[Any, float] | None = None
    backward: str = "kept"
    layer_weights: Tensor | None = None
    method: str | None = None
    reason: str | None = None
    parts: Tensor | None = None
    sizes: tuple[int, ...] | None = None
    kept_fraction: float = 0.0
    trained_losses: Tensor | None = None
    total: float | None = None
    collectives: int = 0
    bytes_sent: int = 0

    @property
    def share(self) -> float:
        """The old name of `kept_fraction`, for one release."""
        warn_of_old_name("Report.share", "kept_fraction")
        return self.kept_fraction

    @cached_property
    def loss(self) -> float:
        """`sum_j weights_j loss_j`; NaN if nothing was kept. Computed when it is first read."""
        # of several processes, the sum over all of them has been sent already
        if self.total is not None:
            return self.total
        # those of the pass that trained, which dropout makes others than the scored ones
        losses = self.losses if self.trained_losses is None else self.trained_losses
        return sum_weighted_losses(self.weights, losses)

    def __repr__(self) -> str:
        """Say what became of the batch, in a line; its arrays by their length."""
        became = "not updated"
        if self.updated:
            became = "updated"
        elif self.skipped:
            became = "skipped"
        return (
            f"Report(step={self.step}, samples={len(self.weights)}, kept={self.kept}, "
            f"dropped={self.dropped}, loss={self.loss:.4g}, {became}, backward={self.backward!r})"
        )

    def metrics(self) -> dict[str, float]:
        """Return what a logger takes of the step: a flat dictionary of finite floats.

        The trainers of `lai_torch.integrations` log some of these. Reading the values waits for
        the device.

        Returns
        -------
        dict
            `curation/kept`, the fraction with a positive weight; `curation/loss`, the weighted loss;
            `curation/not_finite`, how many samples had no finite score or loss; `curation/skipped`, 1 where
            the batch contributed nothing; `curation/validation_age` in steps; `curation/score_low`, `_median`
            and `_high`, 5%, 50% and 95% quantiles of the scores; `curation/dropped/GROUP`, the share of each
            group without weight. A value that is absent or not finite has no entry.

        Examples
        --------
        >>> import torch
        >>> import lai_torch
        >>> model, loss = torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(reduction="none")
        >>> data, validation = ((torch.randn(n, 4), torch.randint(3, (n,))) for n in (8, 32))
        >>> _, report = lai_torch.Curator(model, loss, None, validation).score(*data)
        >>> sorted(report.metrics())[:4]
        ['curation/kept', 'curation/loss', 'curation/not_finite', 'curation/score_high']
        """
        found = {
            "kept": self.kept_fraction,
            "loss": self.loss,
            "not_finite": float(self.dropped),
            "skipped": float(self.skipped),
            "validation_age": float(self.age),
            **{f"dropped/{group}": share for group, share in (self.group_drops or {}).items()},
        }
        if self.scores is not None:
            found |= score_quantiles(self.scores)
        return {f"curation/{name}": value for name, value in found.items() if math.isfinite(value)}

    def rows(self, ids: Any = None) -> list[dict[str, Any]]:
        """Return one row a sample, of plain values that JSON has: what is not finite is None.

        Parameters
        ----------
        ids
            What the samples are called, `(n,)`: a tensor, an array or a list. None: their place in the
            batch. The same id may come again.

        Returns
        -------
        list of dict
            `step`, `id`, `score`, `loss`, `weight`, and `decision`, `kept` or `dropped`.
        """
        samples = len(self.weights)
        if ids is not None:
            check_ids(ids, samples)
            # arrays of any library give plain numbers so
            if hasattr(ids, "tolist"):
                ids = ids.tolist()
            ids = [one.item() if hasattr(one, "item") else one for one in ids]
        scores = [None] * samples if self.scores is None else self.scores.tolist()
        columns = ids or range(samples), scores, self.losses.tolist(), self.weights.tolist()
        return [
            {
                "step": self.step,
                "id": name,
                "score": _finite(score),
                "loss": _finite(loss),
                "weight": weight,
                "decision": "kept" if weight > 0 else "dropped",
            }
            for name, score, loss, weight in zip(*columns, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class ScoredReport(Report):
    """What one step or one call of `score` did that scored its batch: `scores` are there."""

    scores: Tensor


def score_quantiles(scores: Tensor) -> dict[str, float]:
    """Return `score_low`, `score_median` and `score_high` of the finite scores; nothing if there are none."""
    # one score that is not finite would be every quantile
    finite = scores.detach()[torch.isfinite(scores)].double()
    return {
        f"score_{name}": float(finite.quantile(at)) for name, at in QUANTILES.items() if finite.numel() > 0
    }


def sum_weighted_losses(weights: Tensor, losses: Tensor) -> float:
    """Return the sum of the losses with a positive weight, weighted; NaN if there is none."""
    kept = weights > 0
    # a sum of nothing is no loss of 0
    if not bool(kept.any()):
        return float("nan")
    # a policy's weights may be of few digits, in which a sum of losses overflows
    kind = torch.promote_types(torch.promote_types(weights.dtype, losses.dtype), torch.float32)
    return float((weights[kept].to(kind) * losses[kept].to(weights.device, kind)).sum())


def check_ids(ids: Any, samples: int) -> None:
    """Raise unless there is one id per sample."""
    if len(ids) != samples:
        msg = f"ids: expected one per sample ({samples}), got {len(ids)}"
        raise ValueError(msg)


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None
