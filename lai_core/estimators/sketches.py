r"""Random sketches of the output gradients: LAI on exact pairs of tokens at a fraction of the outputs.

With as many outputs as a vocabulary has words, what LAI's exact pairs of positions cost is the number
of outputs: `n t d_L D` multiply-adds, `D` the layers' summed widths. A sketch adds the outputs up in
`width` random groups with random signs, the same on both sides, and `d_L` becomes `width`.
"""

from functools import partial
from typing import Any

from jaxtyping import Float, Int

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_count, check_not_empty
from lai_core._engine.factors import lay_by_group
from lai_core._engine.gradients import Workspace, spans
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, matmul, namespace_of
from lai_core._engine.outer import OuterGradient, products_of
from lai_core.estimators._sides import lai_sides
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records.base import Trace
from lai_core.records.dense import LayerTrace, ReadoutTrace

__all__ = ["sketch_outputs", "sketch_variance"]


# How much random signs make a sketched score vary.
#
# A score is `\sum_t \langle u_t, g_t \rangle`, where `u_t` is the summed validation gradient times the
# columns at position t. Signs s add `s_i s_k M_{ik}` for every two outputs of one group, `M = \sum_t u_t
# g_t^\top`, and the variance is `\sum_{i \ne k} (M_{ik}^2 + M_{ik} M_{ki})`.


def _chance_of_a_shared_group(outputs: int, width: int) -> float:
    """Return how likely two outputs, permuted at random, fall into one of `width` groups."""
    size = -(-outputs // width)
    full, rest = divmod(outputs, size)
    return (full * size * (size - 1) + rest * (rest - 1)) / max(outputs * (outputs - 1), 1)


def _sketch(
    rows: Float[Array, "n d"], signs: Array, permutation: Array, width: int, work: Workspace
) -> Float[Array, "n width"]:
    """Add the signed entries of every row up in `width` groups, as many rows at once as fit."""
    xp, (count, outputs) = work.xp, rows.shape
    size = -(-outputs // width)
    parts = []
    for part in spans(count, work.fit(4 * size * width, count, "one position's outputs")):
        signed = xp.take(cast(xp, rows[part, ...], work.dtype) * signs, permutation, axis=1)
        if missing := size * width - outputs:  # zeros fill up the groups
            signed = xp.concat([signed, xp.zeros_like(signed[:, :missing])], axis=1)
        parts.append(xp.sum(xp.reshape(signed, (-1, width, size)), axis=-1))
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _spread(
    validation: OuterGradient | tuple[Array, ...], training: OuterGradient, outputs: int, work: Workspace
) -> Float[Array, " n"]:
    """Return the sum over all pairs of outputs, per training sample."""
    # `validation` is that side or its `total`. Where the rows are flattened positions of `outputs` numbers
    # each, the positions share the signs.
    xp, t = work.xp, training.positions * training.height // outputs
    half = work.half()
    fits = work.holds(4 * training.total_entries())
    if fits and isinstance(validation, OuterGradient):
        summed = validation.total_cost() + training.total_cost()
        validation = validation.total(half) if summed <= validation.pairwise_cost(training) else validation
    # Alive for each sample: u and g, laid out and multiplied (6 t outputs), its factors while u is made, and
    # of `slab` rows of pairs two products and their factors.
    few = min(t, outputs)
    samples, slab = half.fit_both(
        lambda n, rows: n * (6 * t * outputs + training.factor_entries() + 4 * few * rows),
        training.samples,
        few,
        "one sample's positions",
    )
    parts = []
    for chunk in spans(training.samples, samples):
        pulled = (
            _multiply_by_pairs(validation, training, chunk, half)
            if isinstance(validation, OuterGradient)
            else training.multiply_total(validation, chunk, half)
        )
        sides = (pulled, lay_by_group(training.rows, chunk, 1, work))
        u, g = (xp.reshape(side, (-1, t, outputs)) for side in sides)
        found = _off_diagonal(xp, u, g, slab)
        parts.append(xp.maximum(found, xp.zeros_like(found)))  # rounding may leave less than nothing
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _multiply_by_pairs(
    validation: OuterGradient, training: OuterGradient, chunk: slice, work: Workspace
) -> Float[Array, "nt d"]:
    """Return the summed validation gradient times the training columns, without the former."""
    xp = work.xp
    pair = 3 * validation.positions * training.positions
    rows, columns = work.fit_both(
        lambda n, m: n * m * pair + n * validation.factor_entries() + m * training.factor_entries(),
        validation.samples,
        chunk.stop - chunk.start,
        "one pair of samples",
    )
    parts = []
    for start in range(chunk.start, chunk.stop, columns):
        part = slice(start, min(start + columns, chunk.stop))
        pulled: Array = None
        for span in spans(validation.samples, rows):
            alpha = validation.alpha(partial(products_of, lay_by_group, (span, part), 1, work), training)
            turned = xp.matrix_transpose(alpha)
            product = matmul(xp, turned, lay_by_group(validation.rows, span, 1, work))[0, ...]
            pulled = product if pulled is None else pulled + product
        parts.append(pulled)
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _off_diagonal(
    xp: Namespace, u: Float[Array, "b t m"], g: Float[Array, "b t m"], slab: int
) -> Float[Array, " b"]:
    """Return sum_{i != k} (M_ik^2 + M_ik M_ki) for M = u^T g, a few rows of pairs at a time."""
    # All pairs of outputs, less those of an output with itself, where both terms are M_ii^2:
    #
    #   sum_{i != k} (M_ik^2 + M_ik M_ki) = tr(M M^T) + tr(M M) - 2 sum_i M_ii^2
    #
    # M = sum_t u_t g_t^T makes each trace a sum over pairs of positions,
    #
    #   tr(M M^T) = sum_tt' <u_t, u_t'> <g_t, g_t'>,    tr(M M) = sum_tt' <u_t, g_t'> <g_t, u_t'>,
    #
    # or, with M built, over pairs of outputs; whichever are fewer: t^2 or size^2.
    t, size = u.shape[1:]
    by_positions = t <= size
    left, right = (u, g) if by_positions else (xp.matrix_transpose(u), xp.matrix_transpose(g))
    square = (left, left, right, right) if by_positions else (left, right, left, right)
    crossed = (left, right, right, left)
    diagonal = xp.sum(u * g, axis=1)  # M_ii
    found = -2.0 * xp.sum(diagonal * diagonal, axis=-1)
    for a, b, c, d in (square, crossed):
        for rows in spans(min(t, size), slab):
            one = matmul(xp, a[:, rows, :], xp.matrix_transpose(b))
            other = matmul(xp, c[:, rows, :], xp.matrix_transpose(d))
            found = found + xp.sum(one * other, axis=(1, 2))
    return found


# Sketch the output gradients of a trace, and say how much that makes a score vary.


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
    for name, array in (("signs", signs), ("permutation", permutation)):
        if tuple(array.shape) != (outputs,):
            msg = f"{name}: expected one entry per output, shape ({outputs},), got {tuple(array.shape)}"
            raise ValueError(msg)
    _check_width(width, outputs)
    xp = namespace_of({"output_gradients": gradients, "signs": signs, "permutation": permutation})
    work = Workspace(xp, accumulation_dtype(xp, gradients.dtype), check_count("memory_budget", memory_budget))
    flat = xp.reshape(gradients, (-1, outputs))
    sketched = _sketch(flat, xp.astype(signs, work.dtype), permutation, width, work)
    sketched = xp.reshape(sketched, (*gradients.shape[:-1], width))
    readout = ReadoutTrace(last.activations, sketched, bias=last.bias, name=last.name, valid=last.valid)
    return Trace([*others, readout])


def sketch_variance(
    validation: Trace | ValidationSummary,
    training: Trace,
    *,
    width: int,
    layer_weights: Any = None,
    positions: str | None = None,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Compute how much LAI's scores from sketched traces vary with random signs and permutations.

    Implements :eq:`sketch-variance` and :eq:`sketch-permutation`: with :math:`M_j = G_V \sum_t c_{jt}
    g_{jt}^\top`, whose trace is the score, two outputs of one group add :math:`M_{ik}^2 + M_{ik} M_{ki}` to
    the variance of score j. Over uniformly random permutations each pair counts with its chance to share a
    group, and the variance is at most :math:`(\|M_j\|_F^2 + \mathrm{tr} M_j^2) / width`.

    Parameters
    ----------
    validation
        A trace with the output gradients of the last layer, or an `lai` summary; not sketched.
    training
        A trace with the output gradients of the last layer; not sketched.
    width
        That of the sketch.
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
    In multiply-adds, what LAI's exact scores cost, and `4 n t d_L min(t, d_L)` beside.

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
    return _spread(one, other, outputs, sides.work) * _chance_of_a_shared_group(outputs, width)


def _check_width(width: Any, outputs: int) -> None:
    if not isinstance(width, int) or not 1 <= width <= outputs:
        msg = f"width: expected a whole number in [1, {outputs}], got {width!r}"
        raise ValueError(msg)
