r"""What a layer's gates say of its similarity's gain, and how far off that may be."""

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.namespace import Array
from lai_core._theory.prepared import check_chain, check_shape, dot, prepared
from lai_core.estimators.gates._inputs import check_dense
from lai_core.records.base import Trace
from lai_core.records.compatible import check_trace


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


def relu_gates(trace: Trace, /) -> tuple[Float[Array, "n _"], ...]:
    r"""Read the gates of ReLU layers off the activations of the layers above them.

    Parameters
    ----------
    trace
        A trace of a chain of layers with ReLU and nothing else between them, one position a sample.

    Returns
    -------
    tuple of array
        :math:`\phi'(s^{(l)})` for l = 1, ..., L-1, each `(n, d_l)`: 1 where the next layer's input is
        positive, 0 elsewhere.

    Raises
    ------
    ValueError
        If the trace is unsound, or a layer has no activations `(n, d)`.
    TypeError
        If it is no trace.
    """
    work = check_trace("trace", trace, "output", DEFAULT_MEMORY_BUDGET)
    check_dense("trace", trace, work)
    inputs: list[Array] = [layer.embedding(work.xp) for layer in trace.layers[1:]]
    return tuple(work.xp.astype(activations > 0, work.dtype) for activations in inputs)


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
