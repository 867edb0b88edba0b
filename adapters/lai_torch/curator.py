"""The training loop: score a batch, select, update."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._batch import Loss, count, rows
from lai_torch._preserve import evaluating
from lai_torch._scoring import ESTIMATORS, finite_chunks, score, summarize, traced
from lai_torch._update import update

Policy = Callable[[Tensor], Tensor]


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
        Whether there was no update: no sample kept, or a gradient that is not finite.
    positions
        What LAI's product means on layers with positions; None where it does not matter.
    """

    step: int
    scores: Tensor | None
    weights: Tensor
    losses: Tensor
    loss: float
    kept: int
    dropped: int
    skipped: bool
    positions: str | None


class Curator:
    """Trains a model on the samples of each batch that help a validation set.

    Scoring happens in eval mode, in full precision and without touching parameters, `.grad`,
    running statistics or random streams; then the update runs in the model's own mode on the kept
    samples alone.

    Parameters
    ----------
    model
        The model.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number per sample.
    optimizer
        Steps on the model's parameters. None for those who only call `score`.
    validation
        `(inputs, targets)`, or a `ValidationSummary` of this model, which is then never refreshed.
    estimator
        `ghost`, `lai`, `lli` or `preconditioned_lai`.
    policy
        From scores `(n,)`, positive helps, to weights `(n,)`, for example `lai_core.keep_positive`.
    positions
        What LAI's product means on layers with positions; None: `tokens` if every layer has the last
        layer's positions, else `mean`; the report says which.
    warmup
        How many steps train on everything first.
    refresh
        The validation set is traced again every so many curated steps.
    share
        The share of the validation set that each refresh draws, in (0, 1].
    generator
        For that draw; a CPU generator. None: torch's default one.

    Attributes
    ----------
    steps, skipped, dropped
        Counters: steps taken, steps without an update, samples left out as not finite.

    Raises
    ------
    TypeError
        If `validation` is neither of the two.
    ValueError
        If an option is unknown or out of range.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> inputs, targets = torch.randn(8, 4), torch.randint(3, (8,))
    >>> curator = lai_torch.Curator(model, loss, optimizer, (inputs, targets))
    >>> report = curator.step(inputs, targets)
    >>> report.kept <= 8
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer | None,
        validation: Any,
        *,
        estimator: str = "lai",
        policy: Policy = lai.keep_positive,
        positions: str | None = None,
        warmup: int = 0,
        refresh: int = 1,
        share: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        _check(validation, estimator, positions, warmup=warmup, refresh=refresh, share=share)
        self.model, self.loss, self.optimizer, self.validation = model, loss, optimizer, validation
        self.estimator, self.policy, self.positions = estimator, policy, positions
        self.warmup, self.refresh, self.share, self.generator = warmup, refresh, share, generator
        self.steps = self.skipped = self.dropped = 0
        self._summary: lai.ValidationSummary | None = None
        self._age = 0
        self._second_moment: Tensor | None = None
        self._proved = False

    def step(self, inputs: Any, targets: Any) -> Report:
        """Score the batch, select, and update on what is kept.

        Parameters
        ----------
        inputs, targets
            One batch, as for `lai_torch.trace`.

        Returns
        -------
        Report
            Scores, weights, what was kept and dropped, the loss.

        Raises
        ------
        ValueError
            If the curator has no optimizer.
        """
        if self.optimizer is None:
            msg = "optimizer: expected an optimizer to step with, got None (score() needs none)"
            raise ValueError(msg)
        weigh = self._warm if self.steps < self.warmup else self.score
        weights, scored = weigh(inputs, targets)
        done = update(self.model, self.loss, self.optimizer, inputs, targets, weights)
        report = Report(
            step=self.steps,
            scores=scored.scores,
            weights=done.weights,
            losses=done.losses if scored.scores is None else scored.losses,
            loss=done.loss,
            kept=int((done.weights > 0).sum()),
            dropped=scored.dropped + done.dropped,
            skipped=not done.taken,
            positions=scored.positions,
        )
        self.steps += 1
        self.skipped += report.skipped
        self.dropped += report.dropped
        return report

    def score(self, inputs: Any, targets: Any) -> tuple[Tensor, Report]:
        """Score a batch without updating, for people with their own loop.

        Parameters
        ----------
        inputs, targets
            One batch, as for `lai_torch.trace`.

        Returns
        -------
        tuple
            The weights `(n,)` with which to train, and the report.
        """
        samples = count(inputs, targets)
        with evaluating(self.model):
            summary = self._current(samples)
            trace, losses = traced(
                self.model, self.loss, (inputs, targets), self.estimator, verify=not self._proved
            )
        self._proved = True
        finite = torch.isfinite(losses)
        if self.estimator == "preconditioned_lai" and bool(finite.any()):
            outputs: Any = trace.layers[-1].output_gradients
            self._second_moment = lai.update_second_moment(self._second_moment, outputs[finite])
        scores = self._scored(summary, trace, losses)
        finite = finite & torch.isfinite(scores)
        scores = torch.where(finite, scores, torch.full_like(scores, math.nan))
        weights = torch.where(finite, self.policy(scores), torch.zeros_like(scores))
        used = weights > 0
        report = Report(
            step=self.steps,
            scores=scores,
            weights=weights,
            losses=losses,
            loss=float((weights[used] * losses[used].to(weights)).sum()) if bool(used.any()) else math.nan,
            kept=int(used.sum()),
            dropped=int((~finite).sum()),
            skipped=False,
            positions=summary.positions,
        )
        return weights, report

    def _warm(self, inputs: Any, targets: Any) -> tuple[Tensor, Report]:
        """Weigh every sample alike, unscored."""
        samples = count(inputs, targets)
        device = next(self.model.parameters()).device
        weights = torch.full((samples,), 1.0 / samples, device=device)
        unseen = torch.full_like(weights, math.nan)
        return weights, Report(self.steps, None, weights, unseen, math.nan, samples, 0, False, None)

    def _scored(self, summary: lai.ValidationSummary, trace: lai.Trace, losses: Tensor) -> Tensor:
        if self.estimator == "preconditioned_lai" and self._second_moment is None:
            return torch.full_like(losses, math.nan)
        return score(self.estimator, summary, trace, self._second_moment)

    def _current(self, size: int) -> lai.ValidationSummary:
        """Return the validation summary, traced again when it is `refresh` steps old."""
        if isinstance(self.validation, lai.ValidationSummary):
            return self.validation
        if self._summary is None or self._age >= self.refresh:
            chunks = finite_chunks(
                self.model, self.loss, self._drawn(), self.estimator, size=size, verify=not self._proved
            )
            self._summary = summarize(chunks, self.estimator, self.positions)
            self._age = 0
        self._age += 1
        return self._summary

    def _drawn(self) -> tuple[Any, Any]:
        """Return the share of the validation set that this refresh uses."""
        inputs, targets = self.validation
        if self.share == 1.0:
            return inputs, targets
        samples = count(inputs, targets)
        order = torch.randperm(samples, generator=self.generator)
        return rows((inputs, targets), order[: math.ceil(self.share * samples)], samples)


def _check(
    validation: Any, estimator: str, positions: str | None, *, warmup: int, refresh: int, share: float
) -> None:
    """Raise unless the options of a curator are sound."""
    if not isinstance(validation, lai.ValidationSummary) and not (
        isinstance(validation, tuple) and len(validation) == 2
    ):
        msg = (
            f"validation: expected (inputs, targets) or a ValidationSummary, got {type(validation).__name__}"
        )
        raise TypeError(msg)
    if estimator not in ESTIMATORS:
        msg = f"estimator: expected one of {ESTIMATORS}, got {estimator!r}"
        raise ValueError(msg)
    if positions not in {None, "tokens", "mean"}:
        way_out = (
            "; 'flatten' has no summary: trace and use lai_core.lai_scores" if positions == "flatten" else ""
        )
        msg = f"positions: expected None, 'tokens' or 'mean', got {positions!r}{way_out}"
        raise ValueError(msg)
    if not isinstance(warmup, int) or warmup < 0:
        msg = f"warmup: expected a number of steps, 0 or more, got {warmup!r}"
        raise ValueError(msg)
    if not isinstance(refresh, int) or refresh < 1:
        msg = f"refresh: expected a number of steps, 1 or more, got {refresh!r}"
        raise ValueError(msg)
    if not 0.0 < share <= 1.0:
        msg = f"share: expected a share in (0, 1], got {share!r}"
        raise ValueError(msg)
