"""Variants of LAI in the loop: gate-corrected, calibrated and preconditioned."""

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core._adapters import computed_weight, fitted_weights, layer_parts
from lai_core.estimators.gates import gate_lai_scores
from lai_torch._curation.scorers.base import (
    Batch,
    Reading,
    Scored,
    find_finite,
    select_finite,
)
from lai_torch._curation.scorers.traces import TraceScorer
from lai_torch._curation.state import CuratorState, ValidationSide
from lai_torch._graph.record import Reader, Recording
from lai_torch._model.batch import count, rows
from lai_torch._model.function import UnusableError
from lai_torch.trace import GateTrace


class GateScorer(TraceScorer):
    """LAI with every layer's product corrected by the gains of the gates above it."""

    def summary_of(self, validation: Batch, size: int, seed: int | None = None) -> ValidationSide:
        """Keep the traces of the set's parts: the gains are each pair's own, so that nothing sums up."""
        traces = (trace for trace, _ in self.finite_traces(validation, size))
        # column norms are those of the weights as they are when a batch is scored, not of now
        return ValidationSide(tuple(replace(trace, column_norms=()) for trace in traces))


def gate_product(validation: GateTrace, training: GateTrace, **options: Any) -> Tensor:
    """Return the scores, with the column norms as they are now."""
    found: Tensor = gate_lai_scores(validation, training, **options)
    return found


class CalibratedScorer(TraceScorer):
    """LAI whose layer weights are fitted to Ghost on validation samples at every refresh."""

    _every: Reader | None = None

    def summary_of(self, validation: Batch, size: int, seed: int | None = None) -> ValidationSide:
        """Sum the set up, and fit the weights on at most `size` of its samples (two at least)."""
        side = super().summary_of(validation, size, seed)
        weights = self._fitted(validation, max(size, 2), str(side.positions))
        return replace(side, layer_weights=weights)

    def _fitted(self, validation: Batch, size: int, positions: str) -> Tensor:
        """Fit on the pairs of different samples among rows at equal distances."""
        samples = count(*validation)
        used = min(samples, size)
        part = self.finite(rows(validation, torch.arange(used, device="cpu") * samples // used, samples))
        if part is None or count(*part) < 2:
            msg = (
                "validation: estimator 'calibrated_lai' expects at least two samples with a finite loss "
                f"among the {used} it is calibrated on"
            )
            raise UnusableError(msg)
        if self._every is None:
            options: dict[str, Any] = {"last": self.tracer.last, "valid": self.tracer.masks}
            self._every = Reader(self.model, self.loss, every=True, **options)
        with self.tracer.lowered():
            recording = self._every.record(part)
        return _weights(recording, positions)


def _weights(recording: Recording, positions: str) -> Tensor:
    """Return each layer's slope of Ghost's part on LAI's, over pairs of different samples."""
    if not recording.readouts:
        raise ValueError(recording.plan.refusal)
    last, parts = recording.readouts[-1].record, []
    for one in recording.readouts:
        if not one.own and one.layer.trains:
            raise computed_weight(one.layer.name)
        parts.append(layer_parts(one.record, last, positions, trains=one.own))
    losses = recording.losses
    others = ~torch.eye(len(losses), dtype=torch.bool, device=losses.device)
    weights: Tensor = fitted_weights(parts, others)
    return weights


class PreconditionedScorer(TraceScorer):
    """LAI whose product of output gradients is divided by a power of their second moment.

    Parameters
    ----------
    decay
        Share of the second moment that stays at each batch.
    scale_inputs
        Whether the layers' inputs have second moments, too.
    """

    def __init__(self, *arguments: Any, decay: float, scale_inputs: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.decay, self.scale_inputs = decay, scale_inputs

    def score_part(self, state: CuratorState, summary: Any, reading: Reading) -> Scored:
        """Score with second moments that the finite rows are part of."""
        moment, of_inputs = state.second_moment, state.input_second_moments
        if reading.squares is not None:
            moment = _moved(moment, reading.squares.to(reading.losses), self.decay)
        elif reading.seen is not None:
            gradients, valid = _outputs(reading)
            moment = lai.update_second_moment(moment, gradients, decay=self.decay, valid=valid)
        if self.scale_inputs and (seen := select_finite(reading).seen) is not None:
            of_inputs = lai.update_input_second_moments(of_inputs, seen, decay=self.decay)
        product = functools.partial(self.product, second_moment=moment, input_second_moments=of_inputs)
        scored = self._scored(summary, reading, product)
        return replace(scored, second_moment=moment, input_second_moments=of_inputs)

    def told(self, readings: Iterator[Reading], summary: Any) -> tuple[Iterator[Reading], Any]:
        """Add the mean square over all processes' samples, so that the second moment is that of all."""
        readings, summary = super().told(readings, summary)
        if self.group.size == 1:
            return readings, summary
        if self.scale_inputs:
            msg = (
                "scale_inputs: expected one process, whose inputs are all there are, got "
                f"{self.group.size}; leave it out"
            )
            raise ValueError(msg)
        with self.group.agreed():
            (reading,) = readings  # this estimator reads a batch in one part
            total = None
            if reading.seen is not None:
                gradients, valid = _outputs(reading)
                mean = lai.update_second_moment(None, gradients, valid=valid).double()
                positions = valid.sum().to(mean)
                total = torch.cat([mean * positions, positions[None]])
        total = self._added(total)
        squares = None if total is None else total[:-1] / total[-1]
        return iter([replace(reading, squares=squares)]), summary

    def _added(self, total: Tensor | None) -> Tensor | None:
        """Return the sum over the processes, of which some have nothing to add."""
        width = self.group.most(0 if total is None else len(total))
        if not width:
            return None
        blank = torch.zeros(width, dtype=torch.float64, device=next(self.model.parameters()).device)
        return self.group.summed([blank if total is None else total])[0]


def _moved(moment: Tensor | None, mean: Tensor, decay: float) -> Tensor:
    """Return the running mean after one more."""
    return mean if moment is None else decay * moment.to(mean) + (1.0 - decay) * mean


def _outputs(reading: Reading) -> tuple[Tensor, Tensor]:
    """Return the last output gradients `(n, t, d)`, and which positions `(n, t)` of finite rows count.

    One row that is not finite would stay in the second moment for good.
    """
    last = reading.seen.layers[-1]
    gradients = last.output_gradients
    if gradients.ndim == 2:
        gradients = gradients.unsqueeze(1)
    counted = find_finite(reading).unsqueeze(1).expand(gradients.shape[:2])
    return gradients, counted if last.valid is None else counted & last.valid
