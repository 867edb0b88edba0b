"""From batches to weights: a pass runs them forward, a scorer scores what it read, the policy weighs."""

import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from lai_torch._curation.outcome import weigh
from lai_torch._curation.passes.base import Forward, Pass
from lai_torch._curation.passes.choice import Passes
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.scorers.base import Batch, Scored
from lai_torch._curation.scorers.choice import scorer
from lai_torch._curation.scorers.records import UnlikeError
from lai_torch._curation.summary_cache import SummaryCache
from lai_torch._curation.validation import Validation
from lai_torch._model.batch import Loss, mapped
from lai_torch._model.preserve import evaluating
from lai_torch.options import Estimator, Kept
from lai_torch.options.asking import wants
from lai_torch.options.protocols import AnyPolicy


class Scoring:
    """The first three stages of a step: pass, score, weigh.

    Attributes
    ----------
    scorer, summaries, passes
        What scores, what it scores against, and the passes to choose from.
    """

    def __init__(
        self,
        engine: Engine,  # the model, and how several processes train it
        loss: Loss,  # loss, optimizer: as for a curator
        optimizer: torch.optim.Optimizer | None,
        validation: Validation,  # what batches are scored against
        *,
        estimator: Estimator,  # how
        policy: AnyPolicy,  # what weighs; whether it asks for validation losses decides whether they are kept
        refresh: int,  # at how many steps a summary is old
        backward: str,  # backward, training: which pass a step takes, and how the pass `kept` trains
        training: Kept,
    ) -> None:
        model = engine.model
        self._engine, self._group, self._validation = engine, engine.group, validation
        self._fits_weights = estimator.facts.fits_weights
        self._chunk, positions = (getattr(estimator, name, None) for name in ("chunk", "positions"))
        self.scorer = scorer(model, loss, optimizer, estimator, validation.generator)
        self.scorer.group, self.scorer.one_set = self._group, isinstance(validation.source, tuple)
        keeps = "validation_losses" in wants(policy)
        self.summaries = SummaryCache(model, validation, self.scorer, refresh, positions, keeps_losses=keeps)
        self.passes = Passes(model, loss, self.scorer, backward, self._chunk, training, engine)

    def score(
        self, batches: Sequence[Batch], samples: int, chosen: Pass, *, steps: bool, curated: bool = True
    ) -> tuple[Forward, Scored | None]:
        """Run batches, of so many samples, forward by a pass; score them together if they are curated."""
        self._see(batches)
        if not curated:
            return self.passes.kept.forward(batches[0], None), None
        once = evaluating(self._engine.model) if chosen is self.passes.kept else nullcontext()
        with self._engine.gathered(by_block=self.scorer.by_block), once:
            seen = self.summaries.staying.seen
            summary = self._summary(samples, steps=steps)
            if self.summaries.staying.seen != seen:  # the validation set may tell more
                self._see(batches)
            with self._group.agreed():
                forwards = [chosen.forward(batch, summary) for batch in batches]
            readings = itertools.chain.from_iterable(forward.readings for forward in forwards)
            try:
                scored = self.scorer.score(readings, summary)
            except UnlikeError:
                self.summaries.forget()
                return self.score(batches, samples, chosen, steps=steps)
        if not self._engine.compared:
            with evaluating(self._engine.model):
                self._engine.compare(self.scorer.losses_of(batches[0]), scored.losses)
        return forwards[0], scored

    def _see(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.summaries.staying.see(batch)

    def _summary(self, samples: int, *, steps: bool) -> Any:
        """Return what a batch is scored against, made no more samples at a time than it has."""
        if self._fits_weights:  # on as many samples as the whole batch has
            samples = int(self._group.totals(samples)[0])
        step = samples if steps else None
        return self.summaries.get(
            min(samples, self._chunk or samples), step, again=self.scorer.deferred.again
        )

    def weigh(
        self,
        scored: Scored | None,
        batches: Sequence[Batch],
        samples: int,
        policy: AnyPolicy,
        **told: Any,
    ) -> Tensor:
        """Turn all processes' scores into weights, and return this one's; where nothing is scored, all alike.

        The policy may ask for what is `told`, the losses, and what it measures of the batches.
        """
        if scored is None:
            everyone = self._group.totals(samples)[0]
            device = next(self._engine.model.parameters()).device
            return torch.full((samples,), 1.0 / everyone, device=device)
        asked, own = wants(policy), {}
        if "losses" in asked:
            own["losses"] = scored.losses
        if "measured" in asked:
            copies = [mapped(batch, torch.clone) for batch in batches]  # a policy may write to its arguments
            with self._group.agreed():
                own["measured"] = torch.cat([policy.measure(*batch) for batch in copies])  # type: ignore[attr-defined]
        told["validation_losses"] = self.summaries.losses
        return weigh(self._group, scored, policy, told, own, self.scorer.deferred)

    def take(self, scored: Scored, share: float) -> None:
        """Take in a batch that was trained on, of which `share` was kept."""
        self.scorer.take(scored)
        self.passes.observe(share)

    def owners(self) -> list[Any]:
        """Return the objects whose attributes hold what scoring changes."""
        return [
            self.passes,
            self.summaries,
            self.summaries.staying,
            self._validation,
            *self.scorer.owners(),
        ]

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as tensors and plain values."""
        return {
            "share": self.passes.share,
            "summary": self.summaries.state(),
            "scorer": self.scorer.state(),
            "generator": self._validation.generator.get_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self.passes.share = state["share"]
        self.summaries.load_state(state["summary"])
        self.scorer.load_state(state["scorer"])
        self._validation.generator.set_state(state["generator"])
