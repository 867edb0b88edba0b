"""What a caller may want to know of traces before scoring them, and of a model before tracing it."""

from jaxtyping import Float

from lai_core._engine.arguments import check_lai_trace
from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_floating, check_not_empty, check_vector
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, namespace_of
from lai_core._engine.positions import POSITIONS, misfit
from lai_core._engine.records import Trace, where
from lai_core._engine.trace_checks import check_pair, check_same_samples, check_trace


def fitting_positions(trace: Trace) -> tuple[str, ...]:
    """Return the meanings of `positions` that fit the layers of `trace`, the most exact first.

    Parameters
    ----------
    trace
        A trace with the output gradients of the last layer.

    Returns
    -------
    tuple of str
        Out of `tokens`, `mean`, `flatten`, in this order.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If the trace is unsound.
    """
    work = check_trace("trace", trace, "output", DEFAULT_MEMORY_BUDGET)
    check_lai_trace(trace, work, "mean", "trace")
    return tuple(choice for choice in POSITIONS if misfit(trace, work.xp, choice) is None)


def check_same_batch(validation: Trace, training: Trace) -> None:
    """Raise unless two traces hold the same numbers, as `exclude_self=True` assumes.

    Looks at values, so it is for eager use, outside compiled programs.

    Parameters
    ----------
    validation, training
        Traces of one model.

    Raises
    ------
    TypeError
        If an argument is not a trace.
    ValueError
        If the two are not of the same batch, naming the first array that differs.
    """
    work = check_pair(validation, training, "output", DEFAULT_MEMORY_BUDGET)
    check_same_samples(validation, training)
    for index, (theirs, ours) in enumerate(zip(validation.layers, training.layers, strict=True)):
        for field, array in ours.arrays().items():
            other = theirs.arrays().get(field)
            same = other is not None and array.shape == other.shape and _equal(work.xp, array, other)
            if not same:
                msg = (
                    f"{where('training', index, ours)}.{field}: expected the values of validation, got others"
                )
                raise ValueError(msg)


def ownership_residuals(
    gradient: Float[Array, "n ..."], weighted: Float[Array, "n ..."], weights: Float[Array, " n"]
) -> Float[Array, " n"]:
    r"""Measure how far each row of a tensor is from reaching the loss of its own sample alone.

    Implements :eq:`sample-ownership`: with the gradients :math:`r` of :math:`\sum_k \ell_k` and
    :math:`r^w` of :math:`\sum_k w_k \ell_k` at a tensor of one row a sample, :math:`r^w_i - w_i r_i =
    \sum_{k \ne i} (w_k - w_i)\, \partial \ell_k / \partial x_i`. It is 0 where no other sample's loss
    depends on row i, and for almost all weights nowhere else.

    Parameters
    ----------
    gradient
        Gradient of the sum of all samples' losses, `(n, ...)`, sample by sample.
    weighted
        Gradient of the weighted sum, of the same shape.
    weights
        The weights, `(n,)`: all different, and drawn without looking at the model.

    Returns
    -------
    array
        `(n,)`: the largest absolute entry of each row of :math:`r^w_i - w_i r_i`, in the gradients'
        units. What is left of rounding is of the size of the weights times the gradients.

    Raises
    ------
    TypeError
        If an argument is no array of real floats.
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.checks import ownership_residuals
    >>> weights = np.array([1.0, 2.0])
    >>> gradients = np.array([[[1.0], [0.0]], [[5.0], [3.0]]])  # of both losses at both rows
    >>> weighted = (weights[:, None, None] * gradients).sum(0)
    >>> ownership_residuals(gradients.sum(0), weighted, weights)  # the second loss depends on row 0
    array([5., 0.])
    """
    named = {"gradient": gradient, "weighted": weighted, "weights": weights}
    xp = namespace_of(named)
    shape = tuple(gradient.shape)
    check_not_empty("gradient", gradient)
    if tuple(weighted.shape) != shape or not shape:
        msg = f"weighted: expected the shape of gradient, (n, ...) = {shape}, got {tuple(weighted.shape)}"
        raise ValueError(msg)
    check_vector("weights", weights, shape[0])
    for name in ("gradient", "weighted"):
        check_floating(name, named[name], xp)
    dtype = accumulation_dtype(xp, *(array.dtype for array in named.values()))
    once, second = (cast(xp, xp.reshape(side, (shape[0], -1)), dtype) for side in (gradient, weighted))
    left = second - once * xp.expand_dims(cast(xp, weights, dtype), axis=1)
    return xp.max(xp.abs(left), axis=1)


def _equal(xp: Namespace, left: Array, right: Array) -> bool:
    """Whether two arrays hold the same numbers; NaN equals NaN here, it is the same batch."""
    return bool(xp.all((left == right) | ((left != left) & (right != right))))
