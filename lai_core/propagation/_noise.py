"""Independent noise in the Jacobians: the exact variance of a similarity, and its bound."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array, Namespace, matmul, xp_of
from lai_core._theory.algebra import apply, check_chain, check_width, dot, multiply_transposed
from lai_core._theory.arrays import Gains, Numbers, checked
from lai_core.propagation._operators import first_order_norm_bound

Law = tuple[Float[Array, "outcomes d_below d_above"], Float[Array, " outcomes"]]
"""A random Jacobian: its outcomes and their probabilities."""


@checked
def propagated_moments(
    laws: Sequence[Law], output_gradient: Float[Array, " d_L"], /
) -> tuple[Float[Array, " d_l"], Float[Array, "d_l d_l"]]:
    r"""Compute mean and covariance of :math:`g^{(l)} = A^{(l)} g^{(L)}` for independent random Jacobians.

    Implements :eq:`jacobian-noise-variance`, the moments it needs, layer by layer from above:
    :math:`E[h'] = E[J]\,E[h]` and :math:`E[h'h'^\top] = E[J\,E[hh^\top]\,J^\top]`.

    Arguments: :mod:`lai_core.propagation`.
    """
    xp = xp_of(output_gradient)
    outcomes = [matrices for matrices, _ in laws]
    check_chain("laws", outcomes)
    check_width("output_gradient", output_gradient, outcomes[-1], "the last Jacobian")
    mean = output_gradient
    covariance = mean[:, None] * mean[None, :] * 0.0
    for matrices, probabilities in reversed(laws):
        # h' = J h with J = M + D independent of h:  Cov h' = M Cov(h) M' + E[D E[h h'] D']
        average, rests = _centre(xp, matrices, probabilities)
        second = covariance + mean[:, None] * mean[None, :]
        carried = matmul(xp, average, matmul(xp, covariance, xp.matrix_transpose(average)))
        added = matmul(xp, rests, matmul(xp, second, xp.matrix_transpose(rests)))
        covariance = carried + xp.sum(probabilities[:, None, None] * added, axis=0)
        mean = apply(xp, average, mean)
    return mean, covariance


@checked
def jacobian_noise_variance(
    validation_mean: Float[Array, "... d_l"],
    validation_covariance: Float[Array, "... d_l d_l"],
    training_mean: Float[Array, "... d_l"],
    training_covariance: Float[Array, "... d_l d_l"],
    /,
) -> Numbers:
    r"""Compute the exact variance of a layer's similarity, given both output gradients.

    Implements :eq:`jacobian-noise-variance`: :math:`\mathrm{Var}[\beta^{(l)}|g] = u^\top S_j u +
    w^\top S_z w + \mathrm{tr}(S_z S_j)`, where u, w are the means and :math:`S_z, S_j` the
    covariances of :math:`A_z g_z` and :math:`A_j g_j`, the noise of z independent of that of j. No
    other assumption: any number of layers, any dependence between them.

    Parameters
    ----------
    validation_mean, validation_covariance
        u and :math:`S_z`, as `propagated_moments` gives them.
    training_mean, training_covariance
        w and :math:`S_j`.
    """
    xp = xp_of(validation_mean)
    noise_j = dot(xp, validation_mean, apply(xp, training_covariance, validation_mean))  # u' S_j u
    noise_z = dot(xp, training_mean, apply(xp, validation_covariance, training_mean))  # w' S_z w
    both = validation_covariance * training_covariance  # of which the sum is tr(S_z S_j), S_j being symmetric
    return noise_j + noise_z + xp.sum(both, axis=(-2, -1))


@checked
def measured_gains(laws: Sequence[Law], /) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Compute gain and noise gain of each random Jacobian, in the sense of the bound.

    Implements :eq:`jacobian-noise-bound`, its constants: :math:`\rho_t = \|\bar J^{(t)}\|_2` and
    :math:`\sigma_t = \|E[\Delta J^{(t)\top}\Delta J^{(t)}]\|_2^{1/2}`.

    Arguments: :mod:`lai_core.propagation`.
    """
    xp = xp_of(laws[0][0])
    check_chain("laws", [matrices for matrices, _ in laws])
    gains, noise = [], []
    for matrices, probabilities in laws:
        average, rests = _centre(xp, matrices, probabilities)
        energy = xp.sum(probabilities[:, None, None] * multiply_transposed(xp, rests, rests), axis=0)
        gains.append(xp.linalg.matrix_norm(average, ord=2))
        noise.append(xp.sqrt(xp.linalg.matrix_norm(energy, ord=2)))
    return xp.stack(gains), xp.stack(noise)


@checked
def jacobian_noise_bound(
    gains: Gains, noise_gains: Gains, validation_norm: Numbers, training_norm: Numbers, /
) -> Numbers:
    r"""Bound the variance of a layer's similarity under independent Jacobian noise.

    Implements :eq:`jacobian-noise-bound`: :math:`(V^2 - R^2) \|g_z\|^2 \|g_j\|^2` with
    :math:`R = \prod_t \rho_t^2` and :math:`V = \prod_t (\rho_t^2 + \sigma_t^2)`, an equality for layers
    of one unit. Exponential in depth where :math:`\rho = 1`; decaying where
    :math:`\rho^2 + \sigma^2 < 1`.

    Arguments: :mod:`lai_core.propagation`.

    Parameters
    ----------
    noise_gains
        :math:`\sigma_t`, with :math:`\sigma_t^2 \ge \|E[\Delta J^{(t)\top}\Delta J^{(t)}]\|_2`.
    """
    kept, added = gains * gains, noise_gains * noise_gains
    # excess = V - R, without cancellation: V' - R' = (V - R) (rho^2 + sigma^2) + R sigma^2
    R, excess = kept[..., 0], added[..., 0]
    for t in range(1, gains.shape[-1]):
        excess = excess * (kept[..., t] + added[..., t]) + R * added[..., t]
        R = R * kept[..., t]
    scale = validation_norm * training_norm
    return excess * (excess + 2.0 * R) * scale * scale  # V^2 - R^2 = (V - R) (V - R + 2 R)


@checked
def similarity_variance_as_printed(
    gain: Numbers,
    signal_variance: Numbers,
    kappa: Numbers,
    gains: Gains,
    noise_energies: Gains,
    anisotropy: Numbers,
    validation_norm: Numbers,
    training_norm: Numbers,
    /,
) -> Numbers:
    r"""Compute the printed schematic bound on a layer's similarity, without its cross terms.

    Implements :eq:`app-var-beta`: :math:`c^2\,\mathrm{Var}\,\beta^\star + \kappa \|g_z\|^2 \|g_j\|^2
    (\|\bar E\|_F^2 + \sum_t \rho_{l+1 \to t-1}^2 \rho_{t+1 \to L}^2\, E\|\Delta J^{(t)}\|_F^2)`. No
    :math:`\kappa` makes it a bound. For fixed gradients, layers of one unit and
    :math:`\kappa = 2\prod_t \rho_t^2` it has the terms of the exact variance that are of first order
    in the noise energies; `jacobian_noise_bound` holds.

    Arguments: :mod:`lai_core.propagation`.

    Parameters
    ----------
    gain, signal_variance, kappa
        c, :math:`\mathrm{Var}\,\beta^\star` and :math:`\kappa`.
    noise_energies
        :math:`E\|\Delta J^{(t)}\|_F^2`.
    anisotropy
        :math:`\|\bar E^{(l)}\|_F^2`.
    """
    energy = anisotropy + first_order_norm_bound(gains * gains, noise_energies)
    return gain * gain * signal_variance + kappa * (validation_norm * training_norm) ** 2 * energy


def _centre(xp: Namespace, matrices: Array, probabilities: Array) -> tuple[Array, Array]:
    average = xp.sum(probabilities[:, None, None] * matrices, axis=0)
    return average, matrices - average
