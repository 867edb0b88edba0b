"""The estimators as the curator uses them: sum a validation set up, score a batch against it."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_torch._assemble import assemble
from lai_torch._batch import Loss, count, rows
from lai_torch._record import Recording, record
from lai_torch.trace import check_explained

ESTIMATORS = ("ghost", "lai", "lli", "preconditioned_lai")


def traced(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], estimator: str, *, verify: bool
) -> tuple[lai.Trace, Tensor]:
    """Return the trace an estimator needs, and the losses."""
    every_layer = estimator == "ghost"
    recording: Recording = record(model, loss, *batch, every_layer=every_layer, verify=verify)
    check_explained(recording)
    return assemble(recording), recording.losses


def finite_chunks(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], estimator: str, *, size: int, verify: bool
) -> Iterator[tuple[lai.Trace, int]]:
    """Trace a validation set at most `size` rows at a time, without the samples whose loss is not finite.

    Yields
    ------
    tuple
        A trace, and how many samples were left out of it.
    """
    samples = count(*batch)
    for start in range(0, samples, size):
        part = slice(start, min(start + size, samples))
        chunk = rows(batch, part, samples)
        trace, losses = traced(model, loss, chunk, estimator, verify=verify)
        finite = torch.isfinite(losses)
        dropped = int((~finite).sum())
        if dropped == losses.shape[0]:
            continue
        if dropped:
            chunk = rows(chunk, finite.nonzero().squeeze(1), losses.shape[0])
            trace, _ = traced(model, loss, chunk, estimator, verify=verify)
        yield trace, dropped


def summarize(
    traces: Iterable[tuple[lai.Trace, int]], estimator: str, positions: str | None
) -> lai.ValidationSummary:
    """Sum the chunks of a validation set up for `estimator`.

    Raises
    ------
    ValueError
        If no validation sample has a finite loss.
    """
    summary: lai.ValidationSummary | None = None
    for trace, _ in traces:
        positions = positions or default_positions(trace)
        one = lai.summarize(trace, estimator, positions=positions)
        summary = one if summary is None else summary + one
    if summary is None:
        msg = "validation: expected at least one sample with a finite loss, got none"
        raise ValueError(msg)
    return summary


def default_positions(trace: lai.Trace) -> str:
    """Return `tokens` if every layer has the last layer's positions, else `mean`."""
    return "tokens" if "tokens" in lai.fitting_positions(trace) else "mean"


def score(
    estimator: str, summary: lai.ValidationSummary, trace: lai.Trace, second_moment: Tensor | None
) -> Tensor:
    """Score every sample of `trace`; positive helps."""
    if estimator == "ghost":
        return lai.ghost_scores(summary, trace)
    if estimator == "lli":
        return lai.lli_scores(summary, trace)
    if estimator == "lai":
        return lai.lai_scores(summary, trace)
    return lai.preconditioned_lai_scores(summary, trace, second_moment)
