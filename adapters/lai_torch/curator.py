"""The training loop: score a batch, select, update."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._curation.groups import dropped_shares, with_floor
from lai_torch._curation.options import (
    check_chunk,
    check_groups,
    check_ids,
    check_model,
    check_options,
    check_preconditioning,
)
from lai_torch._curation.passes.choice import Ways
from lai_torch._curation.scorers.base import Scored
from lai_torch._curation.scorers.choice import scorer
from lai_torch._curation.summary_cache import Refreshed
from lai_torch._curation.update import Updater
from lai_torch._curation.validation import Validation, own_stream
from lai_torch._model.batch import Loss, count
from lai_torch.report import Report, unscored, write_audit

Policy = Callable[[Tensor], Tensor]


class Curator:
    """Trains a model on the samples of each batch that help a validation set.

    Scoring happens in eval mode, in full precision and without touching parameters, `.grad`,
    running statistics or random streams; then the update runs in the model's own mode on the kept
    samples alone.

    Parameters
    ----------
    model
        The model; a compiled one is scored eagerly and trained compiled.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number per sample.
    optimizer
        Steps on the model's parameters. None for those who only call `score`.
    validation
        `(inputs, targets)`; a loader of such pairs, of which each refresh takes the next and which
        starts again when it runs dry (one that cannot leaves its last summary in use); a
        `ValidationSummary` of this model, which is never refreshed; `"batch"`: each batch itself,
        every sample left out of its own score; `"batch+self"`: the same with its own, as the paper
        prints it.
    estimator
        `ghost`, `lai`, `lli`, `preconditioned_lai`, `calibrated_lai` (LAI with layer weights that each
        refresh fits to Ghost on at most a batch, or chunk, of validation samples), `gate_lai` (LAI
        corrected pair by pair for what activations pass back; chains of linear layers, and the validation
        set's traces are kept), `exact`, or `midpoint` (at the middle of the SGD step that the optimizer's
        learning rates make).
    policy
        From scores `(n,)`, positive helps, to weights `(n,)`: `lai_core.keep_positive`, `keep_top`,
        `reweight`, `KeepAbove`, or your own. Acts on each micro-batch by itself.
    positions
        What LAI's product means on layers with positions: `tokens`, `mean` or `flatten` (which has no
        sum: the validation set's traces are kept). None: `tokens` if every layer has the last layer's
        positions, else `mean`; the report says which. `routes` lists what each takes.
    sketch
        Width to which the last layer's output gradients are sketched, for `lai` and `calibrated_lai`:
        pairs of tokens at `sketch / outputs` of their cost, unbiased over the draw of signs and
        permutation, which each refresh makes anew (with the batch as validation, each step).
    decay, exponent
        For `preconditioned_lai`: which share of the second moment stays at each batch, and the power of it
        that output gradients' products are divided by: 1.0 as printed, 0.5 as Adam steps.
    chunk
        Score, and trace the validation set, at most so many samples at once: the same scores in less
        memory, above all for `ghost`. None: the whole batch.
    warmup
        How many steps train on everything first.
    refresh
        The validation set is traced again every so many curated steps.
    share
        The share of the validation set that each refresh draws, in (0, 1].
    generator
        For that draw and the sketch's; a CPU generator. None: one of its own, seeded from torch's seed, so
        that training's random stream is as if nothing were drawn.
    accumulate
        How many calls of `step` make one optimizer step. Scores do not depend on it.
    autocast
        Type in which training, not scoring, computes its forward pass.
    scaler
        A `torch.amp.GradScaler` for training.
    group_floor
        Share of every group (see `step`) that is kept at least, in [0, 1].
    last
        Name of the final layer, where several reach the loss side by side; Ghost needs none.
    backward
        `kept`: score the batch without a graph, then run forward and backward on the kept rows.
        `selective`: one forward pass in the model's own mode for scoring and training both, and the
        backward pass on the kept rows of what it saved; for `lai`, `lli`, `preconditioned_lai` and
        `calibrated_lai` on models that compile in one graph and couple no samples. The first step that
        drops a sample checks the gradient against the masked one; `selfcheck(..., backward="selective")`
        checks it against plain autograd. A batch of one sample is `kept`. `whole`: one uncompiled forward
        pass in the model's own mode for both, and the backward pass of the whole batch, weighted: 3 forwards
        whatever is kept, where `kept` takes 1 + 3 k for a share k; same estimators, not with BatchNorm in
        training mode. `auto`: `whole` while the running mean of the share kept is above 2/3 and no
        BatchNorm trains, else `kept`; the report says which.
    audit
        A file to which one JSON line per sample and step is appended.

    Attributes
    ----------
    steps, skipped, dropped
        Counters: steps taken, batches that contributed nothing, samples left out as not finite.

    Raises
    ------
    TypeError
        If `validation` is of no known kind.
    ValueError
        If an option is unknown or out of range, two do not go together, or the model is spread over
        processes (DistributedDataParallel and its like).

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
        sketch: int | None = None,
        decay: float = 0.999,
        exponent: float = 1.0,
        chunk: int | None = None,
        warmup: int = 0,
        refresh: int = 1,
        share: float = 1.0,
        generator: torch.Generator | None = None,
        accumulate: int = 1,
        autocast: torch.dtype | None = None,
        scaler: Any = None,
        group_floor: float = 0.0,
        last: str | None = None,
        backward: str = "kept",
        audit: str | Path | None = None,
    ) -> None:
        check_model(model)
        generator = own_stream() if generator is None else generator
        self._validation = Validation(validation, share, generator)
        check_options(
            self._validation,
            optimizer,
            estimator=estimator,
            positions=positions,
            sketch=sketch,
            group_floor=group_floor,
            backward=backward,
            plain=autocast is None and scaler is None,
            counts={"warmup": (warmup, 0), "refresh": (refresh, 1), "accumulate": (accumulate, 1)},
        )
        check_preconditioning(estimator, decay, exponent)
        check_chunk(chunk, self._validation, estimator, backward)
        self.model, self.validation, self.policy = model, validation, policy
        self.warmup, self.group_floor = warmup, group_floor
        self.audit = None if audit is None else Path(audit)
        self.steps = self.skipped = self.dropped = 0
        self._scorer = scorer(
            model,
            loss,
            optimizer,
            estimator,
            positions,
            last,
            sketch,
            generator,
            decay=decay,
            exponent=exponent,
        )
        self._refreshed = Refreshed(model, self._validation, self._scorer, refresh)
        self._ways = Ways(model, loss, self._scorer, backward, chunk)
        self._updater = (
            None if optimizer is None else Updater(model, loss, optimizer, accumulate, autocast, scaler)
        )

    def step(self, inputs: Any, targets: Any, *, ids: Any = None, groups: Tensor | None = None) -> Report:
        """Score the batch, select, and update on what is kept.

        Parameters
        ----------
        inputs, targets
            One batch, as for `lai_torch.trace`. Every tensor in it whose first axis has the length of
            the batch is taken to hold one row per sample; the rest is passed on as it is.
        ids
            What the samples are called in the audit, `(n,)`; None: their place in the batch. The same
            id may come again.
        groups
            `(n,)` integers, for example classes: the report says which share of each was dropped, and
            `group_floor` applies to each.

        Returns
        -------
        Report
            Scores, weights, what was kept and dropped, the loss.

        Raises
        ------
        ValueError
            If the curator has no optimizer, or ids or groups do not fit the batch.
        """
        if self._updater is None:
            msg = "optimizer: expected an optimizer to step with, got None (score() needs none)"
            raise ValueError(msg)
        check_ids(ids, count(inputs, targets))
        if self.steps < self.warmup:
            weights, scored = self._warm(inputs, targets, groups)
        else:
            weights, scored = self._selected(inputs, targets, groups, self._ways.next())
        backward = self._ways.backward_of(scored.backward)
        if backward is not None:
            done = self._updater.take(weights, scored.losses, backward)
        else:
            done = self._updater(inputs, targets, weights)
        report = dataclasses.replace(
            scored,
            weights=done.weights,
            losses=done.losses if scored.scores is None else scored.losses,
            loss=done.loss,
            kept=int((done.weights > 0).sum()),
            dropped=scored.dropped + done.dropped,
            skipped=not done.used,
            updated=done.updated,
            group_drops=None if groups is None else dropped_shares(done.weights, groups),
        )
        if report.scores is not None:
            self._ways.observe(report.kept / len(report.weights))
        self.steps += 1
        self.skipped += report.skipped
        self.dropped += report.dropped
        if self.audit is not None:
            write_audit(self.audit, report, ids)
        return report

    def score(self, inputs: Any, targets: Any, *, groups: Tensor | None = None) -> tuple[Tensor, Report]:
        """Score a batch without updating, for people with their own loop.

        Parameters
        ----------
        inputs, targets, groups
            One batch, as for `step`.

        Returns
        -------
        tuple
            The weights `(n,)` with which to train, and the report.
        """
        return self._selected(inputs, targets, groups, "kept")

    def _selected(self, inputs: Any, targets: Any, groups: Tensor | None, way: str) -> tuple[Tensor, Report]:
        """Score a batch and turn scores into weights."""
        check_groups(groups, count(inputs, targets))
        found = self._scored((inputs, targets), way)
        finite = torch.isfinite(found.losses) & torch.isfinite(found.scores)
        scores = torch.where(finite, found.scores, torch.full_like(found.scores, math.nan))
        weights = torch.where(finite, self.policy(scores), torch.zeros_like(scores))
        if groups is not None and self.group_floor > 0:
            weights = with_floor(weights, scores, groups, self.group_floor)
        used = weights > 0
        loss = float((weights[used] * found.losses[used].to(weights)).sum()) if bool(used.any()) else math.nan
        report = Report(
            step=self.steps,
            scores=scores,
            weights=weights,
            losses=found.losses,
            loss=loss,
            kept=int(used.sum()),
            dropped=int((~finite).sum()),
            skipped=False,
            updated=False,
            positions=found.positions,
            age=self._refreshed.age,
            group_drops=None if groups is None else dropped_shares(weights, groups),
            backward=found.backward,
            layer_weights=found.layer_weights,
            cost=found.cost,
            method=found.method,
            reason=found.reason,
        )
        return weights, report

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, as tensors and plain values (`torch.load(weights_only=True)`).

        Model, optimizer, scaler and a loader's place have states of their own, and gradients that
        still accumulate are in the parameters: save between optimizer steps.

        Returns
        -------
        dict
            Counters, second moment, summary and its age, the generator's state.
        """
        return {
            "steps": self.steps,
            "skipped": self.skipped,
            "dropped": self.dropped,
            "share": self._ways.share,
            "refreshed": self._refreshed.state(),
            "scorer": self._scorer.state(),
            "generator": self._validation.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state that `state_dict` returned.

        Parameters
        ----------
        state
            That state, from a curator with the same options.
        """
        self.steps, self.skipped, self.dropped = state["steps"], state["skipped"], state["dropped"]
        self._ways.share = state["share"]
        self._refreshed.load_state(state["refreshed"])
        self._scorer.load_state(state["scorer"])
        self._validation.generator.set_state(state["generator"])

    def _warm(self, inputs: Any, targets: Any, groups: Tensor | None) -> tuple[Tensor, Report]:
        """Weigh every sample alike, unscored."""
        samples = count(inputs, targets)
        check_groups(groups, samples)
        device = next(self.model.parameters()).device
        weights = torch.full((samples,), 1.0 / samples, device=device)
        return weights, unscored(self.steps, weights)

    def _scored(self, batch: tuple[Any, Any], way: str) -> Scored:
        """Score a batch against the validation set, or itself, on the forward pass that `way` has."""
        size = count(*batch)
        summary = None
        if not self._validation.is_batch:
            summary = self._refreshed.get(min(size, self._ways.chunk or size))
        return self._ways.score(way, summary, batch, exclude_self=self._validation.source == "batch")
