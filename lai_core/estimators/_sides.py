"""The two sides of a score: what the validation set sums up to, and what a batch is scored with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from lai_core._engine.factored import gradient_of
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, accumulation_dtype, namespace_of
from lai_core._engine.outer import OuterGradient
from lai_core.estimators import _parameters as estimators
from lai_core.estimators._arguments import check_lai_pair, check_lai_trace, readout_scales
from lai_core.estimators.catalogue import find_estimator
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records.base import Trace
from lai_core.records.compatible import check_layouts, check_pair, check_same_samples, check_trace


@dataclass(frozen=True)
class Sides:
    """Both sides' gradients of the parameters that an estimator sees; a summary's are summed already."""

    validation: Any
    training: estimators.Gradients
    work: Workspace

    def kernel(self) -> Float[Array, "n_val n_train"]:
        if not isinstance(self.validation, Mapping):
            msg = "validation: expected a Trace, whose samples are pairs' sides, got a ValidationSummary"
            raise TypeError(msg)
        return estimators.kernel(self.validation, self.training, self.work)

    def scores(self, *, exclude_self: bool) -> Float[Array, " n_train"]:
        """Return the training samples' inner products with the summed validation gradient."""
        if not isinstance(self.validation, Mapping):
            return estimators.dot_totals(self.validation, self.training, self.work)
        scores = estimators.scores(self.validation, self.training, self.work)
        if not exclude_self:
            return scores
        # <sum_z g_z - g_j, g_j> = <sum_z g_z, g_j> - |g_j|^2
        return scores - estimators.diagonal(self.validation, self.training, self.work)


def exact_sides(name: str, validation: Any, training: Trace, exclude_self: bool, memory_budget: int) -> Sides:
    """Check what Ghost or LLI is asked to score, and return both sides."""
    asked = find_estimator(name)
    if isinstance(validation, ValidationSummary):
        work = check_summary(validation, training, name, exclude_self, memory_budget)
        return Sides(_totals(validation, work), estimators.collect_gradients(asked, training, work), work)
    work = check_pair(validation, training, asked.gradients, memory_budget)
    if exclude_self:
        check_same_samples(validation, training)
    summed, scored = (estimators.collect_gradients(asked, trace, work) for trace in (validation, training))
    return Sides(summed, scored, work)


def lai_sides(
    validation: Any,
    training: Trace,
    layer_weights: Any,
    positions: str | None,
    exclude_self: bool,
    memory_budget: int,
    metric: estimators.ReadoutMetric | None = None,
) -> Sides:
    """Check what LAI is asked to score, and return both sides; weights and metric go to the training side."""
    if isinstance(validation, ValidationSummary):
        work = check_summary(validation, training, "lai", exclude_self, memory_budget)
        if positions not in (None, validation.positions):
            msg = (
                f"positions: expected {validation.positions!r}, with which the summary was made, got "
                f"{positions!r}"
            )
            raise ValueError(msg)
        positions = str(validation.positions)
        check_lai_trace(training, work, positions, "training")
        summed: Any = _totals(validation, work)
    else:
        positions = "tokens" if positions is None else positions
        work = check_lai_pair(validation, training, positions, memory_budget)
        if exclude_self:
            check_same_samples(validation, training)
        summed = estimators.lai_gradients(validation, work, positions)
    scales = readout_scales(layer_weights, training, work)
    readouts = estimators.lai_gradients(training, work, positions, scales, metric)
    if isinstance(validation, ValidationSummary):
        _check_block_widths(validation, readouts)
    return Sides(summed, readouts, work)


def check_summary(
    summary: ValidationSummary, training: Any, expected: str, exclude_self: bool, memory_budget: int
) -> Workspace:
    """Raise unless a summary is the expected one and fits the training trace; return where to compute."""
    needs = find_estimator(expected).gradients
    work = check_trace("training", training, needs, memory_budget)
    if summary.estimator != expected:
        msg = f"validation: expected a summary for {expected!r}, got one for {summary.estimator!r}"
        raise ValueError(msg)
    if exclude_self:
        msg = "exclude_self: expected validation as a Trace of the training batch, got a ValidationSummary"
        raise ValueError(msg)
    first = {"validation": summary.totals[0][0]}
    xp = namespace_of(first | {"training": training.layers[-1].output_gradients})
    check_layouts("the summary", summary.layouts, training, needs)
    return Workspace(xp, accumulation_dtype(xp, first["validation"].dtype, work.dtype), work.memory_budget)


def _totals(summary: ValidationSummary, work: Workspace) -> tuple[Any, ...]:
    """Return a summary's totals, one that is not summed yet as the gradient whose sum it is."""
    if not summary.factored:
        return summary.totals
    first, *rest = summary.totals
    return gradient_of(first, work.xp), *rest


def _check_block_widths(summary: ValidationSummary, training: estimators.Gradients) -> None:
    (gradient,) = training["readouts"]
    blocks = gradient.columns if isinstance(gradient, OuterGradient) else ()
    totals = summary.totals[0][1:] if summary.factored else summary.totals[0]
    for index, (total, block) in enumerate(zip(totals, blocks, strict=False)):
        if total.shape[-1] != block.shape[-1]:
            msg = (
                f"training: expected readout {index} of width {total.shape[-1]} as in the summary, got "
                f"{block.shape[-1]}; positions='flatten' needs equally many positions"
            )
            raise ValueError(msg)
