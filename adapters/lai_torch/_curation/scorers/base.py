"""What every estimator does in the loop: sum a validation set up, read a batch, score what was read."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._curation.processes.group import Group
from lai_torch._curation.state import CuratorState
from lai_torch._model.batch import Loss, check_losses, count, rows
from lai_torch._model.function import UnusableError, losses_of
from lai_torch._model.preserve import preserved
from lai_torch.trace import GateTrace

Batch = tuple[Any, Any]


@dataclass(frozen=True)
class Itself:
    """Marker in place of a summary: a batch is scored against its own summed gradient."""

    exclude_self: bool  # whether each sample is left out of its own score
    positions: str | None = None  # how positions are to be read; None: as fits
    others: Any = None  # the validation side that the samples of other processes make
    sketch: int | None = None  # the seed of the sketch of both sides


@dataclass(frozen=True)
class Reading:
    """What a forward pass showed of some samples."""

    losses: Tensor  # `(n,)`
    seen: Any  # what the estimator reads: a trace, or directional derivatives. None: nothing is finite.
    rows: Tensor | None = None  # which of the `n` samples `seen` holds. None: all.
    # the mean of the squared output gradients over all processes' samples, where there are several
    squares: Tensor | None = None


@dataclass(frozen=True)
class Scored:
    """Scores and losses of a batch, `(n,)`, and how they came about; see `Report` for the rest."""

    scores: Tensor
    losses: Tensor
    positions: str | None = None
    layer_weights: Tensor | None = None
    method: str | None = None
    reason: str | None = None
    # second_moment, input_second_moments: the running means of squared output gradients, and of each
    # layer's squared inputs, this batch included
    second_moment: Tensor | None = None
    input_second_moments: tuple[Tensor | None, ...] | None = None
    # parts, sizes: the scores against each part of the validation set, `(m, n)`, and how many samples
    # each part has; None where it is not cut into parts
    parts: Tensor | None = None
    sizes: tuple[int, ...] | None = None


class Scorer(ABC):
    """One estimator on one model. Scoring changes nothing that a later score depends on.

    Attributes
    ----------
    group
        The processes whose batches are one. `summarize` and `score` are collectives of it.
    one_set
        Whether each process has the whole validation set, not a part of its own.
    by_block
        Whether sharded parameters may be gathered one block at a time while the estimator reads them.
    remakes
        Whether the summary can be made again, where a batch has other records than it.
    """

    group: Group = Group()
    one_set = True
    by_block = False
    remakes = True

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        self.model, self.loss = model, loss

    def summarize(self, validation: Batch | None, size: int) -> Any:
        """Sum a validation set up, at most `size` rows at a time, without what is not finite.

        On several processes `validation` may be None on some, whose loader has run dry.
        """
        seed = self.draw_seed()
        with self.group.agreed():
            return None if validation is None else self.summary_of(validation, size, seed)

    def draw_seed(self) -> int | None:
        """Return the seed of the next side's sketch; None for an estimator that has none."""
        return None

    @abstractmethod
    def summary_of(self, validation: Batch, size: int, seed: int | None = None) -> Any:
        """Return the summary that this process finds by itself, sketched by a seed."""

    def fits(self, summary: Any) -> bool:
        """Say whether a summary made earlier is still one of this model."""
        del summary
        return True

    @abstractmethod
    def read(self, batch: Batch, summary: Any) -> Reading:
        """Run the model on a batch, and return what is to be scored against the summary."""

    def score(self, readings: Iterator[Reading], summary: Any, state: CuratorState) -> Scored:
        """Score consecutive parts of a batch; NaN where a sample is not finite."""
        readings, summary = self.told(readings, summary)
        with self.group.agreed():
            # not a loop, whose variable would hold one part's trace while the next is made
            found = _joined(list(map(functools.partial(self.score_part, state, summary), readings)))
            scores, parts = _spoil(found.scores, found.losses), found.parts
            if parts is not None:
                parts = _spoil(parts, scores)
            return replace(found, scores=scores, parts=parts)

    def told(self, readings: Iterator[Reading], summary: Any) -> tuple[Iterator[Reading], Any]:
        """Add to readings and summary what only the other processes know."""
        return readings, summary

    @abstractmethod
    def score_part(self, state: CuratorState, summary: Any, reading: Reading) -> Scored:
        """Score what was read of some samples, with the second moments of a state."""

    def recall(self, state: CuratorState) -> None:
        """Take up what earlier batches told of the model's parameters."""
        del state  # most ask each batch alone

    def remember(self, state: CuratorState) -> CuratorState:
        """Return a state with what this batch told of them."""
        return state

    def losses_of(self, batch: Batch) -> Tensor:
        """Return the losses of a batch, for which the model runs without gradients."""
        with preserved(self.model, self.loss), torch.no_grad():
            return check_losses(losses_of(self.model, self.loss, batch), count(*batch))

    def all_losses(self, validation: Batch | None, size: int) -> Tensor:
        """Return the losses of a validation set, of which several processes run a part each."""
        own = torch.zeros(0, dtype=torch.float64, device=next(self.model.parameters()).device)
        with self.group.agreed():
            share = validation
            if validation is not None and self.one_set:
                share = share_of(validation, self.group)
            if share is not None:
                own = torch.cat([self.losses_of(chunk).to(own) for chunk in chunks(share, size)])
        return self.group.gathered(own)[0]

    def finite(self, batch: Batch) -> Batch | None:
        """Return the rows whose loss is finite; None if there are none."""
        samples, losses = count(*batch), self.losses_of(batch)
        kept = torch.isfinite(losses).nonzero().squeeze(1)
        return None if not kept.numel() else batch if kept.numel() == samples else rows(batch, kept, samples)


def nothing_finite() -> UnusableError:
    """Build the error of a validation set without a single finite loss."""
    return UnusableError("validation: expected at least one sample with a finite loss, got none")


def chunks(batch: Batch, size: int) -> Iterator[Batch]:
    """Cut a batch into consecutive parts of at most `size` rows."""
    samples = count(*batch)
    if samples <= size:
        yield batch
        return
    for start in range(0, samples, size):
        yield rows(batch, slice(start, min(start + size, samples)), samples)


def share_of(batch: Batch, group: Group) -> Batch | None:
    """Return this process's part of rows that every process has; None where it has none."""
    samples, ranks = count(*batch), (group.rank, group.rank + 1)
    start, end = (rank * samples // group.size for rank in ranks)
    return rows(batch, slice(start, end), samples) if end > start else None


def cut_evenly(batch: Batch, parts: int) -> Iterator[Batch]:
    """Cut a batch into so many consecutive parts, of sizes that differ by one at most; none is empty."""
    samples = count(*batch)
    for index in range(min(parts, samples)):
        start, stop = (end * samples // min(parts, samples) for end in (index, index + 1))
        yield rows(batch, slice(start, stop), samples)


def _spoil(scores: Tensor, losses: Tensor) -> Tensor:
    """Return scores that are NaN where they or the losses are not finite: 0 x is 0 for a finite x alone.

    Two operations, where `isfinite` takes four for each of both.
    """
    scores = torch.add(scores, losses.to(scores), alpha=0)
    return torch.add(scores, scores, alpha=0)


def find_finite(reading: Reading) -> Tensor:
    """Say of each row that was read whether its loss and its last output gradient are finite.

    A finite loss may have a gradient that is not.
    """
    trace: Any = reading.seen.trace if isinstance(reading.seen, GateTrace) else reading.seen
    gradients = trace.layers[-1].output_gradients
    finite: Tensor = (gradients.flatten(1) * 0.0).sum(1) == 0.0  # 0 x is 0 for a finite x alone, else NaN
    return finite if reading.rows is not None else finite & torch.isfinite(reading.losses)


def select_finite(reading: Reading) -> Reading:
    """Return what was read of the finite rows, where samples are summed up: one would spoil the sum."""
    if reading.rows is not None or bool((finite := find_finite(reading)).all()):
        return reading
    kept = finite.nonzero().squeeze(1)
    seen = None if not len(kept) else select_rows(reading.seen, kept)
    return replace(reading, seen=seen, rows=kept)


def select_rows(trace: Any, kept: Tensor) -> Any:
    """Return the trace of some of its samples."""
    if isinstance(trace, GateTrace):
        gates = [gate[kept] for gate in trace.gates]
        return replace(trace, trace=select_rows(trace.trace, kept), gates=gates)
    layers: list[Any] = list(trace.layers)
    for place, layer in enumerate(layers):
        arrays = {name: getattr(layer, name) for name in layer.array_fields}
        rows = {name: array[kept] for name, array in arrays.items() if array is not None}
        layers[place] = replace(layer, **rows)
    return lai.Trace(layers)


def _joined(parts: list[Scored]) -> Scored:
    """Return the scores of consecutive parts of a batch as those of the batch."""
    if len(parts) == 1:
        return parts[0]
    scores, losses = (torch.cat([getattr(part, name) for part in parts]) for name in ("scores", "losses"))
    by_part = [part.parts for part in parts if part.parts is not None]
    return replace(
        parts[0],
        scores=scores,
        losses=losses,
        parts=torch.cat(by_part, dim=1) if by_part else None,
    )
