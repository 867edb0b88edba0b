"""Every estimator in the loop, as one record of functions: read a batch, sum a set up, multiply the two."""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import (
    DEFAULT_MEMORY_BUDGET,
    default_positions,
    fit_weights,
    join_summaries,
    layer_parts,
    make_weight_error,
)
from lai_core.estimators.gates import gate_lai_scores
from lai_core.records.compatible import layouts
from lai_torch._curation.processes.finite import are_finite
from lai_torch._curation.processes.group import Group
from lai_torch._curation.processes.sides import subtract_own, sum_sides
from lai_torch._curation.readings import (
    Batch,
    Itself,
    Reading,
    Scored,
    build_not_finite_error,
    chunks,
    cut_evenly,
    find_finite,
    select_finite,
    spoil,
)
from lai_torch._curation.sketch import sketch
from lai_torch._curation.state import CuratorState, ValidationSide
from lai_torch._exact.optimizer_step import check_optimizer, take_step
from lai_torch._exact.prover import Prover
from lai_torch._graph.gates import read_gates
from lai_torch._graph.record import NotFiniteError, Reader
from lai_torch._graph.unlike import UnlikeError, check_unlike
from lai_torch._model.batch import Loss, check_losses, count, rows
from lai_torch._model.function import Function, UnusableError, finite_gradient, losses_of
from lai_torch._model.precision import lower_precision
from lai_torch._model.preserve import preserve
from lai_torch._model.valid import Masks
from lai_torch.options import CalibratedLAI, Estimator, Exact, Midpoint, PreconditionedLAI
from lai_torch.trace import GateTrace, check_explained

Side = ValidationSide | Itself
"""What a batch is scored against."""


@dataclass(frozen=True)
class Scorer:
    """One estimator on one model. Scoring changes nothing that a later score depends on."""

    model: nn.Module
    loss: Loss
    # Runs the model on a batch: what is to be scored against a side.
    read: Callable[[Batch, Side], Reading]
    # Sums samples up, at most so many rows at a time, without what is not finite; sketched by a seed. None
    # where no loss is finite.
    sum_up: Callable[[Batch, int, int | None], ValidationSide | None]
    # The scores of what was read against each part of a side, which a state's second moments may scale.
    multiply: Callable[[CuratorState, Side, Reading], Scored]
    # Adds to readings and side what only the other processes know; a collective.
    exchange: Callable[[Iterator[Reading], Side], tuple[Iterator[Reading], Side]] = lambda *both: both
    # Fits layer weights on so many validation samples, with positions read so.
    fit: Callable[[Batch, int, str], Tensor] | None = None
    # Whether a side that was made earlier is one of the parameters that train now.
    fits: Callable[[ValidationSide], bool] = lambda side: True
    tracer: "Tracer | None" = None  # what traces; None for estimators that read no trace
    cut: int | None = None  # into how many parts the validation set is cut; None: it is not
    adds_up: bool = False  # whether processes add up what each finds on its part of a set
    # the processes whose batches are one: `summarize` and `score` are collectives
    group: Group = field(default_factory=Group)
    one_set: bool = True  # whether each process has the whole validation set, not a part of its own
    chunk: int | None = None  # how many samples to read at once for scoring alone; None: the whole batch

    def summarize(self, validation: Batch | None, size: int) -> ValidationSide | None:
        """Sum a validation set up; on several processes some may have None, whose loader has run dry."""
        seed = None
        if self.tracer is not None:
            seed = self.tracer.draw_seed()
        if self.tracer is None or not self.adds_up or self.group.size == 1:
            with self.group.raise_together():
                if validation is None:
                    return None
                side = None
                # from the start where a part has other records
                while side is None:
                    with suppress(UnlikeError):
                        side = _join_parts(self.sum_up(part, size, seed) for part in self._cut(validation))
                if self.fit is None:
                    return side
                return replace(side, layer_weights=self.fit(validation, max(size, 2), str(side.positions)))
        sides = []
        for part in self._cut(validation):
            with self.group.raise_together():
                share = self._share(part)
                own = share and self.sum_up(share, size, seed)
            sides.append(sum_sides(own, self.group, self.tracer.memory_budget))
        return _join_parts(sides)

    def _cut(self, validation: Any) -> Iterable[Any]:
        return (validation,) if self.cut is None else cut_evenly(validation, self.cut)

    def _share(self, validation: Batch | None) -> Batch | None:
        if validation is None or not self.one_set:
            return validation
        # of rows that every process has; None where there are fewer of them
        return next(islice(cut_evenly(validation, self.group.size), self.group.rank, None), None)

    def score(self, readings: Iterator[Reading], side: Side, state: CuratorState) -> Scored:
        """Score consecutive parts of a batch; NaN where a sample is not finite."""
        readings, side = self.exchange(readings, side)
        with self.group.raise_together():
            # not a loop, whose variable would hold one part's trace while the next is made
            found = list(map(functools.partial(self.multiply, state, side), readings))
            scored = found[0]
            if len(found) > 1:
                parts = torch.cat([each.parts for each in found], dim=1)
                scored = replace(scored, parts=parts, losses=torch.cat([each.losses for each in found]))
            scores = spoil(scored.scores, scored.losses)
            parts = scores[None]
            if len(scored.parts) > 1:
                parts = spoil(scored.parts, scores)
            scored = replace(scored, parts=parts)
            if self.cut is None or isinstance(side, Itself):
                return scored
            sizes = (
                int(part.samples if isinstance(part, lai.ValidationSummary) else part.layers[0].samples())
                for part in side.parts
            )
            return replace(scored, sizes=tuple(sizes))

    def measure_losses(self, validation: Batch | None, size: int) -> Tensor:
        """Return the losses of a validation set, of which several processes run a part each."""
        own = torch.zeros(0, dtype=torch.float64, device=next(self.model.parameters()).device)
        with self.group.raise_together():
            share = self._share(validation)
            if share is not None:
                found = (find_losses(self.model, self.loss, one, self.tracer) for one in chunks(share, size))
                own = torch.cat([losses.to(own) for losses in found])
        return self.group.gather_rows(own)[0]


def _join_parts(sides: Iterable[ValidationSide | None]) -> ValidationSide:
    """Return the sides of parts as one; those without a finite loss are None, and left out."""
    found = [side for side in sides if side is not None]
    if not found:
        raise build_not_finite_error()
    return replace(found[0], parts=tuple(part for side in found for part in side.parts))


def find_losses(model: nn.Module, loss: Loss, batch: Batch, tracer: "Tracer | None" = None) -> Tensor:
    """Return the losses of a batch, in the precision of its trace; the model runs without gradients."""
    with lower_precision(model, getattr(tracer, "autocast", None)), preserve(model, loss), torch.no_grad():
        return check_losses(losses_of(model, loss, batch), count(*batch))


SCORES: dict[str, Callable[..., Tensor]] = {
    "ghost": lai.ghost_scores,
    "lai": lai.lai_scores,
    "lli": lai.lli_scores,
    "calibrated_lai": lai.lai_scores,
    "gate_lai": gate_lai_scores,
}
"""The scores of a validation side and a trace, of every estimator that keeps no moment and reads a trace."""


def make_scorer(
    model: nn.Module,
    loss: Loss,
    optimizer: Any,
    estimator: Estimator,
    generator: torch.Generator,
    *,
    group: Group | None = None,  # the processes whose batches are one
    one_set: bool = True,  # whether each process has the whole validation set
    remakes: bool = True,  # whether a side can be made again, where a batch has other records than it
    max_norm: float | None = None,  # to which the optimizer's gradient is clipped
) -> Scorer:
    """Return the functions of an estimator on a model."""
    facts, group = estimator.facts, group or Group()
    shared: dict[str, Any] = {"group": group, "one_set": one_set, "chunk": getattr(estimator, "chunk", None)}
    if isinstance(estimator, Midpoint):
        return replace(_make_midpoint(model, loss, optimizer, estimator.of, max_norm), **shared)
    if isinstance(estimator, Exact):
        return replace(_make_exact(model, loss, estimator.method), **shared)
    tracer = Tracer(model, loss, estimator, generator, group, remakes=remakes)
    made = shared | {"read": tracer.read, "sum_up": tracer.sum_up, "exchange": tracer.exchange}
    made |= {"tracer": tracer, "cut": getattr(estimator, "parts", None)}
    # flattened positions have no summary: their traces are kept as they are
    sums = facts.summary is not None and tracer.positions != "flatten"
    if isinstance(estimator, PreconditionedLAI):
        made["multiply"] = functools.partial(_precondition, tracer, estimator)
        made["exchange"] = functools.partial(_exchange_squares, tracer, estimator)
    else:
        made["multiply"] = functools.partial(tracer.multiply, SCORES[facts.name])
    # its weights are fitted on rows of the whole set, which sums over parts do not hold
    if isinstance(estimator, CalibratedLAI):
        every = Reader(model, loss, every=True, last=tracer.last, valid=tracer.masks)
        made["fit"] = functools.partial(_fit_weights, tracer, every)
        sums = False
    return Scorer(model, loss, **made, adds_up=sums)


# ---- products of traces: Ghost, LAI and LLI


class Tracer:
    """Traces batches of one model, and multiplies two traces, or a summary and a trace.

    What one batch tells of the model makes the next one cheaper: its reader remembers.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        estimator: Estimator,
        generator: torch.Generator,
        group: Group,
        *,
        remakes: bool,
    ) -> None:
        self.model, self.loss, self.facts = model, loss, estimator.facts
        self.group, self.generator, self.remakes = group, generator, remakes
        names = ("positions", "sketch", "last", "valid", "autocast")
        self.positions, self.sketch, self.last, valid, self.autocast = (
            getattr(estimator, one, None) for one in names
        )
        self.memory_budget = getattr(estimator, "memory_budget", DEFAULT_MEMORY_BUDGET)
        self.masks = Masks(valid)
        # Ghost wants output gradients at every layer
        self.every_layer = self.facts.gradients == "all"
        options: dict[str, Any] = {"last": self.last, "valid": self.masks}
        self.reader = Reader(model, loss, every=self.every_layer, finite=True, **options)

    def trace(self, batch: Batch, *, live: bool = False) -> tuple[Any, Tensor]:
        """Return the trace of a batch, and the losses; on the graph of a training step if `live`."""
        record: Any = self.reader.record
        if live:
            record = self.reader.record_live
        with lower_precision(self.model, self.autocast):
            recording = record(batch)
        losses = recording.losses
        if not live:
            losses = losses.detach()
        if self.facts.gates:
            return read_gates(recording), losses
        if recording.plan.unexplained:
            check_explained(recording.plan.unexplained)
        if not self.every_layer:
            read, what = recording.readouts, "reads layers"
            if self.facts.parameters == "last":
                read, what = read[-1:], f"reads the last layer alone, {read[-1].layer.name!r}"
            if all(one.layer.source is None for one in read):
                msg = (
                    f"model: expected a layer that trains, got frozen ones: {self.facts.name!r} {what}, so "
                    "that every score would be zero; use estimator 'ghost' or 'exact', which score the "
                    "parameters that train"
                )
                raise ValueError(msg)
            return recording.trace, losses
        # Without what LAI alone reads, of which one sample may have less, and in one order for all batches:
        # what is the last layer of one may be none of another.
        records = [one for one in recording.trace.layers if not isinstance(one, lai.ReadoutTrace)]
        return lai.Trace(sorted(records, key=lambda one: str(one.weight))), losses

    def recall(self, state: CuratorState) -> None:
        self.reader.recall(frozenset(state.routed), frozenset(state.left))

    def remember(self, state: CuratorState) -> CuratorState:
        routed, left = (tuple(sorted(names)) for names in (self.reader.routed, self.reader.left))
        return replace(state, routed=routed, left=left)

    def draw_seed(self) -> int | None:
        """Draw the seed of a sketch, if there is to be one."""
        if self.sketch is None:
            return None
        return int(torch.randint(2**62, (), generator=self.generator, device="cpu"))

    def read(self, batch: Batch, side: Side) -> Reading:
        """Trace the batch. A row that is not finite has no score, and moves no other's."""
        # LAI reads one backward pass, in which no row meets another's. Ghost's rows may meet in sums where
        # they are multiplied by zero, which NaN stays: so it waits for the device, and reads the others anew.
        reading = self._trace(batch, apart=self.every_layer)
        if reading.seen is not None and self.remakes:
            self.check_alike(reading.seen, side)
        return reading

    def _trace(self, batch: Batch, *, apart: bool) -> Reading:
        """Trace a batch; its finite rows alone, if they are read apart or are all that can be proved."""
        try:
            trace, losses = self.trace(batch)
            if not apart or bool(torch.isfinite(losses).all()):
                return Reading(losses, trace)
        except NotFiniteError:
            losses = find_losses(self.model, self.loss, batch, self)
        kept = torch.isfinite(losses).nonzero().squeeze(1)
        if not kept.numel():
            return Reading(losses, None, kept)
        trace, _ = self.trace(rows(batch, kept, losses.shape[0]))
        return Reading(losses, trace, kept)

    def sum_up(self, validation: Batch, size: int, seed: int | None) -> ValidationSide | None:
        """Sum the chunks' summaries, or keep their traces where there is no such sum."""
        total: lai.ValidationSummary | None = None
        traces: list[Any] = []
        positions = self.positions
        for chunk in chunks(validation, size):
            trace = self._trace(chunk, apart=True).seen
            if trace is None:
                continue
            positions = positions or self._positions_for(trace)
            if isinstance(trace, GateTrace):
                # the gains are each pair's own; column norms are those of the weights when a batch is scored
                traces.append(replace(trace, column_norms=()))
            elif positions == "flatten" and trace.layers[-1].output_gradients.ndim == 3:
                traces.append(self._sketch(trace, seed))
            else:
                one = self._summarize(trace, positions, seed)
                if total is not None:
                    self.check_alike(trace, ValidationSide((total,)))
                    keys, others = ([dict(each)["weight key"] for each in s.layouts] for s in (total, one))
                    if keys != others:
                        msg = (
                            "chunk: expected the same layers in every part of the validation set, got "
                            f"{len(keys)} and {len(others)}, apart in {sorted({*keys} ^ {*others})}: experts "
                            "that no row of a part reaches have no record there; trace more rows at once "
                            "(chunk=, or a larger batch), or use estimator 'ghost' or 'exact'"
                        )
                        raise ValueError(msg)
                    one = join_summaries([total, one], self.memory_budget)
                total = one
        if total is None and not traces:
            return None
        held = [getattr(one, "trace", one).layers for one in traces]
        arrays = [one for layers in held for layer in layers for one in layer.arrays().values()]
        if total is not None:
            arrays = [block for parts in total.totals for block in parts]
        # an infinite activation may have a finite loss, and would make each score NaN
        if not are_finite([one for one in arrays if one.is_floating_point() or one.is_complex()]):
            msg = (
                "validation: expected finite activations and gradients of each sample with a finite loss, "
                "got some that are not; leave such samples out"
            )
            raise UnusableError(msg)
        return ValidationSide(tuple(traces) if total is None else (total,), positions, sketch=seed)

    def _summarize(self, trace: lai.Trace, positions: str | None, seed: int | None) -> lai.ValidationSummary:
        options: dict[str, Any] = {"positions": positions or "tokens", "memory_budget": self.memory_budget}
        return lai.summarize(self._sketch(trace, seed), str(self.facts.summary), **options)

    def check_alike(self, trace: Any, side: Side) -> None:
        """Raise `UnlikeError` where a batch has other records than the side that it is scored against."""
        if self.group.size > 1 or isinstance(side, Itself):
            return
        summary = side.parts[0]
        if isinstance(summary, lai.ValidationSummary):
            found = layouts(trace, self.facts.gradients)
            if found != summary.layouts:
                check_unlike(self.reader, summary.layouts, found)

    def exchange(self, readings: Iterator[Reading], side: Side) -> tuple[Iterator[Reading], Side]:
        """Add the validation side that the other processes' samples make, where a batch scores itself."""
        if not isinstance(side, Itself):
            return readings, side
        with self.group.raise_together():
            (reading,) = map(select_finite, readings)  # such a batch is read in one part
        side = replace(side, sketch=self.draw_seed())
        if self.group.size > 1:
            with self.group.raise_together():
                own, trace = None, reading.seen
                if trace is not None:
                    positions = self._positions_for(trace)
                    summary = self._summarize(trace, positions, side.sketch)
                    own = ValidationSide((summary,), positions)
            total = sum_sides(own, self.group, self.memory_budget)
            if total is not None and own is not None:
                side = replace(side, others=subtract_own(total, own))
        return iter([reading]), side

    def multiply(
        self, product: Callable[..., Tensor], state: CuratorState, side: Side, reading: Reading
    ) -> Scored:
        """Score what was read against each part of a side, or against itself."""
        del state  # those of preconditioned LAI are in the product
        trace, positions, count, weights = reading.seen, self.positions, 1, None
        if isinstance(side, ValidationSide):
            positions, count, weights = side.positions, len(side.parts), side.layer_weights
        elif trace is not None:
            positions = self._positions_for(trace)
        if trace is None:
            nothing = torch.full_like(reading.losses, torch.nan).expand(count, -1)
            return Scored(nothing, reading.losses, positions, weights)
        trace = self._sketch(trace, side.sketch)
        given = {"positions": positions, "layer_weights": weights}
        options: dict[str, Any] = {name: one for name, one in given.items() if one is not None}
        if isinstance(side, Itself):
            products = [product(trace, trace, exclude_self=side.exclude_self, **options)]
            if side.others is not None:
                products = [products[0] + product(side.others, trace, **options)]
        else:
            products = [product(part, trace, **options) for part in side.parts]
        parts = products[0][None] if len(products) == 1 else torch.stack(products)
        if reading.rows is not None:
            everyone = parts.new_full((len(parts), len(reading.losses)), torch.nan)
            everyone[:, reading.rows] = parts
            parts = everyone
        return Scored(parts, reading.losses, positions, weights)

    def _positions_for(self, trace: Any) -> str | None:
        if not self.facts.positions:
            return None
        return self.positions or default_positions(trace)

    def _sketch(self, trace: lai.Trace, seed: int | None) -> lai.Trace:
        if self.sketch is None or seed is None:
            return trace
        return sketch(trace, self.sketch, seed)


# ---- LAI with weights of layers that are fitted to Ghost


def _fit_weights(tracer: Tracer, every: Reader, validation: Batch, size: int, positions: str) -> Tensor:
    """Return layer weights, fitted on the pairs of different samples among rows at equal distances."""
    samples = count(*validation)
    used = min(samples, size)
    part = rows(validation, torch.arange(used, device="cpu") * samples // used, samples)
    kept = torch.isfinite(find_losses(tracer.model, tracer.loss, part, tracer)).nonzero().squeeze(1)
    if len(kept) < 2:
        msg = (
            "validation: estimator 'calibrated_lai' expects at least two samples with a finite loss "
            f"among the {used} it is calibrated on"
        )
        raise UnusableError(msg)
    every.recall(tracer.reader.routed, every.left)  # experts are left out of both
    with lower_precision(tracer.model, tracer.autocast):
        recording = every.record(rows(part, kept, used))
    if not recording.readouts:
        raise ValueError(recording.plan.refusal)
    last, parts = recording.readouts[-1].record, []
    for one in recording.readouts:
        # Ghost, which the weights are fitted to, has no record of this layer
        if not one.own and one.layer.source is not None:
            raise make_weight_error(one.layer.name)
        parts.append(layer_parts(one.record, last, positions, trains=one.own))
    others = ~torch.eye(len(kept), dtype=torch.bool, device=recording.losses.device)
    weights: Tensor = fit_weights(parts, others)
    return weights


# ---- LAI whose product of output gradients is divided by a power of their second moment


def _precondition(
    tracer: Tracer, estimator: PreconditionedLAI, state: CuratorState, side: Side, reading: Reading
) -> Scored:
    """Score with second moments that the finite rows are part of."""
    moment, of_inputs, decay = state.second_moment, state.input_second_moments, estimator.decay
    if reading.squares is not None:
        squares = reading.squares.to(reading.losses)
        if moment is not None:
            squares = decay * moment.to(squares) + (1.0 - decay) * squares
        moment = squares
    if estimator.scale_inputs and (seen := select_finite(reading).seen) is not None:
        of_inputs = lai.update_input_second_moments(of_inputs, seen, decay=decay)
    moments: dict[str, Any] = {"second_moment": moment, "input_second_moments": of_inputs}
    product = functools.partial(lai.preconditioned_lai_scores, exponent=estimator.exponent, **moments)
    return replace(tracer.multiply(product, state, side, reading), **moments)


def _exchange_squares(
    tracer: Tracer, estimator: PreconditionedLAI, readings: Iterator[Reading], side: Side
) -> tuple[Iterator[Reading], Side]:
    """Add the mean square over all processes' samples, so that the second moment is that of all."""
    readings, side = tracer.exchange(readings, side)
    group, mean, counted, width = tracer.group, None, None, 0
    if estimator.scale_inputs and group.size > 1:
        msg = (
            f"scale_inputs: expected one process, whose inputs are all there are, got {group.size}; leave it "
            "out"
        )
        raise ValueError(msg)
    with group.raise_together():
        (reading,) = readings  # this estimator reads a batch in one part
        if reading.seen is not None:
            last = reading.seen.layers[-1]
            gradients = last.output_gradients
            if gradients.ndim == 2:
                gradients = gradients.unsqueeze(1)
            # one row that is not finite would stay in the second moment for good
            counted = find_finite(reading).unsqueeze(1).expand(gradients.shape[:2])
            if last.valid is not None:
                counted = counted & last.valid
            mean = lai.update_second_moment(None, gradients, valid=counted)
            width = len(mean)
    if group.size > 1 and (width := group.reduce_max(width)):
        total = torch.zeros(width + 1, dtype=torch.float64, device=next(tracer.model.parameters()).device)
        if mean is not None and counted is not None:
            total[:-1] = mean.double() * counted.sum()
            total[-1] = counted.sum()
        (total,) = group.reduce_sum([total])
        mean = total[:-1] / total[-1]
    return iter([replace(reading, squares=mean)]), side


# ---- derivatives along the exact validation gradient: no trace, any architecture


def _score_derivatives(state: CuratorState, side: Side, reading: Reading) -> Scored:
    del state, side  # along which they were taken
    found = reading.seen
    return Scored(found.scores[None], found.losses, method=found.method, reason=found.reason)


def _make_exact(model: nn.Module, loss: Loss, method: str | None) -> Scorer:
    """Return exact scores along the validation gradient; a side is that gradient."""
    function = Function(model, loss)
    prover = Prover(function, method, by_rows=True)

    def read(batch: Batch, side: Side) -> Reading:
        if isinstance(side, Itself):
            direction = finite_gradient(function, batch, reduction="sum")
        else:
            direction = side.parts[0]
        if direction is None:
            raise build_not_finite_error()
        found = prover(direction, batch)
        return Reading(found.losses, found)

    def sum_up(validation: Batch, size: int, seed: int | None) -> ValidationSide | None:
        del seed
        found = finite_gradient(function, validation, reduction="sum", size=size)
        if found is None:
            return None
        return ValidationSide((found,))

    def fits(side: ValidationSide) -> bool:
        return bool(side.parts[0].keys() == function.parameters().keys())

    return Scorer(model, loss, read, sum_up, _score_derivatives, fits=fits)


def _make_midpoint(model: nn.Module, loss: Loss, optimizer: Any, of: str, max_norm: float | None) -> Scorer:
    """Return exact scores along the validation gradient after a step on half of the batch's gradient.

    The step is that of SGD at the optimizer's learning rates, or the optimizer's own.
    """
    if of == "sgd":
        max_norm = None
    else:
        check_optimizer(optimizer)
    function = Function(model, loss)
    prover = Prover(function, by_rows=True)

    def read(batch: Batch, side: Side) -> Reading:
        if isinstance(side, Itself):
            validation, size = batch, count(*batch)
        else:
            validation, size = side.parts[0]
        middle, vjp = function.point(), None
        step = finite_gradient(function, batch, reduction="mean", role="inputs", used=True)
        if step is not None:
            half, stepping = {name: 0.5 * part for name, part in step.items()}, optimizer
            if of == "sgd":
                groups = [{"params": one["params"], "lr": float(one["lr"])} for one in optimizer.param_groups]
                stepping = torch.optim.SGD(groups)
            middle, vjp = take_step(function, middle, half, stepping, max_norm)
        with function.set_parameters(middle):
            target = finite_gradient(function, validation, reduction="sum", size=size)
        if target is None:
            raise build_not_finite_error()
        if vjp is not None:
            target = vjp(target)
        found = prover(target, batch)
        return Reading(found.losses, found)

    def sum_up(validation: Batch, size: int, seed: int | None) -> ValidationSide | None:
        del seed
        # its gradient is taken at a point that depends on the batch
        if not any(bool(find_losses(model, loss, one).isfinite().any()) for one in chunks(validation, size)):
            return None
        return ValidationSide(((validation, size),))

    return Scorer(model, loss, read, sum_up, _score_derivatives)
