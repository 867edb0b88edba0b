"""Bounds on Ghost's variance: from below as printed and as they hold, and from above."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import dot
from lai_core._theory.arrays import checked
from lai_core.variance._identities import ghost_parts


@checked
def minkowski_lower_bound(first: Float[Array, "..."], second: Float[Array, "..."], /) -> Float[Array, "..."]:
    r"""Bound the variance of a sum from below by the variances of its two terms.

    Implements :eq:`minkowski-lower-bound`: :math:`\mathrm{Var}[X+Y] \ge
    (\sqrt{\mathrm{Var}\,X} - \sqrt{\mathrm{Var}\,Y})^2`, attained by perfectly opposed terms.

    Assume: finite variances.

    Parameters
    ----------
    first, second
        Var X and Var Y, not negative.
    """
    xp = xp_of(first)
    return (xp.sqrt(first) - xp.sqrt(second)) ** 2


@checked
def ghost_variance_lower_bound(
    alpha: Float[Array, " L"],
    gains: Float[Array, " L"],
    signal_variance: Float[Array, ""],
    noise: Float[Array, ""],
    /,
) -> Float[Array, ""]:
    r"""Bound the variance of Ghost from below, whatever the covariance of signal and noise.

    Implements :eq:`app-var-CS-lb`: :math:`(|\sum_l \alpha^{(l)} c_l| \sqrt{\mathrm{Var}\,\beta^\star} -
    \sqrt{\mathrm{Var}\,Y})^2`, for numbers :math:`\alpha^{(l)}` and one validation sample. It may be 0
    with noise of any size: it is no floor in terms of the noise.

    Assume: fixed :math:`\alpha`; one validation sample; finite variances.
    Arguments: :mod:`lai_core.variance`.
    """
    return minkowski_lower_bound(dot(xp_of(alpha), alpha, gains) ** 2 * signal_variance, noise)


@checked
def signed_covariance_bound(
    alpha: Float[Array, " L"],
    gains: Float[Array, " L"],
    signal_variance: Float[Array, ""],
    signal_covariance: Float[Array, " L"],
    noise_covariance: Float[Array, "L L"],
    /,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Bound the variance of Ghost from below, with the sign that the printed bounds need.

    Implements :eq:`signed-covariance-bound`: with
    :math:`s = \min(0,\ 2(\sum_l \alpha^{(l)} c_l)\,\mathrm{Cov}(\beta^\star, Y))`, the variance is at
    least :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star + \mathrm{Var}\,Y + s`, and at
    least :math:`\mathrm{Var}\,Y + s`. The printed bounds are these where s = 0, and only there.

    Assume: fixed :math:`\alpha`; one validation sample; finite variances.
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
def variance_order(
    alpha: Float[Array, " L"], deviations: Float[Array, " L"], /
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Bound the variance of Ghost from above, beside LAI's variance, by the spread in each layer.

    Implements :eq:`variance-order`: :math:`\mathrm{Var}[\sum_l \alpha^{(l)} \beta^{(l)}] \le
    (\sum_l |\alpha^{(l)}|\, \mathrm{sd}\,\beta^{(l)})^2` whatever the covariances. Hence with
    non-negative :math:`\alpha^{(l)}` and no layer's spread above the last one's, LAI's variance
    :math:`(\sum_l \alpha^{(l)}\, \mathrm{sd}\,\beta^{(L)})^2` is at least Ghost's.

    Assume: fixed :math:`\alpha \ge 0`; one validation sample; :math:`\sd \beta^{(l)} \le \sd \beta^{(L)}` for
    every layer. Arguments: :mod:`lai_core.variance`.

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
