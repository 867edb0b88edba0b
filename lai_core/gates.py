r"""Gate-corrected LAI: what one forward pass knows of the layers' gains, pair by pair.

Ghost's similarity shrinks or grows on its way down, :math:`\beta^{(t)} = \sum_i \phi'(s^{(t)}_{z,i})
\phi'(s^{(t)}_{j,i})\, (W^{(t+1)}_{:,i} \cdot g^{(t+1)}_z)(W^{(t+1)}_{:,i} \cdot g^{(t+1)}_j)`. Where
the columns of W point in no preferred direction, each product of projections is
:math:`\|W_{:,i}\|^2 \beta^{(t+1)} / d_{t+1}` on average, which needs no backward pass:
:math:`\beta^{(t)} \approx \gamma_t \beta^{(t+1)}`. Plain LAI sets every :math:`\gamma_t` to 1.

The functions take what a model's forward pass can record beside a trace: the derivatives
:math:`\phi'(s^{(t)})` of every layer but the last, `(n, d_t)`, and of the weights only the squared
norms of the columns of every matrix but the first, `(d_t,)`.
"""

from collections.abc import Callable, Iterator, Sequence

from jaxtyping import Float

from lai_core._checks import DEFAULT_MEMORY_BUDGET
from lai_core._gate_inputs import GateInputs, gate_inputs
from lai_core._gradients import spans
from lai_core._namespace import Array, cast
from lai_core._prepared import check_chain, check_shape, dot, prepared
from lai_core._records import Trace
from lai_core._trace_checks import check_same_samples

__all__ = ["gate_factors", "gate_lai_kernel", "gate_lai_scores", "gate_step_error", "squared_column_norms"]


def squared_column_norms(weight: Array, /) -> Float[Array, " d_in"]:
    r"""Squared norms of a matrix's columns, what the gates need to know of the layer above.

    Parameters
    ----------
    weight
        :math:`W^{(t+1)}`, `(d_(t+1), d_t)`.

    Returns
    -------
    array
        :math:`\|W^{(t+1)}_{:,i}\|^2`, `(d_t,)`.

    Raises
    ------
    ValueError
        If it is no matrix.
    TypeError
        If it is no array of real floats.
    """
    xp, (weight,) = prepared({"weight": weight})
    if weight.ndim != 2:
        msg = f"weight: expected shape (d_out, d_in), got {tuple(weight.shape)}"
        raise ValueError(msg)
    return xp.sum(weight * weight, axis=0)


def gate_factors(
    validation: Array, training: Array, column_norms: Array, /, *, width: int
) -> Float[Array, "n_val n_train"]:
    r"""Estimate the gain of one layer's similarity, for every pair of samples.

    Implements :eq:`gate-corrected`, its factors: :math:`\gamma_t(z, j) = \frac{1}{d_{t+1}} \sum_i
    \|W^{(t+1)}_{:,i}\|^2 \phi'(s^{(t)}_{z,i}) \phi'(s^{(t)}_{j,i})`, the normalised trace of
    :math:`J_z^\top J_j`.

    Parameters
    ----------
    validation, training
        :math:`\phi'(s^{(t)})`, `(n_val, d_t)` and `(n_train, d_t)`.
    column_norms
        :math:`\|W^{(t+1)}_{:,i}\|^2`, `(d_t,)`.
    width
        :math:`d_{t+1}`, the number of rows of :math:`W^{(t+1)}`.

    Returns
    -------
    array
        `(n_val, n_train)`, a pure number.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"validation": validation, "training": training, "column_norms": column_norms}
    xp, (validation, training, column_norms) = prepared(named)
    for name, derivatives in (("validation", validation), ("training", training)):
        check_shape(name, derivatives, (derivatives.shape[0], column_norms.shape[-1]))
    return xp.matmul(validation * column_norms, xp.matrix_transpose(training)) / width


def gate_lai_kernel(
    validation: Trace,
    training: Trace,
    validation_gates: Sequence[Array],
    training_gates: Sequence[Array],
    column_norms: Sequence[Array],
    /,
    *,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, "n_val n_train"]:
    r"""LAI with each layer's alpha multiplied by the gains of the layers above it.

    Implements :eq:`gate-corrected`: :math:`\beta^{(L)}_{zj} \sum_l \alpha^{(l)}_{zj}
    \prod_{t=l}^{L-1} \gamma_t(z, j)`, without a printed minus. Given the activations, the gates, the
    column norms and the last gradients, its error against Ghost is 0 on average over column directions
    that are uniform on the sphere and independent from layer to layer. It needs each pair of samples:
    no summary of the validation side replaces them.

    Parameters
    ----------
    validation, training
        Traces of a chain of dense layers, one position a sample, with the last output gradients.
    validation_gates, training_gates
        :math:`\phi'(s^{(l)})` for l = 1, ..., L-1, each `(n, d_l)`.
    column_norms
        :math:`\|W^{(l+1)}_{:,i}\|^2` for l = 1, ..., L-1, each `(d_l,)`; see `squared_column_norms`.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_val, n_train)`; positive helps, as Ghost's. At least float32.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a trace is unsound or no such chain, shapes do not fit, or the budget is too small.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.gates import gate_lai_kernel
    >>> one = np.ones((1, 1))
    >>> trace = lai.Trace([lai.LayerTrace(2.0 * one), lai.LayerTrace(one, one)])
    >>> gate_lai_kernel(trace, trace, [one], [one], [np.array([0.25])])  # 4 * 0.25 + 1
    array([[2.]])
    """
    inputs = gate_inputs(
        (validation, training), (validation_gates, training_gates), column_norms, memory_budget
    )
    xp = inputs.work.xp
    blocks = [_block(inputs, columns) for columns in _columns(inputs)]
    return blocks[0] if len(blocks) == 1 else xp.concat(blocks, axis=1)


def gate_lai_scores(
    validation: Trace,
    training: Trace,
    validation_gates: Sequence[Array],
    training_gates: Sequence[Array],
    column_norms: Sequence[Array],
    /,
    *,
    exclude_self: bool = False,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " n_train"]:
    r"""Gate-corrected influence of each training sample on the whole validation set.

    Implements :eq:`gate-corrected`, summed over validation samples.

    Parameters
    ----------
    validation, training, validation_gates, training_gates, column_norms
        As in `gate_lai_kernel`.
    exclude_self
        Leave sample j out of its own score: both sides are of the same batch, in the same order.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train,)`. Positive helps: an estimate of what Ghost gives, in the same unit.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        As in `gate_lai_kernel`; also if `exclude_self` is asked of batches of different sizes.
    """
    inputs = gate_inputs(
        (validation, training), (validation_gates, training_gates), column_norms, memory_budget
    )
    xp = inputs.work.xp
    sums = [xp.sum(_block(inputs, columns), axis=0) for columns in _columns(inputs)]
    scores = sums[0] if len(sums) == 1 else xp.concat(sums, axis=0)
    if not exclude_self:
        return scores
    check_same_samples(validation, training)
    return scores - _diagonal(inputs)


def gate_step_error(
    weight: Array, validation_gates: Array, training_gates: Array, validation: Array, training: Array, /
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Error that one gate factor makes, and a bound on it that holds for every weight matrix.

    Implements :eq:`gate-step-error`: :math:`|\beta^{(t)} - \gamma_t \beta^{(t+1)}| \le
    \|N - \tfrac{\mathrm{tr} N}{d_{t+1}} I\|_2\, \|g^{(t+1)}_z\|\, \|g^{(t+1)}_j\|` with
    :math:`N = W^{(t+1)} \mathrm{Diag}(\phi'_z \phi'_j) W^{(t+1)\top}`.

    Parameters
    ----------
    weight
        :math:`W^{(t+1)}`, `(d_(t+1), d_t)`.
    validation_gates, training_gates
        :math:`\phi'(s^{(t)})` of z and of j, `(..., d_t)`.
    validation, training
        :math:`g^{(t+1)}` of z and of j, `(..., d_(t+1))`.

    Returns
    -------
    tuple of array
        The error and its bound, each `(...)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {
        "weight": weight,
        "validation_gates": validation_gates,
        "training_gates": training_gates,
        "validation": validation,
        "training": training,
    }
    xp, (weight, theirs, ours, g_z, g_j) = prepared(named)
    check_chain("weight", [weight])
    height, width = weight.shape
    for name, array, length in (
        ("validation_gates", theirs, width),
        ("training_gates", ours, width),
        ("validation", g_z, height),
        ("training", g_j, height),
    ):
        check_shape(name, array, (*array.shape[:-1], length))
    gates = (theirs * ours)[..., None, :]
    operator = xp.matmul(weight * gates, xp.matrix_transpose(weight))
    gamma = xp.sum(xp.sum(weight * weight, axis=0) * theirs * ours, axis=-1) / height
    ones = xp.ones_like(operator)
    identity = xp.tril(ones) - xp.tril(ones, k=-1)  # `eye` would have to be told the device
    rest = operator - gamma[..., None, None] * identity
    error = xp.abs(xp.sum(g_z * xp.matmul(rest, g_j[..., None])[..., 0], axis=-1))
    norms = xp.sqrt(dot(xp, g_z, g_z) * dot(xp, g_j, g_j))
    return error, xp.linalg.matrix_norm(rest, ord=2) * norms


def _columns(inputs: GateInputs) -> Iterator[slice]:
    """Cut the training samples so that every layer's block of pairs fits the budget."""
    n_val, n_train = inputs.gradients[0].shape[0], inputs.gradients[1].shape[0]
    return spans(
        n_train, inputs.work.fit((len(inputs.constants) + 2) * n_val, n_train, "one column of a kernel")
    )


def _block(inputs: GateInputs, columns: slice) -> Float[Array, "n_val chunk"]:
    xp, dtype = inputs.work.xp, inputs.work.dtype

    def products(validation: Array, training: Array) -> Array:
        right = cast(xp, training[columns, ...], dtype)
        return xp.matmul(cast(xp, validation, dtype), xp.matrix_transpose(right))

    return _corrected(inputs, products)


def _diagonal(inputs: GateInputs) -> Float[Array, " n"]:
    xp, dtype = inputs.work.xp, inputs.work.dtype
    return _corrected(inputs, lambda left, right: dot(xp, cast(xp, left, dtype), cast(xp, right, dtype)))


def _corrected(inputs: GateInputs, products: Callable[[Array, Array], Array]) -> Array:
    """Sum over layers by Horner's scheme, from below; `products` says which pairs."""
    alphas = [
        products(theirs, ours) + constant
        for theirs, ours, constant in zip(*inputs.embeddings, inputs.constants, strict=True)
    ]
    corrected = alphas[0]
    for alpha, theirs, ours in zip(alphas[1:], inputs.scaled_gates, inputs.gates, strict=True):
        corrected = corrected * products(theirs, ours) + alpha
    return corrected * products(*inputs.gradients)
