"""Weights of a batch's samples, for loops that train by themselves, and the loop: score, select, update."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import accept_old_keywords
from lai_torch._curation.checks import (
    check_counts,
    check_kinds,
    check_micro_batches,
    check_model,
    check_optimizer,
    check_seen,
    check_together,
    check_trains,
    count_samples,
)
from lai_torch._curation.outcome import count_step, gather_groups, join_groups, make_report
from lai_torch._curation.passes.base import Gradient, weigh_losses
from lai_torch._curation.processes.checks import check_alike, check_call, check_spread
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.readings import Batch, Scored
from lai_torch._curation.scoring import Scoring
from lai_torch._curation.state import CuratorState, dump_state, load_state
from lai_torch._curation.undo import Undo
from lai_torch._curation.update import Updater
from lai_torch._curation.validation import Validation, make_batch, make_generator
from lai_torch._curation.weigh import weigh
from lai_torch._model.batch import Loss, check_auxiliary, count
from lai_torch._model.preserve import run_alone
from lai_torch._model.walk import Step
from lai_torch.options import Estimator, EstimatorName, KeptOptions, Policy, with_defaults
from lai_torch.options.passes import PassName
from lai_torch.options.protocols import applies, check_policy
from lai_torch.report import Report, ScoredReport

EMPTY = 50
"""After so many steps in a row that keep nothing, a warning says so."""


class Weigher:
    """Weighs the samples of each batch by how they help a validation set, and trains nothing.

    Scoring happens in eval mode (by the model's own `train()` and `eval()` where it overrides them), in full
    precision and without touching parameters, `.grad`, running statistics or random streams.

    Parameters
    ----------
    model
        The model; a compiled one is scored eagerly and trained compiled. One that
        `DistributedDataParallel` wraps or `fully_shard` shards finds what one process would find on the
        whole batch; see `process_group`.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number per sample.
    validation
        `(inputs, targets)`, or one mapping for both as in `step`, moved to the model's device; a list of
        samples (input, target), which are collated; a loader of batches: each refresh takes the next one,
        and restarts it at its end; a `ValidationSummary` of this model, which is never refreshed;
        `"batch"`: each batch itself, every sample left out of its own score; `"batch+self"`: the same with
        its own, as the paper prints it. A generator cannot restart: at its end its last summary stays in
        use, with a warning.
    estimator
        By name, or with its options: `ghost` (`Ghost`), `lai` (`LAI`), `lli` (`LLI`),
        `preconditioned_lai` (`PreconditionedLAI`), `calibrated_lai` (`CalibratedLAI`), `gate_lai`
        (`GateLAI`), `exact` (`Exact`) or `midpoint` (`Midpoint`).
    policy
        From scores `(n,)`, positive helps, to weights `(n,)`: `lai_core.keep_positive`, `keep_top`,
        `reweight`, `keep_all` (scores are reported only), or your own. Of an estimator with `parts` it sees
        the scores against each part: `lai_core.drop_harmful`.

        One that names them among its arguments sees `losses` `(n,)`, the `groups` of the batch (or None),
        the number of the `step`, or the `validation_losses` of the latest refresh: `KeepBelowLoss`,
        `GroupFloor`. `Scheduled` asks a policy at some steps only.
    warmup
        How many steps train on everything first.
    refresh
        The validation set is traced again every so many curated steps; also where other parameters train
        than before, and in one process where others changed them since the last `step`: by a checkpoint, or
        by steps of a plain loop. A write through `.data` is not seen.
    validation_fraction
        The fraction of the validation set that each refresh draws, in (0, 1].
    generator
        CPU generator for the draws of `validation_fraction` and the sketch. None: one of its own, seeded
        from torch's seed, so that training's random stream is as if nothing were drawn.
    process_group
        The processes whose batches are one batch: a process group, or a mesh of one dimension. None: those
        of the model's wrapper; without a wrapper there has to be one process. `False`: this process alone.
        Scores are those of one process with the whole batch, and the policy sees all of them; of a report,
        what has an entry a sample, and `bytes_sent`, are of this process, all else of the whole batch. What
        one process raises, each raises. While a sharded model scores, its parameters, each in its own type,
        have to fit on each device; gradients of training and the optimizer's state stay sharded.

    Attributes
    ----------
    state
        What the next step depends on beside the model, as one value.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> inputs, targets = torch.randn(8, 4), torch.randint(3, (8,))
    >>> weigher = lai_torch.Weigher(model, loss, (inputs, targets))
    >>> (weights,), report = weigher.weigh([(inputs, targets)])
    >>> weigher.objective(loss(model(inputs), targets), weights).backward()
    """

    model: nn.Module
    validation: Any
    policy: Policy
    estimator: Estimator
    warmup: int
    state: CuratorState
    # optimizer, accumulate, max_norm and backward of a `Curator`
    _training: tuple[Any, int, float | None, PassName | KeptOptions] = None, 1, None, "kept"

    @accept_old_keywords(share="validation_fraction", group="process_group")
    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        validation: Any,
        *,
        estimator: EstimatorName | Estimator = "lai",
        policy: Policy = lai.keep_positive,
        warmup: int = 0,
        refresh: int = 1,
        validation_fraction: float = 1.0,
        generator: torch.Generator | None = None,
        process_group: Any = None,
    ) -> None:
        optimizer, accumulate, max_norm, backward = self._training
        check_kinds(model, loss, generator)
        if generator is None:
            generator = make_generator()
        training = KeptOptions()
        # options of the pass that runs the kept rows again
        if isinstance(backward, KeptOptions):
            training, backward = backward, "kept"
        # without an optimizer the gradients are those of a loop, which the wrapper adds up
        own = optimizer is not None and (backward != "kept" or accumulate != 1)
        self._engine = Engine(model, loss, process_group, own=own)
        self._group, model = self._engine.group, self._engine.model
        with self._group.raise_together():
            check_model(model)
            chosen = with_defaults(estimator)
            self._validation = Validation(validation, validation_fraction, generator)
            check_together(chosen, self._validation, optimizer, backward)
            check_counts(warmup, refresh, accumulate, max_norm)
            check_policy(policy, getattr(chosen, "parts", None))
            check_seen(policy, self._validation)
            check_optimizer(optimizer, model)
            check_spread(self._engine, chosen, self._validation, backward, training)
        check_alike(self._engine, self._validation)
        # draws have to be those of the other processes: all take the first one's state
        generator.set_state(self._group.objects(generator.get_state())[0])
        self.model, self.validation, self.policy = model, validation, policy
        self.estimator, self.warmup = chosen, warmup
        self.state = CuratorState(chosen.name)
        self._step, self._optimizer = Step(), optimizer
        self._scoring = Scoring(
            *(self._engine, optimizer, self._validation),
            estimator=chosen,
            policy=policy,
            refresh=refresh,
            backward=backward,
            training=training,
            max_norm=max_norm,
        )
        self._group.take_traffic()  # reports count what calls take

    def __repr__(self) -> str:
        """Name the estimator, what it scores against, and how far training is."""
        source = self.validation
        if not isinstance(self.validation, str):
            source = type(self.validation).__name__
        facts = f"validation={source}, steps={self.steps}, skipped={self.skipped}"
        return f"{type(self).__name__}({self.estimator}, {facts})"

    def __reduce__(self) -> NoReturn:
        """Refuse copies: a curator belongs to the model and the optimizer that it was made with."""
        msg = (
            "curator: expected no copy of one, by copy or pickle; make one for the copied model, and hand "
            "over state_dict() by load_state_dict()"
        )
        raise TypeError(msg)

    @run_alone
    def score(
        self, inputs: Any, targets: Any = None, *, groups: Tensor | Sequence[str] | None = None
    ) -> tuple[Tensor, ScoredReport]:
        """Score a batch without updating, for people with their own loop.

        Counts no step: a warm-up and a schedule do not begin, second moments stay, and only the validation
        summary's age changes. Where one of them is to matter, call `weigh`.

        Parameters
        ----------
        inputs, targets, groups
            One batch, as for `step`.

        Returns
        -------
        tuple
            The weights `(n,)` with which to train, and the report.
        """
        with self._step, self._undo():
            with self._group.raise_together():
                batch = inputs, targets
                if targets is None:
                    batch = make_batch(self._engine.model, inputs)
                samples = count_samples(batch, groups)
            self.state, _, weights, report = self._score_and_weigh("score", [batch], samples, groups)
        return weights, cast(ScoredReport, self._add_traffic(report))

    @run_alone
    def weigh(
        self, batches: Sequence[Any], *, groups: Sequence[Tensor | Sequence[str]] | None = None
    ) -> tuple[list[Tensor], Report]:
        """Take the first half of a step, for trainers that update by themselves: score, weigh and count.

        The micro-batches of one optimizer step, of all processes, are scored one by one and weighed
        together, so that it does not matter how a batch is cut. Warm-up, schedule and second moments go on
        as by `step`. Minimise the sum of what `objective` makes of each.

        Parameters
        ----------
        batches
            One or several, each `(inputs, targets)` or a mapping, as for `step`. They may be of different
            lengths and forms. Estimators that read a batch in one part (`preconditioned_lai`, `midpoint`,
            and every one with the batch as validation) take one.
        groups
            Those of each batch, as for `step`.

        Returns
        -------
        tuple
            The weights of each batch, which add up to the policy's sum over all of them, and the report on
            all of this process's rows, one batch behind the other.
        """
        with self._step, self._undo():
            with self._group.raise_together():
                pairs = [make_batch(self._engine.model, batch) for batch in batches]
                check_micro_batches(pairs, groups, self.estimator, self._validation)
                # the policy sees one batch, whatever the micro-batches are
                own = join_groups(groups)
                curated = self._curates()
            sizes = [count(*pair) for pair in pairs]
            state, scored, weights, report = self._score_and_weigh(
                "weigh", pairs, sum(sizes), own, curated=curated
            )
            # counted here: the trainer's own update is not seen
            self.state = count_step(state, scored, report)
        self._warn_of_nothing()
        return list(weights.split(sizes)), self._add_traffic(report)

    @accept_old_keywords(share="fraction")
    def objective(
        self, losses: Tensor, weights: Tensor, *, auxiliary: Tensor | None = None, fraction: float = 1.0
    ) -> Tensor:
        """Return what to call `backward()` on, given the losses of a batch and its weights from `weigh`.

        Rows of weight 0 may be left out before the model runs, all but one: where a model is wrapped, every
        process has to take part in every backward pass.

        Parameters
        ----------
        losses, weights
            `(n,)`, of the same rows.
        auxiliary
            A loss that trains and was not scored, as `KeptOptions(auxiliary=)` returns it: `(n,)`, weighed
            as the losses are, or a single number.
        fraction
            By which a single number is multiplied: of all kept rows of the step, those that are here.

        Returns
        -------
        Tensor
            The weighted sum, times what the model's wrapper will divide it by.
        """
        terms = [losses]
        if auxiliary is not None:
            terms = [losses, check_auxiliary(auxiliary, len(losses))]
        held = [
            torch.where(weights > 0, each, torch.zeros_like(each)) if each.ndim else each for each in terms
        ]
        return weigh_losses(held, weights, fraction) * self._engine.factor

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, as tensors and plain values (`torch.load(weights_only=True)`).

        Model, optimizer, scaler and a loader's place have states of their own, and gradients that
        still accumulate are in the parameters: save between optimizer steps.

        Returns
        -------
        dict
            Counters, second moment, summary and its age, the generator's state.
        """
        state = self.state
        # others changed the parameters since: the next step makes the side again, of a resumed run too
        if state.versions not in {None, self._scoring.read_versions()}:
            state = replace(state, trains=())
        return dump_state(state) | {"generator": self._validation.generator.get_state()}

    @run_alone
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state that `state_dict` returned, of this release or the one before.

        Parameters
        ----------
        state
            That state, from a curator with the same options.
        """
        loaded = load_state(self.state, state)
        # after the check of the state, so that a refusal changes nothing
        self._validation.generator.set_state(state["generator"])
        self.state = loaded

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return self.state.steps

    @property
    def skipped(self) -> int:
        """Number of batches that contributed nothing."""
        return self.state.skipped

    @property
    def dropped(self) -> int:
        """Number of samples left out because their loss or score was not finite."""
        return self.state.dropped

    def _undo(self) -> Undo:
        return Undo(self.model, self._scoring.scorer.loss, self._validation.generator, self._optimizer)

    def _curates(self) -> bool:
        return self.steps >= self.warmup and applies(self.policy, self.steps)

    def _meet(self, call: str, curated: bool = True) -> None:
        """Begin a call on all processes or on none: see that each makes it, and is as far as the others."""
        if self._group.size == 1:
            return
        groups = getattr(self._optimizer, "param_groups", ())
        rates = [each["lr"] for each in groups if isinstance(each.get("lr"), float)]  # the host knows these
        counts = {"steps": self.steps, "curated": int(curated), "accumulated batches": self.state.batches}
        counts["the summary's age"] = self.state.served
        check_call(self._engine, call, counts, rates)

    def _score_and_weigh(
        self, call: str, batches: list[Batch], samples: int, groups: Any, *, curated: bool = True
    ) -> tuple[CuratorState, Scored | None, Tensor, Report]:
        """Score and weigh without an update; return the state with the side that was scored against."""
        self._meet(call, curated)
        named, kept = gather_groups(self._group, groups), self._scoring.passes.kept
        state, _, scored = self._scoring.score(self.state, batches, samples, kept, curated=curated)
        weighed = weigh(self._engine, state, scored, samples, self.policy, named, wait=True)
        losses = torch.full_like(weighed.weights, torch.nan) if scored is None else scored.losses
        found = Gradient("kept", losses, used=weighed.kept > 0)
        report = make_report(self._group, scored, weighed, found, named, state)
        return state, scored, weighed.weights, report

    def _add_traffic(self, report: Report) -> Report:
        if self._group.size == 1:
            return report
        collectives, sent = self._group.take_traffic()
        return replace(report, collectives=collectives, bytes_sent=sent)

    def _warn_of_nothing(self) -> None:
        if self.state.idle == EMPTY:
            warnings.warn(
                f"policy: nothing was kept in {EMPTY} steps in a row, so that nothing trained; look at "
                "report.scores, at the validation set, and at what the policy asks of a score",
                UserWarning,
                stacklevel=4,
            )


class Curator(Weigher):
    """Trains a model on the samples of each batch that help a validation set: a `Weigher` with an optimizer.

    A step scores as a `Weigher` does; then the update runs in the model's own mode on the kept samples alone.
    Where several processes share a batch and no wrapper adds gradients up, the curator does, once a step.

    Parameters
    ----------
    model, loss, validation, estimator, policy, warmup, refresh, validation_fraction, generator, process_group
        As for `Weigher`.
    optimizer
        Steps on the model's parameters. None: there is no `step`, and `accumulate`, `max_norm` and `backward`
        do nothing; see `Weigher`.
    accumulate
        How many calls of `step` make one optimizer step. Scores do not depend on it. The policy acts on each
        micro-batch by itself; `weigh` weighs those of a step together.
    max_norm
        Clips the global gradient norm of an optimizer step to this, like `clip_grad_norm_`.
    backward
        Which pass a step takes; the report says which it was.

        `kept`: score the batch in a pass of its own, then run forward and backward on the kept rows: 1 + 3 k
        forward passes for a kept share k. `KeptOptions` says in which precision it trains.

        `selective`: one forward pass in the model's own mode for scoring and training both, and the
        backward pass on the kept rows of what it saved: 1 + 2 k. For `lai`, `lli`, `preconditioned_lai`
        and `calibrated_lai` on models that compile in one graph and couple no samples. The first step
        that drops a sample checks the gradient against the masked one. A batch of one sample is `kept`.

        `whole`: one uncompiled forward pass in the model's own mode for both, and the backward pass of
        the whole batch, weighted: 3, whatever is kept. For every estimator but `exact` and `midpoint`,
        not with BatchNorm in training mode. A batch of one sample that draws otherwise than beside a copy
        is `kept`, as is one with a loss that is not finite.

        `auto`: the faster of `kept` and `whole`, timed in turn on the first eight scored steps; `kept`
        where the model computes something else in training mode than in eval mode.

    Attributes
    ----------
    state
        What the next step depends on beside model and optimizer, as one value.

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

    @accept_old_keywords(share="validation_fraction", group="process_group")
    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: torch.optim.Optimizer | None,
        validation: Any,
        *,
        estimator: EstimatorName | Estimator = "lai",
        policy: Policy = lai.keep_positive,
        warmup: int = 0,
        refresh: int = 1,
        validation_fraction: float = 1.0,
        generator: torch.Generator | None = None,
        accumulate: int = 1,
        max_norm: float | None = None,
        backward: PassName | KeptOptions = "kept",
        process_group: Any = None,
    ) -> None:
        options: dict[str, Any] = {"estimator": estimator, "policy": policy, "warmup": warmup}
        options |= {"refresh": refresh, "validation_fraction": validation_fraction}
        options |= {"generator": generator, "process_group": process_group}
        self._training = optimizer, accumulate, max_norm, backward
        super().__init__(model, loss, validation, **options)
        scaler = getattr(backward, "scaler", None)
        self._updater = Updater(optimizer, accumulate, max_norm, scaler, self._engine)

    @run_alone
    def step(
        self,
        inputs: Any,
        targets: Any = None,
        *,
        ids: Any = None,
        groups: Tensor | Sequence[str] | None = None,
    ) -> Report:
        """Score the batch, select, and update on what is kept.

        Where a model, a loss, a policy or a loader raises, model, optimizer and counters are as before the
        step. An optimizer that raises halfway, and an interruption while it steps, leave what it did: load a
        checkpoint. Gradients stay, as after a plain step: remove a loop's own `optimizer.step()`, which would
        step with them again.

        A skipped step changes no parameter, buffer, optimizer state or second moment; see `Report.skipped`.

        Parameters
        ----------
        inputs, targets
            One batch, as for `lai_torch.trace`. Every tensor in it whose first axis has the length of
            the batch is taken to hold one row per sample: what all samples share, such as a mask of
            positions, belongs into the model, as a buffer. The rest is passed on as it is, but for lists and
            arrays of numpy with an entry a sample, which are refused. Inputs that all have one length have
            that of the targets. A pair without targets is `(inputs, targets)`. A mapping without targets is
            both: the model takes the keys that its `forward` names, the loss sees all of them.
        ids
            What the samples are called, `(n,)`: checked here, for `Report.rows` after the step.
        groups
            `(n,)` whole numbers or text, for example classes: the report says which share of each was
            dropped. Policies may see them (`GroupFloor`), text as numbers.

        Returns
        -------
        Report
            Scores, weights, what was kept and dropped, the loss.
        """
        with self._step:
            with self._undo() as undo:
                with self._group.raise_together():
                    if self._optimizer is None:
                        msg = "optimizer: expected an optimizer to step with, got None (score() needs none)"
                        raise ValueError(msg)
                    batch, curated = (inputs, targets), self._curates()
                    if targets is None:
                        batch = make_batch(self._engine.model, inputs)
                    check_trains(self.model, self._scoring.scorer.loss)
                    samples = count_samples(batch, groups, ids)
                self._meet("step", curated)
                # the first collective: what one process refuses of its batch has been raised on all
                named = gather_groups(self._group, groups)
                state, chosen, began = self._scoring.passes.choose(self.state, batch, scored=curated)
                state, forward, scored = self._scoring.score(state, [batch], samples, chosen, curated=curated)
                weighed = weigh(self._engine, state, scored, samples, self.policy, named)
                state, weighed, found = self._updater.accumulate(state, weighed, forward.backward, undo)
                report = make_report(self._group, scored, weighed, found, named, state)
                # set once the optimizer has stepped, so that an error before leaves the counters as they were
                after = count_step(state, scored, report)
                # a step that is skipped is no measure of how long a pass takes
                if began is not None and not report.skipped:
                    after = self._scoring.passes.observe(after, began)
                try:
                    if report.updated:
                        undo.begin_stepping()
                        self._updater.step()
                except BaseException:
                    # the optimizer has begun, and is not put back: the counters go with it
                    if undo.has_stepped:
                        self.state = replace(after, versions=self._scoring.read_versions())
                    raise
                self.state = after
            self.state = replace(after, versions=self._scoring.read_versions())
        self._warn_of_nothing()
        return self._add_traffic(report)
