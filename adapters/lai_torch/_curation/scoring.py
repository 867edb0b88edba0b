"""From batches to weights: a pass runs them forward, a scorer scores what it read, the policy weighs."""

import itertools
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import torch

from lai_torch._curation.estimators import Scorer, make_scorer
from lai_torch._curation.passes.base import Forward, KeptPass, WholePass, acts_alike
from lai_torch._curation.passes.selective import SelectivePass
from lai_torch._curation.passes.synchronised import SynchronisedPass
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.readings import Batch, Itself, Scored
from lai_torch._curation.state import CuratorState, ValidationSide
from lai_torch._curation.validation import Validation, move_to_model, select_keys
from lai_torch._graph.unlike import UnlikeError
from lai_torch._model.batch import count
from lai_torch._model.function import UnusableError
from lai_torch._model.preserve import use_eval_mode
from lai_torch._model.snapshot import VERSION
from lai_torch._model.walk import forget, list_parameters
from lai_torch.options import Estimator, KeptOptions
from lai_torch.options.protocols import Policy, wants

Pass = KeptPass | WholePass | SelectivePass
"""What computes what the estimator reads, then the gradient of the weighted losses."""
NOTE = "This happened while tracing the validation set."
"""On errors of the model or the loss, which do not say on which batch."""
TRIALS = 4
"""Scored steps of each pass that `auto` times; the quickest counts, for a first one proves and compiles."""


class Passes:
    """The passes that a curator may take, and the choice between them.

    Attributes
    ----------
    kept
        The pass that scores without a step, and trains where nothing is scored.
    shared
        The pass that scores and trains on one forward pass; `kept` where none was asked for.
    timing
        Whether the faster of both is to be found: `auto`.
    """

    def __init__(
        self,
        scorer: Scorer,  # what reads a batch
        backward: str,  # `kept`, `selective`, `whole`, or `auto`, the faster of `kept` and `whole`
        training: KeptOptions,  # how the pass `kept` trains
        engine: Engine | None = None,  # how several processes train; None: there is one
    ) -> None:
        self.model, self.group = scorer.model, scorer.group
        self.kept = KeptPass(scorer, training)
        if engine is not None and engine.spread and backward == "kept":
            self.kept = SynchronisedPass(engine, scorer, training)
        self.shared: Pass = self.kept
        tracer = scorer.tracer
        if tracer is not None and backward == "selective":
            self.shared = SelectivePass(tracer, self.kept)
        elif tracer is not None and backward in {"whole", "auto"}:
            self.shared = WholePass(tracer, self.kept)
        self.timing = backward == "auto" and isinstance(self.shared, WholePass)

    def choose(
        self, state: CuratorState, batch: Batch, *, scored: bool
    ) -> tuple[CuratorState, Pass, float | None]:
        """Return the pass of the next step, whose batch is scored or not, and the state with that choice.

        And the time at which the step begins; None if it is not timed.
        """
        if not scored:
            return state, self.kept, None
        if not self.timing:
            return state, self.shared, None
        if state.backward is None and not state.timed:
            assert isinstance(self.shared, WholePass)
            with self.group.raise_together():
                differs = not acts_alike(self.shared.tracer, batch)
            if self.group.totals(differs)[0]:
                state = replace(state, backward="kept")
        if state.backward == "kept":
            return state, self.kept, None
        if state.backward is not None:
            return state, self.shared, None
        return state, (self.kept, self.shared)[len(state.timed) % 2], self._read_time()

    def observe(self, state: CuratorState, began: float) -> CuratorState:
        """Return the state with the time of a step that is timed; choose once all are."""
        timed = (*state.timed, self.group.totals(self._read_time() - began)[0])
        state, kept, whole = replace(state, timed=timed), timed[::2], timed[1::2]
        if len(timed) < 2 * TRIALS:
            return state
        if min(kept) <= min(whole):
            return replace(state, backward="kept")
        return replace(state, backward="whole")

    def _read_time(self) -> float:
        """Return the time once the device is done."""
        device = next(self.model.parameters()).device
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return time.perf_counter()


class Scoring:
    """The first stages of a step: a validation side that is not old, a pass, scores, weights.

    Attributes
    ----------
    scorer, passes
        What scores, and the passes to choose from.
    """

    def __init__(
        self,
        engine: Engine,  # the model, and how several processes train it
        optimizer: torch.optim.Optimizer | None,  # as for a curator
        validation: Validation,  # what batches are scored against
        *,
        estimator: Estimator,  # how
        policy: Policy,  # what weighs; whether it asks for validation losses decides whether they are kept
        refresh: int,  # at how many steps a summary is old
        backward: str,  # backward, training: which pass a step takes, and how the pass `kept` trains
        training: KeptOptions,
        max_norm: float | None = None,  # to which gradients are clipped
    ) -> None:
        self._engine, self._group, self._validation = engine, engine.group, validation
        one_set, remakes = isinstance(validation.source, tuple), not validation.is_summary
        options: dict[str, Any] = {"group": self._group, "one_set": one_set, "remakes": remakes}
        options["max_norm"] = max_norm
        self.scorer = make_scorer(
            engine.model, engine.loss, optimizer, estimator, validation.generator, **options
        )
        self._every = refresh
        self._keeps_losses = "validation_losses" in wants(policy)
        self._given: Itself | ValidationSide | None = None  # what is not drawn
        if validation.is_batch:
            self._given = Itself(exclude_self=validation.source == "batch")
        elif validation.is_summary:
            self._given = ValidationSide((validation.source,), validation.source.positions)
        self.passes = Passes(self.scorer, backward, training, engine)

    def score(
        self,
        state: CuratorState,
        batches: Sequence[Batch],
        samples: int,
        chosen: Pass,
        *,
        curated: bool = True,
    ) -> tuple[CuratorState, Forward, Scored | None]:
        """Run batches, of so many samples, forward by a pass; score them together if they are curated.

        Returns the state with the side that they were scored against. Nothing else has changed.
        """
        if not curated:
            return state, self.passes.kept.forward(batches[0], None), None
        tracer = self.scorer.tracer
        if tracer is not None:
            tracer.recall(state)
        once = use_eval_mode(self._engine.model) if chosen is self.passes.kept else nullcontext()
        with self._engine.gather(), once:
            state = self._refresh(state, samples)
            side = self._given or state.side
            with self._group.raise_together():
                forwards = [chosen.forward(batch, side) for batch in batches]
            readings = itertools.chain.from_iterable(forward.readings for forward in forwards)
            scored = None
            with suppress(UnlikeError):
                scored = self.scorer.score(readings, side, state)
            if tracer is not None:
                state = tracer.remember(state)
            if scored is None:  # the side is made again, of the records that the batch has
                return self.score(replace(state, side=None), batches, samples, chosen)
        return state, forwards[0], scored

    def _refresh(self, state: CuratorState, samples: int) -> CuratorState:
        """Return the state with a side that is not old, for a step on so many samples."""
        if self.scorer.fit is not None:  # on as many samples as the whole batch has
            samples = int(self._group.totals(samples)[0])
        if self._given is not None:
            return state
        trains = tuple(one.requires_grad for one in list_parameters(self._engine.model).values())
        elsewhere = state.versions is not None and state.versions != self.read_versions()
        old = elsewhere or state.trains not in {None, trains} or state.served >= self._every
        if state.side is None or old or not self.scorer.fits(state.side):
            state = self._make(state, min(samples, self.scorer.chunk or samples))
        return replace(state, served=state.served + 1, trains=trains)

    def read_versions(self) -> tuple[tuple[int, int], ...] | None:
        """Return which parameters there are and their versions, by which it shows that a step finds others.

        A side that is not old yet is made again where others changed them since, by a checkpoint or by steps
        of a plain loop. Several processes have to make it together, and know alone of what trains that it is
        the same on each.
        """
        if self._given is not None or self._group.size > 1:
            return None
        held = list_parameters(self._engine.model).values()
        return tuple(zip(map(id, held), map(VERSION, held), strict=True))

    def _make(self, state: CuratorState, size: int) -> CuratorState:
        """Return the state with a side of the next draw; as it is, with a warning, if that is no use."""
        drawn = self._draw()
        ago = f"{state.served} step{'s' * (state.served > 1)} ago"
        # no process has a batch; where one has, all take part
        if not self._group.reduce_max(drawn is not None):
            if state.side is None:
                msg = "validation: expected at least one batch from the loader, got none"
                raise ValueError(msg)
            # said once
            if not state.ended:
                warnings.warn(
                    f"validation: the iterator has ended and cannot start again; the summary made {ago} "
                    "stays in use; pass a loader, which starts again at its end",
                    UserWarning,
                    stacklevel=2,
                )
            return replace(state, ended=True)
        try:
            with use_eval_mode(self._engine.model):
                side, losses = self.scorer.summarize(drawn, size), None
                if self._keeps_losses:
                    losses = self.scorer.measure_losses(drawn, size)
        # a draw that is of no use ends no run that has an earlier side
        except UnusableError as error:
            if state.side is None:
                raise
            warnings.warn(f"{error}; the summary made {ago} stays in use", UserWarning, stacklevel=2)
            return state
        except Exception as error:
            error.add_note(NOTE)
            raise
        return replace(state, side=side, validation_losses=losses, served=0)

    def _draw(self) -> Batch | None:
        """Return the next batch of the source."""
        forget()  # a loader runs code of the user's
        with self._group.raise_together():
            drawn = self._validation.draw()
            if drawn is None:
                return None
            drawn = move_to_model(select_keys(self._engine.model, drawn), self._engine.model)
            try:
                count(*drawn)
            except ValueError as error:
                error.add_note(NOTE)
                raise
            return drawn
