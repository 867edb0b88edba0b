r"""What a layer's gates say of its similarity's gain, and how far off that may be."""

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import dot
from lai_core._theory.arrays import checked
from lai_core.estimators.gates._inputs import check_dense
from lai_core.records.base import Trace
from lai_core.records.compatible import check_trace


@checked
def squared_column_norms(weight: Float[Array, "d_above d_below"], /) -> Float[Array, " d_below"]:
    r"""Compute the squared norms of a matrix's columns, what the gates need to know of the layer above.

    Parameters
    ----------
    weight
        :math:`W^{(t+1)}`.

    Returns
    -------
    array
        :math:`\|W^{(t+1)}_{:,i}\|^2`.
    """
    return xp_of(weight).sum(weight * weight, axis=0)


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
    """
    work = check_trace("trace", trace, "output", DEFAULT_MEMORY_BUDGET)
    check_dense("trace", trace, work)
    inputs: list[Array] = [layer.readout_input(work.xp) for layer in trace.layers[1:]]
    return tuple(work.xp.astype(activations > 0, work.dtype) for activations in inputs)


@checked
def gate_factors(
    validation: Float[Array, "n_val d"],
    training: Float[Array, "n_train d"],
    column_norms: Float[Array, " d"],
    /,
    *,
    width: int,
) -> Float[Array, "n_val n_train"]:
    r"""Estimate the gain of one layer's similarity, for every pair of samples.

    Implements :eq:`gate-corrected`, its factors: :math:`\gamma_t(z, j) = \frac{1}{d_{t+1}} \sum_i
    \|W^{(t+1)}_{:,i}\|^2 \phi'(s^{(t)}_{z,i}) \phi'(s^{(t)}_{j,i})`, the normalised trace of
    :math:`J_z^\top J_j`.

    Assume: a chain of layers; given activations, gates, column norms **and the last gradients**, the
    directions of the columns are uniform and independent over layers.

    Parameters
    ----------
    validation, training
        :math:`\phi'(s^{(t)})`.
    column_norms
        :math:`\|W^{(t+1)}_{:,i}\|^2`.
    width
        :math:`d_{t+1}`, the number of rows of :math:`W^{(t+1)}`.

    Returns
    -------
    array
        A pure number for each pair.
    """
    xp = xp_of(training)
    return matmul(xp, validation * column_norms, xp.matrix_transpose(training)) / width


@checked
def gate_step_error(
    weight: Float[Array, "d_above d_below"],
    validation_gates: Float[Array, "... d_below"],
    training_gates: Float[Array, "... d_below"],
    validation: Float[Array, "... d_above"],
    training: Float[Array, "... d_above"],
    /,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Compute the error that one gate factor makes, and a bound on it that holds for every weight matrix.

    Implements :eq:`gate-step-error`: :math:`|\beta^{(t)} - \gamma_t \beta^{(t+1)}| \le
    \|N - \tfrac{\mathrm{tr} N}{d_{t+1}} I\|_2\, \|g^{(t+1)}_z\|\, \|g^{(t+1)}_j\|` with
    :math:`N = W^{(t+1)} \mathrm{Diag}(\phi'_z \phi'_j) W^{(t+1)\top}`.

    Assume: a chain of layers; fixed weights.

    Parameters
    ----------
    weight
        :math:`W^{(t+1)}`.
    validation_gates, training_gates
        :math:`\phi'(s^{(t)})` of z and of j.
    validation, training
        :math:`g^{(t+1)}` of z and of j.

    Returns
    -------
    tuple of arrays
        The error and its bound.
    """
    xp, gates = xp_of(weight), validation_gates * training_gates
    operator = matmul(xp, weight * gates[..., None, :], xp.matrix_transpose(weight))
    gamma = xp.sum(xp.sum(weight * weight, axis=0) * gates, axis=-1) / weight.shape[0]
    ones = xp.ones_like(operator)
    identity = xp.tril(ones) - xp.tril(ones, k=-1)  # `eye` would have to be told the device
    rest = operator - gamma[..., None, None] * identity
    error = xp.abs(dot(xp, validation, matmul(xp, rest, training[..., None])[..., 0]))
    norms = xp.sqrt(dot(xp, validation, validation) * dot(xp, training, training))
    return error, xp.linalg.matrix_norm(rest, ord=2) * norms
