r"""Variances of Ghost and LAI from moments: the identities, and the printed one that drops a term."""

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.prepared import apply, check_shape, dot, prepared


def noise_variance(alpha: Array, noise_covariance: Array, /) -> Float[Array, ""]:
    r"""Variance of the noise Y, cross-layer covariances included.

    Implements :eq:`app-var-eps`: :math:`\sum_{l,k} \alpha^{(l)} \alpha^{(k)}
    \mathrm{Cov}(\varepsilon^{(l)}, \varepsilon^{(k)})`, for numbers :math:`\alpha^{(l)}` and one
    validation sample; `random_weight_sum` does without either.

    Parameters
    ----------
    alpha
        `(L,)`.
    noise_covariance
        :math:`\mathrm{Cov}(\varepsilon^{(l)}, \varepsilon^{(k)})`, `(L, L)`.

    Returns
    -------
    array
        A number.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (alpha, noise_covariance) = prepared({"alpha": alpha, "noise_covariance": noise_covariance})
    check_shape("noise_covariance", noise_covariance, (alpha.shape[0], alpha.shape[0]))
    return dot(xp, alpha, apply(xp, noise_covariance, alpha))


def ghost_variance(
    alpha: Array, gains: Array, signal_variance: Array, signal_covariance: Array, noise_covariance: Array, /
) -> Float[Array, ""]:
    r"""Variance of Ghost for one validation sample, with every covariance.

    Implements :eq:`app-var-exact`: :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star +
    \mathrm{Var}\,Y + 2 (\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y)`. It needs numbers
    :math:`\alpha^{(l)}` and one validation sample; `random_weight_sum` does without either.

    Parameters
    ----------
    alpha, gains
        `(L,)`.
    signal_variance
        :math:`\mathrm{Var}\,\beta^\star`, a number.
    signal_covariance
        :math:`\mathrm{Cov}(\beta^\star, \varepsilon^{(l)})`, `(L,)`.
    noise_covariance
        :math:`\mathrm{Cov}(\varepsilon^{(l)}, \varepsilon^{(k)})`, `(L, L)`.

    Returns
    -------
    array
        A number.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    signal, noise, cross = ghost_terms(alpha, gains, signal_variance, signal_covariance, noise_covariance)
    return signal + noise + cross


def printed_ghost_variance(
    alpha: Array, gains: Array, signal_variance: Array, noise_covariance: Array, /
) -> Float[Array, ""]:
    r"""Variance of Ghost as the noise appendix prints it, without the covariance of signal and noise.

    Implements :eq:`app-ghost-var`: :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star +
    \mathrm{Var}\,Y`. It is short of :math:`2 (\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y)`,
    which vanishes for the gains of `regression_gain`.

    Parameters
    ----------
    alpha, gains, signal_variance, noise_covariance
        As in `ghost_variance`.

    Returns
    -------
    array
        A number.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"alpha": alpha, "gains": gains, "signal_variance": signal_variance}
    xp, (alpha, gains, signal_variance) = prepared(named)
    check_shape("gains", gains, tuple(alpha.shape))
    return dot(xp, alpha, gains) ** 2 * signal_variance + noise_variance(alpha, noise_covariance)


def lai_variance(alpha: Array, signal_variance: Array, /) -> Float[Array, ""]:
    r"""Variance of LAI for one validation sample.

    Implements :eq:`app-var-lai`: :math:`(\sum_l \alpha^{(l)})^2\, \mathrm{Var}\,\beta^\star`. It needs
    numbers :math:`\alpha^{(l)}` and one validation sample; `random_weight_sum` does without either.

    Parameters
    ----------
    alpha
        `(L,)`.
    signal_variance
        :math:`\mathrm{Var}\,\beta^\star`, a number.

    Returns
    -------
    array
        A number.

    Raises
    ------
    ValueError
        If an array is empty.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (alpha, signal_variance) = prepared({"alpha": alpha, "signal_variance": signal_variance})
    return xp.sum(alpha) ** 2 * signal_variance


def random_weight_sum(
    alpha_mean: Array, alpha_second_moment: Array, beta_mean: Array, beta_second_moment: Array, /
) -> Float[Array, ""]:
    r"""Variance of :math:`\sum_i \alpha_i \beta_i` with random :math:`\alpha` independent of the betas.

    Implements :eq:`random-weight-sum`: :math:`\sum_{i,k} E[\alpha_i \alpha_k] E[\beta_i \beta_k] -
    (\sum_i E\alpha_i\, E\beta_i)^2`. The index i runs over layers, or over layers and validation
    samples; for LAI every layer's :math:`\beta_i` is :math:`\beta^\star`.

    Parameters
    ----------
    alpha_mean, beta_mean
        `(p,)`.
    alpha_second_moment, beta_second_moment
        :math:`E[\alpha_i \alpha_k]` and :math:`E[\beta_i \beta_k]`, `(p, p)`.

    Returns
    -------
    array
        A number.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {
        "alpha_mean": alpha_mean,
        "alpha_second_moment": alpha_second_moment,
        "beta_mean": beta_mean,
        "beta_second_moment": beta_second_moment,
    }
    xp, (alpha_mean, alpha_second_moment, beta_mean, beta_second_moment) = prepared(named)
    count = alpha_mean.shape[0]
    check_shape("beta_mean", beta_mean, (count,))
    check_shape("alpha_second_moment", alpha_second_moment, (count, count))
    check_shape("beta_second_moment", beta_second_moment, (count, count))
    return xp.sum(alpha_second_moment * beta_second_moment) - dot(xp, alpha_mean, beta_mean) ** 2


def ghost_terms(
    alpha: Array, gains: Array, signal_variance: Array, signal_covariance: Array, noise_covariance: Array
) -> tuple[Array, Array, Array]:
    """Return Var X, Var Y and 2 Cov(X, Y)."""
    named = {
        "alpha": alpha,
        "gains": gains,
        "signal_variance": signal_variance,
        "signal_covariance": signal_covariance,
        "noise_covariance": noise_covariance,
    }
    xp, (alpha, gains, signal_variance, signal_covariance, noise_covariance) = prepared(named)
    for name, array in (("gains", gains), ("signal_covariance", signal_covariance)):
        check_shape(name, array, tuple(alpha.shape))
    scale = dot(xp, alpha, gains)
    noise = noise_variance(alpha, noise_covariance)
    return scale**2 * signal_variance, noise, 2.0 * scale * dot(xp, alpha, signal_covariance)
