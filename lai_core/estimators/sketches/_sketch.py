"""Sketch the output gradients of a trace, and say how much that makes a score vary."""

from typing import Any

from jaxtyping import Float, Int

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_count, check_not_empty
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, accumulation_dtype, namespace_of
from lai_core.estimators._sides import lai_sides
from lai_core.estimators.sketches._variance import chance_of_a_shared_group, sketch, spread
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records.base import Trace
from lai_core.records.dense import LayerTrace, ReadoutTrace


def sketch_outputs(
    trace: Trace,
    signs: Float[Array, " d_L"],
    permutation: Int[Array, " d_L"],
    *,
    width: int,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Trace:
    r"""Replace the last layer's output gradients by a sketch of `width` numbers a position.

    Implements :eq:`sketch-unbiased`: the sketch :math:`S g` of a gradient is :math:`(S g)_b =
    \sum_{i \in b} s_i g_i` over `width` groups of equal size. Over random signs :math:`E \langle S g,
    S h \rangle = \langle g, h \rangle`, and so every score that is linear in these products, such as
    LAI's at any `positions`, is unbiased; `sketch_variance` is its variance.

    Parameters
    ----------
    trace
        A trace whose last record is a `LayerTrace` or a `ReadoutTrace` with output gradients.
    signs
        `(d_L,)`, -1 or 1 each, drawn by the caller; the same for validation and training.
    permutation
        `(d_L,)`, a permutation of the outputs; likewise. Runs of `ceil(d_L / width)` outputs in its
        order are the groups.
    width
        Numbers a position to keep, at least 1.
    memory_budget
        Bytes that temporaries may take, which are a few times the output gradients they are made of.

    Returns
    -------
    Trace
        For LAI: the last record is a `ReadoutTrace` in at least float32, which LLI refuses and Ghost
        leaves out.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.estimators.sketches import sketch_outputs
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.array([[1.0, 2.0, 3.0, 4.0]] * 2))])
    >>> sketched = sketch_outputs(trace, np.array([1.0, -1, 1, 1]), np.array([0, 2, 1, 3]), width=2)
    >>> sketched.layers[-1].output_gradients[0]
    array([4., 2.])
    """
    *others, last = trace.layers
    if not isinstance(last, LayerTrace):
        msg = f"trace: expected a LayerTrace or ReadoutTrace as the last record, got {type(last).__name__}"
        raise TypeError(msg)
    gradients: Any = last.output_gradients
    if gradients is None:
        msg = "trace: expected the last layer's output gradients, got None"
        raise ValueError(msg)
    check_not_empty("output_gradients", gradients)
    outputs = int(gradients.shape[-1])
    _check_entries("signs", signs, outputs)
    _check_entries("permutation", permutation, outputs)
    _check_width(width, outputs)
    xp = namespace_of({"output_gradients": gradients, "signs": signs, "permutation": permutation})
    work = Workspace(xp, accumulation_dtype(xp, gradients.dtype), check_count("memory_budget", memory_budget))
    flat = xp.reshape(gradients, (-1, outputs))
    sketched = sketch(flat, xp.astype(signs, work.dtype), permutation, width, work)
    sketched = xp.reshape(sketched, (*gradients.shape[:-1], width))
    readout = ReadoutTrace(last.activations, sketched, bias=last.bias, name=last.name, valid=last.valid)
    return Trace([*others, readout])


def sketch_variance(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    width: int,
    permutation: Int[Array, " d_L"] | None = None,
    layer_weights: Any = None,
    positions: str | None = None,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Compute how much LAI's scores from sketched traces vary with the random signs.

    Implements :eq:`sketch-variance` and :eq:`sketch-permutation`: with :math:`M_j = G_V \sum_t c_{jt}
    g_{jt}^\top`, whose trace is the score, the variance of score j is :math:`\sum_{i \ne k} (M_{ik}^2 +
    M_{ik} M_{ki})` over pairs of outputs that share a group; over random permutations each pair counts
    with its chance to do so, and the variance is at most :math:`(\|M_j\|_F^2 + \mathrm{tr} M_j^2) /
    width`.

    Parameters
    ----------
    validation
        A trace with the output gradients of the last layer, or an `lai` summary; not sketched.
    training
        A trace with the output gradients of the last layer; not sketched.
    width
        That of the sketch.
    permutation
        `(d_L,)`, that of the sketch, for the variance over signs alone. None: over signs and uniformly
        random permutations together.
    layer_weights, positions
        As in `lai_core.lai_scores`, whose scores are meant.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train,)`, in the scores' units squared; 0 or more. Its rounding is that of :math:`\|M_j\|^2`.

    Notes
    -----
    In multiply-adds, what LAI's exact scores cost, and `4 n t d_L min(t, d_L)` beside, or
    `4 n t d_L min(t, d_L / width)` with a permutation.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.estimators.sketches import sketch_variance
    >>> trace = lai.Trace([lai.LayerTrace(np.ones((1, 1)), np.array([[1.0, 2.0]]))])
    >>> lai.lai_scores(trace, trace)  # signs +, + give (1 + 2)^2 = 9, signs +, - give 1
    array([5.])
    >>> sketch_variance(trace, trace, width=1)
    array([16.])
    """
    sides = lai_sides(validation, training, layer_weights, positions, False, memory_budget)
    gradients: Any = training.layers[-1].output_gradients
    outputs = int(gradients.shape[-1])
    _check_width(width, outputs)
    summed = isinstance(validation, ValidationSummary)
    one: Any = sides.validation[0] if summed else sides.validation["readouts"][0]
    other: Any = sides.training["readouts"][0]
    if permutation is None:
        together = spread(one, other, outputs, None, 1, sides.work)
        return together * chance_of_a_shared_group(outputs, width)
    _check_entries("permutation", permutation, outputs)
    namespace_of({"training": gradients, "permutation": permutation})
    return spread(one, other, outputs, permutation, width, sides.work)


def _check_entries(name: str, array: Array, outputs: int) -> None:
    if tuple(array.shape) != (outputs,):
        msg = f"{name}: expected one entry per output, shape ({outputs},), got {tuple(array.shape)}"
        raise ValueError(msg)


def _check_width(width: Any, outputs: int) -> None:
    if not isinstance(width, int) or not 1 <= width <= outputs:
        msg = f"width: expected a whole number in [1, {outputs}], got {width!r}"
        raise ValueError(msg)
