"""Bounds on Ghost's variance, and Ghost against LAI: in size, relative to their means, as estimators."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import dot
from lai_core._theory.arrays import Layers, Outcomes, Scalar, checked
from lai_core.variance._identities import ghost_parts


@checked
def minkowski_lower_bound(first: Float[Array, "..."], second: Float[Array, "..."], /) -> Float[Array, "..."]:
    r"""Bound the variance of a sum from below by the variances of its two terms.

    Implements :eq:`minkowski-lower-bound`: :math:`\mathrm{Var}[X+Y] \ge
    (\sqrt{\mathrm{Var}\,X} - \sqrt{\mathrm{Var}\,Y})^2`, attained by perfectly opposed terms.

    Parameters
    ----------
    first, second
        Var X and Var Y, not negative.
    """
    xp = xp_of(first)
    return (xp.sqrt(first) - xp.sqrt(second)) ** 2


@checked
def ghost_variance_lower_bound(
    alpha: Layers, gains: Layers, signal_variance: Scalar, noise: Scalar, /
) -> Scalar:
    r"""Bound the variance of Ghost from below, whatever the covariance of signal and noise.

    Implements :eq:`app-var-CS-lb`: :math:`(|\sum_l \alpha^{(l)} c_l| \sqrt{\mathrm{Var}\,\beta^\star} -
    \sqrt{\mathrm{Var}\,Y})^2`, for numbers :math:`\alpha^{(l)}` and one validation sample. It may be 0
    with noise of any size: it is no floor in terms of the noise.

    Arguments: :mod:`lai_core.variance`.
    """
    return minkowski_lower_bound(dot(xp_of(alpha), alpha, gains) ** 2 * signal_variance, noise)


@checked
def signed_covariance_bound(
    alpha: Layers,
    gains: Layers,
    signal_variance: Scalar,
    signal_covariance: Layers,
    noise_covariance: Float[Array, "L L"],
    /,
) -> tuple[Scalar, Scalar]:
    r"""Bound the variance of Ghost from below, with the sign that the printed bounds need.

    Implements :eq:`signed-covariance-bound`: with
    :math:`s = \min(0,\ 2(\sum_l \alpha^{(l)} c_l)\,\mathrm{Cov}(\beta^\star, Y))`, the variance is at
    least :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star + \mathrm{Var}\,Y + s`, and at
    least :math:`\mathrm{Var}\,Y + s`. The printed bounds are these where s = 0, and only there.

    Arguments: :mod:`lai_core.variance`.

    Returns
    -------
    tuple of arrays
        The bound with the signal's term and the bound by the noise alone.
    """
    xp = xp_of(alpha)
    signal, noise, cross = ghost_parts(alpha, gains, signal_variance, signal_covariance, noise_covariance)
    opposed = xp.minimum(cross, xp.zeros_like(cross))
    return signal + noise + opposed, noise + opposed


@checked
def variance_order(alpha: Layers, deviations: Layers, /) -> tuple[Scalar, Scalar]:
    r"""Bound the variance of Ghost from above, beside LAI's variance, by the spread in each layer.

    Implements :eq:`variance-order`: :math:`\mathrm{Var}[\sum_l \alpha^{(l)} \beta^{(l)}] \le
    (\sum_l |\alpha^{(l)}|\, \mathrm{sd}\,\beta^{(l)})^2` whatever the covariances. Hence with
    non-negative :math:`\alpha^{(l)}` and no layer's spread above the last one's, LAI's variance
    :math:`(\sum_l \alpha^{(l)}\, \mathrm{sd}\,\beta^{(L)})^2` is at least Ghost's.

    Arguments: :mod:`lai_core.variance`.

    Parameters
    ----------
    deviations
        :math:`\mathrm{sd}\,\beta^{(l)}`, not negative.

    Returns
    -------
    tuple of arrays
        The upper bound on Ghost's variance, and LAI's variance.
    """
    xp = xp_of(alpha)
    return dot(xp, xp.abs(alpha), deviations) ** 2, (xp.sum(alpha) * deviations[-1]) ** 2


@checked
def regression_gain(
    similarities: Float[Array, "L outcomes"], shared: Outcomes, probabilities: Outcomes, /
) -> Layers:
    r"""Compute the gains for which signal and noise are uncorrelated, whatever the law.

    Implements :eq:`regression-gain`: :math:`c_l = \mathrm{Cov}(\beta^{(l)}, \beta^\star) /
    \mathrm{Var}\,\beta^\star`, so that :math:`\mathrm{Cov}(\beta^\star, \varepsilon^{(l)}) = 0` and the
    printed variance of Ghost holds. Where :math:`E[\beta^{(l)}|g^{(L)}] = c_l\beta^\star`, it is this c.

    Arguments: :mod:`lai_core.variance`.

    Returns
    -------
    array
        NaN where :math:`\beta^\star` does not vary.
    """
    xp = xp_of(shared)
    centred = (shared - dot(xp, shared, probabilities)) * probabilities
    return dot(xp, similarities, centred) / dot(xp, shared, centred)


@checked
def variance_criterion(alpha: Layers, gains: Layers, signal_variance: Scalar, noise: Scalar, /) -> Scalar:
    r"""Compute the variance of Ghost minus that of LAI, for uncorrelated signal and noise.

    Implements :eq:`variance-criterion`: :math:`\mathrm{Var}\,Y - [(\sum_l \alpha^{(l)})^2 -
    (\sum_l \alpha^{(l)} c_l)^2]\,\mathrm{Var}\,\beta^\star` where
    :math:`\mathrm{Cov}(\beta^\star, Y) = 0`: with the gains of `regression_gain` always, and wherever
    :math:`E[\beta^{(l)}|g^{(L)}] = c_l\beta^\star`.

    Arguments: :mod:`lai_core.variance`.

    Returns
    -------
    array
        LAI's variance is the smaller one where this is positive; with gains 1 it is at least 0.
    """
    xp = xp_of(alpha)
    return noise - (xp.sum(alpha) ** 2 - dot(xp, alpha, gains) ** 2) * signal_variance


@checked
def unit_gain_difference(alpha: Layers, noise: Scalar, covariance: Scalar, /) -> Scalar:
    r"""Compute the variance of Ghost minus that of LAI where every gain is 1.

    Implements :eq:`unit-gain-variance`: :math:`\mathrm{Var}\,Y + 2 \sum_l \alpha^{(l)}\,
    \mathrm{Cov}(\beta^\star, Y)`, since Ghost is then LAI plus the noise Y, and LAI is
    :math:`\sum_l \alpha^{(l)} \beta^\star`.

    Arguments: :mod:`lai_core.variance`.

    Returns
    -------
    array
        At least 0, so that LAI varies no more, where noise does not oppose the signal:
        :math:`\sum_l \alpha^{(l)}\, \mathrm{Cov}(\beta^\star, Y) \ge 0`.
    """
    return noise + 2 * xp_of(alpha).sum(alpha) * covariance


@checked
def scale_free_variance(
    alpha: Layers, gains: Layers, signal_mean: Scalar, signal_variance: Scalar, noise: Scalar, /
) -> tuple[Scalar, Scalar]:
    r"""Compute squared coefficients of variation of Ghost and of LAI: variance over squared mean.

    Implements :eq:`scale-free-variance`: where :math:`E[\beta^{(l)}|g^{(L)}] = c_l\beta^\star`, Ghost's
    is LAI's plus :math:`\mathrm{Var}\,Y / ((\sum_l \alpha^{(l)} c_l)\,E\beta^\star)^2`, hence never the
    smaller one, for any gains and any :math:`\alpha^{(l)}`.

    Arguments: :mod:`lai_core.variance`.
    """
    lai = signal_variance / signal_mean**2
    return lai + noise / (dot(xp_of(alpha), alpha, gains) * signal_mean) ** 2, lai
