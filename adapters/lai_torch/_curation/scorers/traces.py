"""Ghost, LAI and LLI in the loop, from traces."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import DEFAULT_MEMORY_BUDGET, default_positions, joined_summaries
from lai_core.estimators.catalogue import Estimator
from lai_torch._curation.scorers.base import (
    Batch,
    Itself,
    Reading,
    Scored,
    Scorer,
    chunks,
    cut_evenly,
    nothing_finite,
    select_finite,
    share_of,
)
from lai_torch._curation.scorers.summaries import joined, others, sketched
from lai_torch._curation.scorers.tracer import Tracer, UnlikeError, check_alike
from lai_torch._curation.state import CuratorState, ValidationSide
from lai_torch._graph.record import NotFiniteError
from lai_torch._model.batch import Loss, rows
from lai_torch._model.function import UnusableError

Product = Callable[..., Tensor]


class TraceScorer(Scorer):
    """An estimator that is a product of two traces, or of a summary and a trace."""

    by_block = True

    def __init__(
        self,
        model: nn.Module,  # model, loss: what is scored
        loss: Loss,
        tracer: Tracer,  # what traces it
        product: Product,  # the core's function of validation side, trace and options
        *,
        facts: Estimator,  # what the catalogue says of the estimator
        positions: str | None = None,  # how positions are to be read; None: as fits
        sketch: int | None = None,  # how many numbers a position are left of an output gradient; None: all
        generator: torch.Generator | None = None,  # from which each side's sketch is drawn; a CPU generator
        # into how many parts the validation set is cut, each with a score of its own; None: it is
        # not
        cut: int | None = None,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,  # bytes that a summary may take
    ) -> None:
        super().__init__(model, loss)
        self.tracer, self.product, self.facts = tracer, product, facts
        self.positions, self.sketch, self.cut, self.generator = positions, sketch, cut, generator
        self.memory_budget = memory_budget

    def losses_of(self, batch: Batch) -> Tensor:
        """Return the losses of a batch, in the precision of its trace."""
        with self.tracer.lowered():
            return super().losses_of(batch)

    def summarize(self, validation: Batch | None, size: int) -> ValidationSide:
        """Sum the set up, or each of the parts that it is cut into; several processes share the work."""
        if not self._adds_up:
            side: ValidationSide = super().summarize(validation, size)
            return side
        seed = self.draw_seed()
        return self._all_parts(self._share_of(part, size, seed) for part in self._cut(validation))

    def draw_seed(self) -> int | None:
        """Draw the seed of a sketch, if there is to be one; processes draw alike."""
        if self.sketch is None:
            return None
        return int(torch.randint(2**62, (), generator=self.generator, device="cpu"))

    def summary_of(self, validation: Batch, size: int, seed: int | None = None) -> ValidationSide:
        """Sum each part up that the set is cut into, from the start where one has other records."""
        while True:
            try:
                return self._all_parts(self._found(part, size, seed) for part in self._cut(validation))
            except UnlikeError:
                continue

    def _cut(self, validation: Any) -> Iterable[Any]:
        return (validation,) if self.cut is None else cut_evenly(validation, self.cut)

    def _all_parts(self, sides: Iterable[ValidationSide | None]) -> ValidationSide:
        """Return the sides of parts as one; those without a finite loss are None, and left out."""
        found = [side for side in sides if side is not None]
        if not found:
            raise nothing_finite()
        return replace(found[0], parts=tuple(part for side in found for part in side.parts))

    @property
    def _adds_up(self) -> bool:
        """Whether several processes add up what each finds on its part of a set."""
        sums = self.facts.summary is not None and self.positions != "flatten" and not self.facts.fits_weights
        return self.group.size > 1 and sums

    def _share_of(self, validation: Batch | None, size: int, seed: int | None) -> ValidationSide | None:
        """Return the sum over all processes, of which each traces its share of the rows."""
        with self.group.agreed():
            own, share = None, validation
            if validation is not None and self.one_set:
                share = share_of(validation, self.group)
            if share is not None:
                own = self._found(share, size, seed)
        return self._joined(own)

    def _joined(self, own: ValidationSide | None) -> ValidationSide | None:
        device = next(self.model.parameters()).device
        return joined(own, self.group, device, self.memory_budget)

    def told(self, readings: Iterator[Reading], summary: Any) -> tuple[Iterator[Reading], Any]:
        """Add the validation side that the other processes' samples make, where a batch scores itself."""
        if not isinstance(summary, Itself):
            return readings, summary
        with self.group.agreed():
            (reading,) = map(select_finite, readings)  # such a batch is read in one part
        summary = replace(summary, sketch=self.draw_seed())
        if self.group.size == 1:
            return iter([reading]), summary
        with self.group.agreed():
            own, trace = None, reading.seen
            if trace is not None:
                positions = self._positions_for(trace)
                own = ValidationSide((self._summary(trace, positions, summary.sketch),), positions)
        total = self._joined(own)
        if total is not None and own is not None:
            summary = replace(summary, others=others(total, own))
        return iter([reading]), summary

    def _found(self, validation: Batch, size: int, seed: int | None) -> ValidationSide | None:
        """Sum the summaries of all batches with finite losses; None without one."""
        try:
            return self._summed(validation, size, seed)
        except UnusableError:
            return None

    def _summary(self, trace: lai.Trace, positions: str | None, seed: int | None) -> lai.ValidationSummary:
        """Sum one chunk up."""
        name = str(self.facts.summary)
        options: dict[str, Any] = {"positions": positions or "tokens", "memory_budget": self.memory_budget}
        return lai.summarize(self._sketched(trace, seed), name, **options)

    def _summed(self, validation: Batch, size: int, seed: int | None) -> ValidationSide:
        """Sum the chunks' summaries, or keep their traces where there is no such sum."""
        total: lai.ValidationSummary | None = None
        traces: list[lai.Trace] = []
        positions: str | None = None
        for trace, positions in self.finite_traces(validation, size):
            if positions == "flatten" and trace.layers[-1].output_gradients.ndim == 3:
                traces.append(self._sketched(trace, seed))
                continue
            if total is not None:
                self._check_alike(total, trace)
            one = self._summary(trace, positions, seed)
            if total is not None:
                _check_same_layers(total, one)
            total = one if total is None else joined_summaries([total, one], self.memory_budget)
        return ValidationSide(tuple(traces) if total is None else (total,), positions, sketch=seed)

    def finite_traces(self, validation: Batch, size: int) -> Iterator[tuple[Any, str | None]]:
        """Yield the traces of at most `size` rows with finite losses, and how to read positions."""
        positions, nothing = self.positions, True
        for chunk in chunks(validation, size):
            trace = self._trace(chunk, apart=True).seen
            if trace is None:
                continue
            positions, nothing = positions or self._positions_for(trace), False
            yield trace, positions
        if nothing:
            raise nothing_finite()

    def check_alike(self, trace: Any, summary: Any) -> None:
        """Raise `UnlikeError` where a batch has other records than the summary that it is scored against."""
        if isinstance(summary, ValidationSide) and self.remakes:
            self._check_alike(summary.parts[0], trace)

    def _check_alike(self, summary: Any, trace: Any) -> None:
        if self.tracer.every_layer and self.group.size == 1:
            check_alike(self.tracer.reader, summary, trace)

    def read(self, batch: Batch, summary: Any) -> Reading:
        """Trace the batch. A row that is not finite has no score, and moves no other's."""
        # LAI reads one backward pass, in which no row meets another's. Ghost's rows may meet in sums where
        # they are multiplied by zero, which NaN stays: so it waits for the device, and reads the others anew.
        reading = self._trace(batch, apart=self.tracer.every_layer)
        if reading.seen is not None:
            self.check_alike(reading.seen, summary)
        return reading

    def _trace(self, batch: Batch, *, apart: bool) -> Reading:
        """Trace a batch; its finite rows alone, if they are read apart or are all that can be proved."""
        try:
            trace, losses = self.tracer(batch)
            if not apart or bool(torch.isfinite(losses).all()):
                return Reading(losses, trace)
        except NotFiniteError:
            losses = self.losses_of(batch)
        kept = torch.isfinite(losses).nonzero().squeeze(1)
        if not kept.numel():
            return Reading(losses, None, kept)
        trace, _ = self.tracer(rows(batch, kept, losses.shape[0]))
        return Reading(losses, trace, kept)

    def score_part(self, state: CuratorState, summary: ValidationSide | Itself, reading: Reading) -> Scored:
        """Score a trace against a validation side, or itself."""
        return self._scored(summary, reading, self.product)

    def _scored(self, summary: ValidationSide | Itself, reading: Reading, product: Product) -> Scored:
        itself, trace = isinstance(summary, Itself), reading.seen
        weights = None if isinstance(summary, Itself) else summary.layer_weights
        if trace is None:
            nothing = torch.full_like(reading.losses, torch.nan)
            parts = nothing.expand(len(self._sizes(summary) or ()), -1)
            return self._result(summary, nothing, reading, parts, summary.positions, weights)
        positions = self._positions_for(trace) if itself else summary.positions
        trace = self._sketched(trace, summary.sketch)
        options: dict[str, Any] = {} if positions is None else {"positions": positions}
        if weights is not None:
            options["layer_weights"] = weights
        if isinstance(summary, Itself):
            scores = product(trace, trace, exclude_self=summary.exclude_self, **options)
            if summary.others is not None:
                scores = scores + product(summary.others, trace, **options)
            parts = scores[None]
        else:
            products = [product(part, trace, **options) for part in summary.parts]
            parts = products[0][None] if len(products) == 1 else torch.stack(products)
        if reading.rows is not None:
            everyone = parts.new_full((len(parts), len(reading.losses)), torch.nan)
            everyone[:, reading.rows] = parts
            parts = everyone
        scores = parts[0] if len(parts) == 1 else parts.sum(0)
        return self._result(summary, scores, reading, parts, positions, weights)

    def _result(
        self,
        summary: ValidationSide | Itself,
        scores: Tensor,
        reading: Reading,
        parts: Tensor,
        positions: str | None,
        weights: Tensor | None,
    ) -> Scored:
        sizes = self._sizes(summary)
        kept = None if sizes is None else parts
        return Scored(scores, reading.losses, positions, weights, parts=kept, sizes=sizes)

    def _sizes(self, summary: ValidationSide | Itself) -> tuple[int, ...] | None:
        """Return how many validation samples each part has; None where the set is not cut."""
        if self.cut is None or isinstance(summary, Itself):
            return None
        return summary.sizes

    def _positions_for(self, trace: Any) -> str | None:
        """Return how positions are read; None where that is no choice."""
        if not self.facts.positions:
            return None
        return self.positions or default_positions(trace)

    def recall(self, state: CuratorState) -> None:
        """Take up what earlier batches told of the model's parameters."""
        self.tracer.reader.recall(frozenset(state.routed), frozenset(state.left))

    def remember(self, state: CuratorState) -> CuratorState:
        """Return a state with what this batch told of them."""
        reader = self.tracer.reader
        return replace(state, routed=tuple(sorted(reader.routed)), left=tuple(sorted(reader.left)))

    def _sketched(self, trace: lai.Trace, seed: int | None) -> lai.Trace:
        return trace if self.sketch is None or seed is None else sketched(trace, self.sketch, seed)


def _check_same_layers(first: lai.ValidationSummary, other: lai.ValidationSummary) -> None:
    """Raise if two parts of the validation set are recorded in other layers."""
    keys, others = ([dict(layout)["weight key"] for layout in one.layouts] for one in (first, other))
    if keys != others:
        msg = (
            f"chunk: expected the same layers in every part of the validation set, got {len(keys)} and "
            f"{len(others)}, apart in {sorted({*keys} ^ {*others})}: experts that no row of a part reaches "
            "have no record there; trace more rows at once (chunk=, or a larger batch), or use estimator "
            "'ghost' or 'exact'"
        )
        raise ValueError(msg)
