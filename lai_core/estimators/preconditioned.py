r"""LAI in the metric of an adaptive optimizer: output gradients divided by their running magnitude."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float

from lai_core._engine.axes import check_array, check_kind
from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_number
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, namespace_of
from lai_core.estimators._parameters import ReadoutMetric
from lai_core.estimators._sides import lai_sides
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records.base import Trace
from lai_core.records.compatible import check_trace


def update_second_moment(
    previous: Array | None, output_gradients: Array, *, decay: float = 0.999, valid: Array | None = None
) -> Float[Array, " d_out"]:
    r"""Update the running mean of squared output gradients.

    Implements :eq:`second-moment`: :math:`D \leftarrow \gamma D + (1-\gamma)\,\overline{g^2}`.

    The mean is over samples and positions; gradients are those of each sample's own loss.

    Parameters
    ----------
    previous
        The running mean so far, `(d_L,)`; None at the start, which returns the batch's own mean.
    output_gradients
        The last layer's, `(n, d_L)` or `(n, t, d_L)`.
    decay
        Share of the previous value that stays, in [0, 1).
    valid
        `(n, t)`, booleans: the positions that count, for gradients `(n, t, d_L)`. None: all.

    Returns
    -------
    array
        `(d_L,)`, squared units of the output gradients; at least float32. `previous` is not written to.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> moment = lai.update_second_moment(None, np.array([[1.0, 2.0], [3.0, 0.0]]))
    >>> lai.update_second_moment(moment, np.zeros((2, 2)), decay=0.5)
    array([2.5, 1. ])
    """
    check_number("decay", decay, at_least=0.0, below=1.0)
    xp = check_array("output_gradients", output_gradients, "n d_L", "n t d_L")
    gradients = cast(xp, output_gradients, accumulation_dtype(xp, output_gradients.dtype))
    mean = _mean(gradients * gradients, valid, xp)
    if previous is None:
        return mean
    check_array("previous", previous, str(int(gradients.shape[-1])))
    namespace_of({"output_gradients": output_gradients, "previous": previous})
    kept = cast(xp, previous, accumulation_dtype(xp, previous.dtype, mean.dtype))
    return kept * float(decay) + mean * (1.0 - float(decay))


def _mean(squares: Array, valid: Array | None, xp: Namespace) -> Float[Array, " d_out"]:
    """Return the mean over samples and, of those that count, positions: `(d_out,)`."""
    axes = tuple(range(squares.ndim - 1))
    if valid is None:
        return xp.mean(squares, axis=axes)
    check_kind("valid", valid, namespace_of({"output_gradients": squares, "valid": valid}), "bool")
    if tuple(valid.shape) != tuple(squares.shape[:-1]) or squares.ndim != 3:
        msg = (
            "valid: expected one entry per sample and position of gradients (n, t, d_L), got shape "
            f"{tuple(valid.shape)} for gradients {tuple(squares.shape)}"
        )
        raise ValueError(msg)
    squares = xp.where(xp.expand_dims(valid, axis=2), squares, xp.zeros_like(squares[:1, :1, :1]))
    count = xp.sum(xp.astype(valid, squares.dtype))
    return xp.sum(squares, axis=axes) / xp.where(count > 0, count, xp.ones_like(count))


def update_input_second_moments(
    previous: Sequence[Array | None] | None, training: Trace, *, decay: float = 0.999
) -> tuple[Float[Array, " d_in"] | None, ...]:
    r"""Update the running means of squared layer inputs, the other factor of a readout's second moment.

    Implements :eq:`adam-readouts`.

    Parameters
    ----------
    previous
        What this function returned before; None at the start.
    training
        A trace with the inputs of every layer.
    decay
        As in `update_second_moment`.

    Returns
    -------
    tuple
        `(d_(l-1),)` for each layer, the mean over samples and positions; None for one that LAI does not read.
    """
    xp = check_trace("training", training, "output", DEFAULT_MEMORY_BUDGET).xp
    before: Sequence[Array | None] = (None,) * len(training.layers) if previous is None else previous
    if len(before) != len(training.layers):
        msg = f"previous: expected one for each of the {len(training.layers)} layers, got {len(before)}"
        raise ValueError(msg)
    inputs = [layer.readout_input(xp) for layer in training.layers]
    return tuple(
        None if read is None else update_second_moment(one, read, decay=decay, valid=layer.readout_positions)
        for one, read, layer in zip(before, inputs, training.layers, strict=True)
    )


def preconditioned_lai_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    second_moment: Array,
    *,
    input_second_moments: Sequence[Any] | None = None,
    exponent: float = 1.0,
    epsilon: float = 1e-8,
    layer_weights: Any = None,
    positions: str | None = None,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""LAI scores with :math:`\tilde\beta = g_z^\top D^{-p} g_j`, D the second moment, p = exponent.

    Implements :eq:`optimizer-preconditioning` and :eq:`adam-readouts`, with :math:`D =
    \operatorname{Diag}(\sqrt v + \epsilon)^2` for the second moment v, so that :math:`D^{1/2} = \sqrt v +
    \epsilon` is what Adam divides its step by. Adam divides once, which is `exponent=0.5`; as printed, both
    sides are multiplied by :math:`D^{-1/2}`, which is `exponent=1.0`. Adam has a scale for each weight: with
    `input_second_moments` alpha is divided too, and the score is that of Adam's direction on the virtual
    readouts.

    Parameters
    ----------
    validation, training
        Traces with the output gradients of the last layer; for validation an `lai` summary will do.
    second_moment
        `(d_L,)`, see `update_second_moment`.
    input_second_moments
        One `(d_(l-1),)` for each layer, see `update_input_second_moments`. None: alpha is not divided.
    exponent
        Power of D that divides beta, and of the inputs' second moment that divides alpha.
    epsilon
        Added to the root of a second moment, as Adam adds it, in units of an output gradient; positive.
    layer_weights, positions, exclude_self, memory_budget
        As in `lai_scores`.

    Returns
    -------
    array
        `(n_train,)`. Positive helps, in the rescaled metric.
    """
    metric = _metric(training, second_moment, input_second_moments, exponent, epsilon, memory_budget)
    sides = lai_sides(validation, training, layer_weights, positions, exclude_self, memory_budget, metric)
    return sides.scores(exclude_self=exclude_self)


def _metric(
    training: Trace, second_moment: Array, inputs: Any, exponent: float, epsilon: float, memory_budget: int
) -> ReadoutMetric:
    check_number("exponent", exponent)
    check_number("epsilon", epsilon, above=0.0)
    work = check_trace("training", training, "output", memory_budget)
    outputs: Array = training.layers[-1].output_gradients
    xp = check_array("second_moment", second_moment, str(int(outputs.shape[-1])))
    namespace_of({"training": outputs, "second_moment": second_moment})

    # <D^-p G_V C^-p, g a^T> with diagonal D of the outputs and C of the inputs: both scale either side alike,
    # so that the validation side, which may be a summary already, is left as it is.
    def scale(moment: Array) -> Array:
        moment = cast(xp, moment, accumulation_dtype(xp, work.dtype, moment.dtype))
        # Adam's divisor. Inside the root, 1e-8 would be as large as an output gradient of 1e-4, while a
        # vocabulary of 50,000 words has gradients of 1e-5.
        return (work.xp.sqrt(moment) + float(epsilon)) ** (-2.0 * float(exponent))

    if inputs is None:
        return ReadoutMetric(scale(second_moment))
    if len(inputs) != len(training.layers):
        msg = (
            f"input_second_moments: expected one for each of the {len(training.layers)} layers, got "
            f"{len(inputs)}; update_input_second_moments returns them"
        )
        raise ValueError(msg)
    scales = []
    for index, (moment, layer) in enumerate(zip(inputs, training.layers, strict=True)):
        read = layer.readout_input(work.xp)
        if read is not None:
            check_array(f"input_second_moments[{index}]", moment, str(int(read.shape[-1])))
        scales.append(None if read is None else scale(moment))
    return ReadoutMetric(scale(second_moment), tuple(scales))
