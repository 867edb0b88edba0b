r"""Bounds on Ghost's variance: from below as printed and as they hold, and from above."""

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.prepared import check_shape, dot, prepared
from lai_core.variance._identities import ghost_terms, printed_ghost_variance


def minkowski_lower_bound(first: Array, second: Array, /) -> Float[Array, "..."]:
    r"""Least variance of a sum, from the variances of its two terms.

    Implements :eq:`minkowski-lower-bound`: :math:`\mathrm{Var}[X+Y] \ge
    (\sqrt{\mathrm{Var}\,X} - \sqrt{\mathrm{Var}\,Y})^2`, attained by perfectly opposed terms.

    Parameters
    ----------
    first, second
        Var X and Var Y, `(...)`, non-negative.

    Returns
    -------
    array
        `(...)`; 0 for equal variances.

    Raises
    ------
    ValueError
        If an array is empty.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (first, second) = prepared({"first": first, "second": second})
    return (xp.sqrt(first) - xp.sqrt(second)) ** 2


def ghost_variance_lower_bound(
    alpha: Array, gains: Array, signal_variance: Array, noise: Array, /
) -> Float[Array, ""]:
    r"""Least variance of Ghost whatever the covariance of signal and noise.

    Implements :eq:`app-var-CS-lb`: :math:`(|\sum_l \alpha^{(l)} c_l| \sqrt{\mathrm{Var}\,\beta^\star} -
    \sqrt{\mathrm{Var}\,Y})^2`, for numbers :math:`\alpha^{(l)}` and one validation sample. It may be 0
    with noise of any size: it is no floor in terms of the noise.

    Parameters
    ----------
    alpha, gains
        `(L,)`.
    signal_variance, noise
        :math:`\mathrm{Var}\,\beta^\star` and :math:`\mathrm{Var}\,Y`, numbers.

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
    named = {"alpha": alpha, "gains": gains, "signal_variance": signal_variance, "noise": noise}
    xp, (alpha, gains, signal_variance, noise) = prepared(named)
    check_shape("gains", gains, tuple(alpha.shape))
    return minkowski_lower_bound(dot(xp, alpha, gains) ** 2 * signal_variance, noise)


def printed_lower_bound(
    alpha: Array, gains: Array, signal_variance: Array, noise_covariance: Array, /
) -> Float[Array, ""]:
    r"""Lower bound on Ghost's variance that is printed for :math:`\mathrm{Cov}(\beta^\star, Y) \ge 0`.

    Implements :eq:`app-var-corr-lb`: :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star +
    \mathrm{Var}\,Y`. What it needs is :math:`(\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y)
    \ge 0`; the signs of the remainders' covariances play no part. `signed_covariance_bound` holds
    always.

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
    return printed_ghost_variance(alpha, gains, signal_variance, noise_covariance)


def signed_covariance_bound(
    alpha: Array, gains: Array, signal_variance: Array, signal_covariance: Array, noise_covariance: Array, /
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Lower bounds on Ghost's variance with the sign that they need.

    Implements :eq:`signed-covariance-bound`: with
    :math:`s = \min(0,\ 2(\sum_l \alpha^{(l)} c_l)\,\mathrm{Cov}(\beta^\star, Y))`, the variance is at
    least :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star + \mathrm{Var}\,Y + s`, and at
    least :math:`\mathrm{Var}\,Y + s`. The printed bounds are these where s = 0, and only there.

    Parameters
    ----------
    alpha, gains, signal_variance, signal_covariance, noise_covariance
        As in `ghost_variance`.

    Returns
    -------
    tuple of array
        The bound with the signal's term and the bound by the noise alone.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    signal, noise, cross = ghost_terms(alpha, gains, signal_variance, signal_covariance, noise_covariance)
    xp, (cross,) = prepared({"signal_covariance": cross})
    opposed = xp.minimum(cross, xp.zeros_like(cross))
    return signal + noise + opposed, noise + opposed


def variance_order(alpha: Array, deviations: Array, /) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Most that Ghost's variance can be, and LAI's variance, from the spread in each layer.

    Implements :eq:`variance-order`: :math:`\mathrm{Var}[\sum_l \alpha^{(l)} \beta^{(l)}] \le
    (\sum_l |\alpha^{(l)}|\, \mathrm{sd}\,\beta^{(l)})^2` whatever the covariances. Hence with
    non-negative :math:`\alpha^{(l)}` and no layer's spread above the last one's, LAI's variance
    :math:`(\sum_l \alpha^{(l)}\, \mathrm{sd}\,\beta^{(L)})^2` is at least Ghost's.

    Parameters
    ----------
    alpha
        `(L,)`.
    deviations
        :math:`\mathrm{sd}\,\beta^{(l)}`, `(L,)`, non-negative.

    Returns
    -------
    tuple of array
        The upper bound on Ghost's variance, and LAI's variance.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (alpha, deviations) = prepared({"alpha": alpha, "deviations": deviations})
    check_shape("deviations", deviations, tuple(alpha.shape))
    last = deviations[deviations.shape[0] - 1]
    return dot(xp, xp.abs(alpha), deviations) ** 2, (xp.sum(alpha) * last) ** 2
