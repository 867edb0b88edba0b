"""Scores: the kernels' sums over validation samples, without the kernels."""

from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, accumulation_dtype, namespace_of
from lai_core._engine.outer import OuterGradient
from lai_core.estimators import _parameters as estimators
from lai_core.estimators._arguments import check_lai_pair, check_lai_trace, readout_scales
from lai_core.estimators.catalogue import find_estimator
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records.base import Trace
from lai_core.records.compatible import check_layouts, check_pair, check_same_samples, check_trace


def ghost_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Inner product of each sample's exact gradient with the summed validation gradient.

    Implements :eq:`gradient1`, summed over validation samples, without the printed minus.

    Parameters
    ----------
    validation
        A trace with the output gradients of every layer, or a `ghost` summary.
    training
        A trace with the output gradients of every layer.
    exclude_self
        Leave sample j out of its own score: both traces are of the same batch, in the same order
        (`check_same_batch` looks), and the kernel's diagonal is subtracted.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: one SGD step of unit learning rate on sample j lowers the summed
        validation loss by the score, to first order. At least float32.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a trace is unsound, the two sides do not fit, `exclude_self` is asked of a summary, or the
        budget is too small.

    Notes
    -----
    Per matrix, in multiply-adds, the cheaper of pairs, `n_val n (d_in + d_out)`, and of the summed
    gradient, `(n_val + n) d_in d_out`; with t positions on each side, `n_val n t t' (d_in + d_out)`
    and `(n_val t + n t') d_in d_out`. Without positions the two cross where
    `1/n_val + 1/n = 1/d_in + 1/d_out`: the summed gradient is cheaper for larger batches. From a
    summary scoring costs `n t' d_in d_out`, whatever n_val was.
    """
    if isinstance(validation, ValidationSummary):
        work = _check_summary(validation, training, "ghost", exclude_self, memory_budget)
        return estimators.along(validation.totals, estimators.ghost_gradients(training, work), work)
    work = check_pair(validation, training, "all", memory_budget)
    sides = (estimators.ghost_gradients(validation, work), estimators.ghost_gradients(training, work))
    return _scores(*sides, validation, training, exclude_self, work)


def lli_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Inner product of each sample's last-layer gradient with the summed validation gradient.

    The gradient is that of the last layer's own use of its parameters, also where it shares its matrix.

    Implements :eq:`lli`, summed over validation samples.

    Parameters
    ----------
    validation
        A trace with the output gradients of the last layer, or an `lli` summary.
    training
        A trace with the output gradients of the last layer.
    exclude_self
        Leave sample j out of its own score, as in `ghost_scores`.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: one SGD step of unit learning rate on sample j, moving the last
        layer alone, lowers the summed validation loss by the score, to first order.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        As in `ghost_scores`.
    """
    if isinstance(validation, ValidationSummary):
        work = _check_summary(validation, training, "lli", exclude_self, memory_budget)
        return estimators.along(validation.totals, estimators.lli_gradients(training, work), work)
    work = check_pair(validation, training, "output", memory_budget)
    sides = (estimators.lli_gradients(validation, work), estimators.lli_gradients(training, work))
    return _scores(*sides, validation, training, exclude_self, work)


def lai_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    layer_weights: Any = None,
    positions: str | None = None,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Layer-aware influence of each training sample on the whole validation set.

    Implements :eq:`gradient2`, summed over validation samples, without the printed minus.

    Parameters
    ----------
    validation
        A trace with the output gradients of the last layer, or an `lai` summary.
    training
        A trace with the output gradients of the last layer.
    layer_weights
        `(L,)`, an array of the traces' namespace or a sequence of floats: factors of each layer's
        alpha, the bias's 1 included. None: all 1.
    positions
        `tokens`, `mean` or `flatten`. None: what the summary was made with, `tokens` for a trace.
    exclude_self
        Leave sample j out of its own score, as in `ghost_scores`.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: one SGD step of unit learning rate on sample j, moving the
        virtual readouts alone, lowers the summed validation loss by the score, to first order.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        As in `ghost_scores`; also if `positions` or `layer_weights` do not fit, or `positions`
        conflicts with the summary.

    Notes
    -----
    With `D = sum_l d_(l-1)`, in multiply-adds, the cheaper of pairs, `n_val n (D + d_L)`, and of the
    summed readout gradient, `(n_val + n) d_L D`; with t positions on each side,
    `n_val n t t' (D + d_L)` and `(n_val t + n t') d_L D`. The two cross where
    `1/n_val + 1/n = 1/D + 1/d_L`. From a summary scoring costs `n t' d_L D`, whatever n_val was.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.array([[1.0], [-1.0]]))])
    >>> lai.lai_scores(trace, trace, exclude_self=True)  # each opposes the other
    array([-3., -3.])
    """
    return _lai_scores(validation, training, layer_weights, positions, exclude_self, memory_budget)


def _lai_scores(
    validation: Any,
    training: Trace,
    layer_weights: Any,
    positions: str | None,
    exclude_self: bool,
    memory_budget: int,
    output_scale: Array | None = None,
) -> Float[Array, " n_train"]:
    theirs, ours, work = _lai_sides(
        validation, training, layer_weights, positions, exclude_self, memory_budget, output_scale
    )
    if isinstance(validation, ValidationSummary):
        return estimators.along(theirs, ours, work)
    return _scores(theirs, ours, validation, training, exclude_self, work)


def _lai_sides(
    validation: Any,
    training: Trace,
    layer_weights: Any,
    positions: str | None,
    exclude_self: bool,
    memory_budget: int,
    output_scale: Array | None = None,
) -> tuple[Any, estimators.Gradients, Workspace]:
    """Check what LAI is asked to score; return the summary's totals or the trace's gradients, and ours."""
    if isinstance(validation, ValidationSummary):
        work = _check_summary(validation, training, "lai", exclude_self, memory_budget)
        positions = _summary_positions(validation, positions)
        check_lai_trace(training, work, positions, "training")
        scales = readout_scales(layer_weights, training, work)
        ours = estimators.lai_gradients(training, work, positions, scales, output_scale)
        _check_block_widths(validation, ours)
        return validation.totals, ours, work
    positions = "tokens" if positions is None else positions
    work = check_lai_pair(validation, training, positions, memory_budget)
    scales = readout_scales(layer_weights, training, work)
    theirs = estimators.lai_gradients(validation, work, positions)
    ours = estimators.lai_gradients(training, work, positions, scales, output_scale)
    return theirs, ours, work


def _scores(
    theirs: estimators.Gradients,
    ours: estimators.Gradients,
    validation: Trace,
    training: Trace,
    exclude_self: bool,
    work: Workspace,
) -> Float[Array, " n_train"]:
    if not exclude_self:
        return estimators.scores(theirs, ours, work)
    check_same_samples(validation, training)
    return estimators.scores(theirs, ours, work) - estimators.diagonal(theirs, ours, work)


def _check_summary(
    summary: ValidationSummary, training: Any, estimator: str, exclude_self: bool, memory_budget: int
) -> Workspace:
    needs = find_estimator(estimator).gradients
    work = check_trace("training", training, needs, memory_budget)
    if summary.estimator != estimator:
        msg = f"validation: expected a summary for {estimator!r}, got one for {summary.estimator!r}"
        raise ValueError(msg)
    if exclude_self:
        msg = "exclude_self: expected validation as a Trace of the training batch, got a ValidationSummary"
        raise ValueError(msg)
    first = {"validation": summary.totals[0][0]}
    xp = namespace_of(first | {"training": training.layers[-1].output_gradients})
    check_layouts("the summary", summary.layouts, training, needs)
    return Workspace(xp, accumulation_dtype(xp, first["validation"].dtype, work.dtype), work.memory_budget)


def _summary_positions(summary: ValidationSummary, positions: str | None) -> str:
    if positions is not None and positions != summary.positions:
        msg = f"positions: expected {summary.positions!r}, with which the summary was made, got {positions!r}"
        raise ValueError(msg)
    return str(summary.positions)


def _check_block_widths(summary: ValidationSummary, ours: estimators.Gradients) -> None:
    (gradient,) = ours["readouts"]
    blocks = gradient.columns if isinstance(gradient, OuterGradient) else ()
    for index, (total, block) in enumerate(zip(summary.totals[0], blocks, strict=False)):
        if total.shape[-1] != block.shape[-1]:
            msg = (
                f"training: expected readout {index} of width {total.shape[-1]} as in the summary, got "
                f"{block.shape[-1]}; positions='flatten' needs equally many positions"
            )
            raise ValueError(msg)
