"""What a forward pass showed of some samples, their scores, and which of their rows are finite."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_torch._model.batch import count, rows
from lai_torch._model.function import UnusableError
from lai_torch.trace import GateTrace

Batch = tuple[Any, Any]


@dataclass(frozen=True)
class Itself:
    """Marker in place of a summary: a batch is scored against its own summed gradient."""

    exclude_self: bool  # whether each sample is left out of its own score
    others: Any = None  # the validation side that the samples of other processes make
    sketch: int | None = None  # the seed of the sketch of both sides


@dataclass(frozen=True)
class Reading:
    """What a forward pass showed of some samples."""

    losses: Tensor  # `(n,)`
    seen: Any  # what the estimator reads: a trace, or directional derivatives. None: nothing is finite.
    rows: Tensor | None = None  # which of the `n` samples `seen` holds. None: all.
    squares: Tensor | None = None  # the mean of the squared output gradients over all processes' samples


@dataclass(frozen=True)
class Scored:
    """Scores and losses of a batch, `(n,)`, and how they came about; see `Report` for the rest."""

    parts: Tensor  # the scores against each part of the validation side, `(m, n)`
    losses: Tensor
    positions: str | None = None
    layer_weights: Tensor | None = None
    method: str | None = None
    reason: str | None = None
    # the running means of squared output gradients, and of each layer's squared inputs, this batch included
    second_moment: Tensor | None = None
    input_second_moments: tuple[Tensor | None, ...] | None = None
    sizes: tuple[int, ...] | None = None  # how many validation samples each part has; None if it is not cut

    @cached_property
    def scores(self) -> Tensor:
        return self.parts[0] if len(self.parts) == 1 else self.parts.sum(0)


def build_not_finite_error() -> UnusableError:
    return UnusableError("validation: expected at least one sample with a finite loss, got none")


def chunks(batch: Batch, size: int) -> Iterator[Batch]:
    samples = count(*batch)
    if samples <= size:
        yield batch
        return
    for start in range(0, samples, size):
        yield rows(batch, slice(start, min(start + size, samples)), samples)


def cut_evenly(batch: Batch, parts: int) -> Iterator[Batch]:
    """Cut a batch into so many consecutive parts, of sizes that differ by one at most; none is empty."""
    samples = count(*batch)
    for index in range(min(parts, samples)):
        start, stop = (end * samples // min(parts, samples) for end in (index, index + 1))
        yield rows(batch, slice(start, stop), samples)


def spoil(scores: Tensor, losses: Tensor) -> Tensor:
    """Return scores that are NaN where they or the losses are not finite: 0 x is 0 for a finite x alone.

    Two operations, where `isfinite` takes four for each of both.
    """
    scores = torch.add(scores, losses.to(scores), alpha=0)
    return torch.add(scores, scores, alpha=0)


def find_finite(reading: Reading) -> Tensor:
    """Say of each row that was read whether its loss and its last output gradient are finite.

    A finite loss may have a gradient that is not.
    """
    trace: Any = getattr(reading.seen, "trace", reading.seen)  # that of a `GateTrace` is within
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
    return lai.Trace(
        replace(layer, **{name: array[kept] for name, array in layer.arrays().items()})
        for layer in trace.layers
    )
