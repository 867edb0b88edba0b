r"""Independent noise in the Jacobians: the exact variance of a similarity, and its bound."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array, Namespace
from lai_core._theory.prepared import (
    apply,
    check_chain,
    check_shape,
    check_width,
    dot,
    numbered,
    prepared,
    transposed_product,
)
from lai_core.propagation._perturbation import first_order_norm_bound

Law = tuple[Array, Array]
"""A random Jacobian: its outcomes `(m, d_(t-1), d_t)` and their probabilities `(m,)`."""


def propagated_moments(
    laws: Sequence[Law], output_gradient: Array, /
) -> tuple[Float[Array, " d_l"], Float[Array, "d_l d_l"]]:
    r"""Mean and covariance of :math:`g^{(l)} = A^{(l)} g^{(L)}` for independent random Jacobians.

    Implements :eq:`jacobian-noise-variance`, the moments it needs, layer by layer from above:
    :math:`E[h'] = E[J]\,E[h]` and :math:`E[h'h'^\top] = E[J\,E[hh^\top]\,J^\top]`.

    Parameters
    ----------
    laws
        Of each layer l+1, ..., L, the outcomes of its Jacobian and their probabilities.
    output_gradient
        The fixed :math:`g^{(L)}`, `(d_L,)`.

    Returns
    -------
    tuple of array
        The mean, `(d_l,)`, and the covariance, `(d_l, d_l)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    xp, outcomes, weights, (gradient,) = _read(laws, {"output_gradient": output_gradient})
    check_shape("output_gradient", gradient, (outcomes[-1].shape[-1],))
    mean = gradient
    covariance = gradient[:, None] * gradient[None, :] * 0.0
    for matrices, probabilities in zip(reversed(outcomes), reversed(weights), strict=True):
        average, rests = _centred(xp, matrices, probabilities)
        second = covariance + mean[:, None] * mean[None, :]
        carried = xp.matmul(average, xp.matmul(covariance, xp.matrix_transpose(average)))
        added = xp.matmul(rests, xp.matmul(second, xp.matrix_transpose(rests)))
        covariance = carried + xp.sum(probabilities[:, None, None] * added, axis=0)
        mean = apply(xp, average, mean)
    return mean, covariance


def jacobian_noise_variance(
    validation_mean: Array,
    validation_covariance: Array,
    training_mean: Array,
    training_covariance: Array,
    /,
) -> Float[Array, "..."]:
    r"""Exact variance of a layer's similarity, given both output gradients.

    Implements :eq:`jacobian-noise-variance`: :math:`\mathrm{Var}[\beta^{(l)}|g] = u^\top S_j u +
    w^\top S_z w + \mathrm{tr}(S_z S_j)`, where u, w are the means and :math:`S_z, S_j` the
    covariances of :math:`A_z g_z` and :math:`A_j g_j`, the noise of z independent of that of j. No
    other assumption: any number of layers, any dependence between them.

    Parameters
    ----------
    validation_mean, validation_covariance
        u `(..., d_l)` and :math:`S_z` `(..., d_l, d_l)`, as `propagated_moments` gives them.
    training_mean, training_covariance
        w and :math:`S_j`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {
        "validation_mean": validation_mean,
        "validation_covariance": validation_covariance,
        "training_mean": training_mean,
        "training_covariance": training_covariance,
    }
    xp, (mean_z, covariance_z, mean_j, covariance_j) = prepared(named)
    width = mean_z.shape[-1]
    check_width("training_mean", mean_j, width, "validation_mean")
    sides = (("validation_covariance", covariance_z), ("training_covariance", covariance_j))
    for name, covariance in sides:
        check_shape(name, covariance, (*covariance.shape[:-2], width, width))
    through_mean = dot(xp, mean_z, apply(xp, covariance_j, mean_z))
    through_mean = through_mean + dot(xp, mean_j, apply(xp, covariance_z, mean_j))
    return through_mean + xp.sum(covariance_z * xp.matrix_transpose(covariance_j), axis=(-2, -1))


def measured_gains(laws: Sequence[Law], /) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Gain and noise gain of each random Jacobian, in the sense of the bound.

    Implements :eq:`jacobian-noise-bound`, its constants: :math:`\rho_t = \|\bar J^{(t)}\|_2` and
    :math:`\sigma_t = \|E[\Delta J^{(t)\top}\Delta J^{(t)}]\|_2^{1/2}`.

    Parameters
    ----------
    laws
        Of each layer l+1, ..., L, the outcomes of its Jacobian and their probabilities.

    Returns
    -------
    tuple of array
        :math:`\rho` and :math:`\sigma`, each `(n,)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    xp, outcomes, weights, _ = _read(laws, {})
    gains, noise = [], []
    for matrices, probabilities in zip(outcomes, weights, strict=True):
        average, rests = _centred(xp, matrices, probabilities)
        energy = xp.sum(probabilities[:, None, None] * transposed_product(xp, rests, rests), axis=0)
        gains.append(xp.linalg.matrix_norm(average, ord=2))
        noise.append(xp.sqrt(xp.linalg.matrix_norm(energy, ord=2)))
    return xp.stack(gains), xp.stack(noise)


def jacobian_noise_bound(
    gains: Array, noise_gains: Array, validation_norm: Array, training_norm: Array, /
) -> Float[Array, "..."]:
    r"""Bound on the variance of a layer's similarity under independent Jacobian noise.

    Implements :eq:`jacobian-noise-bound`: :math:`(V^2 - R^2) \|g_z\|^2 \|g_j\|^2` with
    :math:`R = \prod_t \rho_t^2` and :math:`V = \prod_t (\rho_t^2 + \sigma_t^2)`, an equality for layers
    of one unit. Exponential in depth where :math:`\rho = 1`; decaying where
    :math:`\rho^2 + \sigma^2 < 1`.

    Parameters
    ----------
    gains
        :math:`\rho_t \ge \|\bar J^{(t)}\|_2`, `(..., n)`.
    noise_gains
        :math:`\sigma_t`, with :math:`\sigma_t^2 \ge \|E[\Delta J^{(t)\top}\Delta J^{(t)}]\|_2`, `(..., n)`.
    validation_norm, training_norm
        :math:`\|g^{(L)}_z\|` and :math:`\|g^{(L)}_j\|`, `(...)`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If there are not as many noise gains as gains.
    TypeError
        If an argument is no array of real floats.
    """
    named = {
        "gains": gains,
        "noise_gains": noise_gains,
        "validation_norm": validation_norm,
        "training_norm": training_norm,
    }
    _, (gains, noise_gains, validation_norm, training_norm) = prepared(named)
    check_width("noise_gains", noise_gains, gains.shape[-1], "gains")
    kept, added = gains * gains, noise_gains * noise_gains
    R, excess = kept[..., 0], added[..., 0]  # excess = V - R, without cancellation
    for t in range(1, gains.shape[-1]):
        excess = excess * (kept[..., t] + added[..., t]) + R * added[..., t]
        R = R * kept[..., t]
    scale = validation_norm * training_norm
    return excess * (excess + 2.0 * R) * scale * scale


def similarity_variance_as_printed(
    gain: Array,
    signal_variance: Array,
    kappa: Array,
    gains: Array,
    noise_energies: Array,
    anisotropy: Array,
    validation_norm: Array,
    training_norm: Array,
    /,
) -> Float[Array, "..."]:
    r"""Compute the printed schematic bound on a layer's similarity, without its cross terms.

    Implements :eq:`app-var-beta`: :math:`c^2\,\mathrm{Var}\,\beta^\star + \kappa \|g_z\|^2 \|g_j\|^2
    (\|\bar E\|_F^2 + \sum_t \rho_{l+1 \to t-1}^2 \rho_{t+1 \to L}^2\, E\|\Delta J^{(t)}\|_F^2)`. No
    :math:`\kappa` makes it a bound. For fixed gradients, layers of one unit and
    :math:`\kappa = 2\prod_t \rho_t^2` it has the terms of the exact variance that are of first order
    in the noise energies; `jacobian_noise_bound` holds.

    Parameters
    ----------
    gain, signal_variance, kappa
        c, :math:`\mathrm{Var}\,\beta^\star` and :math:`\kappa`, each `(...)`.
    gains
        :math:`\rho_t`, t = l+1, ..., L, `(..., n)`.
    noise_energies
        :math:`E\|\Delta J^{(t)}\|_F^2`, `(..., n)`.
    anisotropy
        :math:`\|\bar E^{(l)}\|_F^2`, `(...)`.
    validation_norm, training_norm
        :math:`\|g^{(L)}_z\|` and :math:`\|g^{(L)}_j\|`, `(...)`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If there are not as many energies as gains.
    TypeError
        If an argument is no array of real floats.
    """
    named = {
        "gain": gain,
        "signal_variance": signal_variance,
        "kappa": kappa,
        "gains": gains,
        "noise_energies": noise_energies,
        "anisotropy": anisotropy,
        "validation_norm": validation_norm,
        "training_norm": training_norm,
    }
    _, (gain, signal_variance, kappa, gains, noise_energies, anisotropy, theirs, ours) = prepared(named)
    energy = anisotropy + first_order_norm_bound(gains * gains, noise_energies)
    return gain * gain * signal_variance + kappa * (theirs * ours) ** 2 * energy


def _read(
    laws: Sequence[Law], others: dict[str, Array]
) -> tuple[Namespace, list[Array], list[Array], list[Array]]:
    """Check the laws, and return the namespace, the outcomes, the probabilities and the other arrays."""
    named = numbered("laws", laws)
    for name, law in named.items():
        if not isinstance(law, tuple) or len(law) != 2:
            msg = f"{name}: expected a pair (outcomes, probabilities), got {type(law).__name__}"
            raise TypeError(msg)
    arrays = {f"{name}[{place}]": law[place] for place in (0, 1) for name, law in named.items()}
    xp, read = prepared(arrays | others)
    outcomes, weights, rest = read[: len(laws)], read[len(laws) : 2 * len(laws)], read[2 * len(laws) :]
    check_chain("laws", outcomes)
    for index, (matrices, probabilities) in enumerate(zip(outcomes, weights, strict=True)):
        check_shape(f"laws[{index}][1]", probabilities, tuple(matrices.shape[:-2]))
    return xp, outcomes, weights, rest


def _centred(xp: Namespace, matrices: Array, probabilities: Array) -> tuple[Array, Array]:
    average = xp.sum(probabilities[:, None, None] * matrices, axis=0)
    return average, matrices - average
