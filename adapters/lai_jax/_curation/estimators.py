"""Every estimator in a step: its validation side, the passes it takes, and how it scores a batch."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import lai_core as lai
from lai_core._adapters import default_positions
from lai_core.estimators.gates import GateTrace, gate_lai_scores
from lai_jax._curation.moments import Moment, update_moments
from lai_jax._curation.passes import Back, Recorded, run_shared, weigh_gradient
from lai_jax._curation.problem import Batch, Problem
from lai_jax._curation.rows import finite, zero_out
from lai_jax._exact.directional import directional_derivatives
from lai_jax._exact.validation_gradient import ValidationGradient, validation_gradient
from lai_jax._program.losses import check_targets, losses_of_leaves
from lai_jax._program.model import Model, find_reaching_layers
from lai_jax._program.program import Use
from lai_jax._program.rules.axes import RULES
from lai_jax._recording.plan import Plan, use_name
from lai_jax._recording.planned import PlannedRecord
from lai_jax._recording.recorders import record_gates, record_trace
from lai_jax.validation import Validation


@dataclass(frozen=True)
class Scored:
    # `losses`, `scores`: `(n,)` each
    losses: jax.Array
    scores: jax.Array
    second_moment: Any = None  # for preconditioned LAI the next one
    # `parts`, `sizes`: the scores against each part of the validation set, and the parts' numbers of samples
    parts: jax.Array | None = None
    sizes: jax.Array | None = None


class Scorer:
    """Scores a recording of the batch against a validation side, for one estimator."""

    sides: tuple[type, ...]  # the types of its validation side

    def side(self, problem: Problem, batch: Batch, counted: Any, read: Validation) -> Any:
        """Return what the `counted` validation samples sum up to, positions and sketch as `read` has them."""
        raise NotImplementedError

    def score(self, validation: Validation, recorded: Any, moment: Moment) -> Scored:
        """Score what `record` or `forward` found of a batch."""
        raise NotImplementedError

    def record(self, problem: Problem, batch: Batch) -> Any:
        """Run a batch forward to be scored."""
        raise NotImplementedError

    def forward(self, problem: Problem, batch: Batch) -> tuple[Any, Back]:
        """Run a batch forward for a step that runs back, too: on the rows to train on, forward again."""
        return self.record(problem, batch), partial(weigh_gradient, problem, batch)


class _Traced(Scorer):
    """Scores by a trace of the batch."""

    sides: tuple[type, ...] = (lai.ValidationSummary, lai.Trace)
    everything = False  # whether every output gradient is recorded

    def trace(self, problem: Problem, batch: Batch, counted: Any) -> tuple[lai.Trace, jax.Array]:
        """Return the trace of validation samples, and which of them count."""
        model, plan = problem.plan_trace(batch, everything=self.everything)
        self.check(model, plan)
        losses, trace = record_trace(model, plan, everything=self.everything)
        trace = problem.masked(trace, batch)
        counted = counted & jnp.isfinite(losses) & finite(trace)
        return zero_out(trace, counted), counted

    def check(self, model: Model, plan: Plan) -> None:
        """Warn of what the scores leave out or hold too much of, raise where nothing is left."""

    def record(self, problem: Problem, batch: Batch) -> Recorded:
        planned = problem.plan_trace(batch, everything=self.everything)
        losses, trace = record_trace(*planned, everything=self.everything)
        return Recorded(losses, problem.masked(trace, batch))

    def forward(self, problem: Problem, batch: Batch) -> tuple[Recorded, Back]:
        return run_shared(problem, batch, everything=self.everything)


class _Gradients(_Traced):
    """Inner products of gradients: of the validation set's, summed, with each sample's."""

    summary: str  # whose summary it is scored against
    scores: Callable[..., jax.Array]

    def side(self, problem: Problem, batch: Batch, counted: Any, read: Validation) -> Any:
        trace, counted = self.trace(problem, batch, counted)
        return replace(lai.summarize(trace, self.summary), samples=counted.sum())

    def score(self, validation: Validation, recorded: Recorded, moment: Moment) -> Scored:
        return Scored(recorded.losses, self.scores(validation.side, recorded.trace))


class Ghost(_Gradients):
    """All traced parameters."""

    everything = True
    summary = "ghost"
    scores = staticmethod(lai.ghost_scores)


class LLI(_Gradients):
    """The last layer alone."""

    summary = "lli"
    scores = staticmethod(lai.lli_scores)

    def check(self, model: Model, plan: Plan) -> None:
        _check_trains(plan.records[-1:], "the estimator reads the last layer alone")


class LAI(_Traced):
    """Virtual readouts of every layer."""

    def check(self, model: Model, plan: Plan) -> None:
        """Raise where every layer is frozen, and warn of matrices that are no layers."""
        read = [own for own in plan.records if own.use.is_layer]
        _check_trains(read, "the estimator reads layers")
        leaves = frozenset[int]().union(*(own.use.operand.leaves for own in read))
        reached = find_reaching_layers(model.program)
        found = {
            use_name(model, use): use.eqn.primitive.name
            for use, adding in sorted(model.summed, key=lambda one: one[0].number)
            if use in reached and not use.operand.leaves <= leaves and _is_matrix(use, adding)
        }
        unread = "; ".join(f"{name!r} (used by {function})" for name, function in found.items())
        if unread:
            warnings.warn(
                f"apply: LAI has no readout from the input of {unread}, and leaves it out; estimators "
                "'ghost' and 'exact' see every parameter, or refuse",
                UserWarning,
                stacklevel=1,
            )

    def side(self, problem: Problem, batch: Batch, counted: Any, read: Validation) -> Any:
        """Return the summed gradients of the readouts; the trace where positions have no summary."""
        trace, counted = self.trace(problem, batch, counted)
        positions = read.positions or default_positions(trace)
        gradients: Any = trace.layers[-1].output_gradients
        trace = trace if read.sketch is None else read.sketch(trace)
        if positions == "flatten" and gradients.ndim == 3:
            return trace
        return replace(lai.summarize(trace, "lai", positions=positions), samples=counted.sum())

    def score(self, validation: Validation, recorded: Recorded, moment: Moment) -> Scored:
        """Score by the readouts, sketched as the validation side is."""
        sketch, trace = validation.sketch, recorded.trace
        trace = trace if sketch is None else sketch(trace)
        got, outputs = _width(validation.side), _width(trace)
        if got != outputs:
            step = "does not sketch" if sketch is None else f"sketches to {sketch.width}"
            msg = (
                f"summary: output gradients have width {got}, the step's {outputs} (the step {step}); pass "
                "the object that lai_jax.summarize(..., sketch=...) returned, which carries its sketch"
            )
            raise ValueError(msg)
        scores = lai.lai_scores(
            validation.side, trace, positions=validation.positions, layer_weights=validation.layer_weights
        )
        return Scored(recorded.losses, scores)


class PreconditionedLAI(LAI):
    """LAI whose output gradients are scaled by their running second moment."""

    def score(self, validation: Validation, recorded: Recorded, moment: Moment) -> Scored:
        """Move the second moment by this batch, and score with it."""
        trace, losses = recorded.trace, recorded.losses
        outputs, inputs = update_moments(moment, trace, jnp.isfinite(losses))
        scores = lai.preconditioned_lai_scores(
            validation.side,
            trace,
            outputs,
            input_second_moments=inputs,
            exponent=moment.exponent,
            positions=validation.positions,
            layer_weights=validation.layer_weights,
        )
        return Scored(losses, scores, outputs if inputs is None else (outputs, inputs))


class GateLAI(Scorer):
    """LAI with output gradients carried down a chain by its gates."""

    sides: tuple[type, ...] = (GateTrace,)

    def side(self, problem: Problem, batch: Batch, counted: Any, read: Validation) -> Any:
        losses, chain = record_gates(*problem.plan_trace(batch, everything=False))
        rows = chain.trace, chain.gates  # the column norms are the model's, not of samples
        trace, gates = zero_out(rows, counted & jnp.isfinite(losses) & finite(rows))
        return replace(chain, trace=trace, gates=gates)

    def record(self, problem: Problem, batch: Batch) -> Recorded:
        return Recorded(*record_gates(*problem.plan_trace(batch, everything=False)))

    def score(self, validation: Validation, recorded: Recorded, moment: Moment) -> Scored:
        return Scored(recorded.losses, gate_lai_scores(validation.side, recorded.trace))


class Exact(Scorer):
    """All parameters of any architecture, by derivatives along the validation gradient."""

    sides: tuple[type, ...] = (ValidationGradient,)

    def side(self, problem: Problem, batch: Batch, counted: Any, read: Validation) -> Any:
        return validation_gradient(problem.apply, problem.params, problem.loss, batch, counted)

    def record(self, problem: Problem, batch: Batch) -> Any:
        """Return the function from a direction to every loss and its derivative along it."""
        check_targets(*batch)
        moving, losses = losses_of_leaves(problem.apply, problem.loss, problem.params)
        return partial(directional_derivatives, losses, moving, batch)

    def score(self, validation: Validation, recorded: Any, moment: Moment) -> Scored:
        return Scored(*recorded(validation.side.gradient))


SCORERS: dict[str, Scorer] = {
    "ghost": Ghost(),
    "lai": LAI(),
    "lli": LLI(),
    "preconditioned_lai": PreconditionedLAI(),
    "gate_lai": GateLAI(),
    "calibrated_lai": LAI(),
    "exact": Exact(),
}


def score_parts(scorer: Scorer, validation: Validation, recorded: Any, moment: Moment) -> Scored:
    """Score a batch, against each part if there are parts; NaN where a loss or a score is not finite."""

    def score_side(side: Any) -> tuple[Any, ...]:
        scored = scorer.score(replace(validation, side=side, parts=None), recorded, moment)
        return scored.scores, scored.losses, scored.second_moment

    parts = sizes = None
    if validation.parts is None:
        scores, losses, moved = score_side(validation.side)
    else:
        parts, losses, moved = jax.vmap(score_side, out_axes=(0, None, None))(validation.side)
        scores, sizes = parts.sum(0), validation.side.samples
    sound = jnp.isfinite(losses) & jnp.isfinite(scores)
    return Scored(losses, jnp.where(sound, scores, jnp.nan), moved, parts, sizes)


def _is_matrix(use: Use, adding: str) -> bool:
    """Whether a use takes matrices: not rows of a table that are vectors, nor what is only added."""
    if use.kind == "gather":
        windows = use.eqn.params["slice_sizes"]
        return sum(size > 1 for size in windows) > 1
    operand = use.operand
    if sum(size > 1 and axis not in operand.flat for axis, size in enumerate(operand.shape)) < 2:
        return False
    name = use.eqn.primitive.name
    if name == "triangular_solve" or name not in (*RULES, "scan", "cond"):
        return True  # a function, or what no rule follows
    if name in ("dot_general", "select_n"):  # a matrix for each sample, or one chosen by it
        return adding == "dot_general"
    # A gain has one entry for each that it meets; for a matrix what it meets is repeated along its outputs.
    output = use.eqn.outvars[0].aval.shape
    met = [one.aval.shape for place, one in enumerate(use.eqn.invars) if place != use.parameter]
    return any(len(shape) > 0 and shape != output for shape in met)


def _check_trains(read: Sequence[PlannedRecord], reading: str) -> None:
    if all(own.use.frozen for own in read):
        msg = (
            f"apply: expected a layer that trains, got a frozen one, {read[-1].name!r}: {reading}, so that "
            "every score would be zero; use estimator 'ghost' or 'exact', which score the parameters that "
            "train"
        )
        raise ValueError(msg)


def _width(side: Any) -> int:
    if isinstance(side, lai.ValidationSummary):
        return int(dict(side.layouts[-1])["width of the output gradients"])
    return int(side.layers[-1].output_gradients.shape[-1])
