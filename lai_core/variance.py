r"""Appendix C: Ghost as signal plus noise, LAI as signal alone, and which of them varies more.

Throughout, :math:`\beta^{(l)} = c_l \beta^\star + \varepsilon^{(l)}` for one validation sample z and one
training sample j, with gains :math:`c_l` and :math:`\beta^\star = \beta^{(L)}`; the :math:`\alpha^{(l)}` are
numbers unless said otherwise. :math:`X = (\sum_l \alpha^{(l)} c_l)\beta^\star` and :math:`Y = \sum_l
\alpha^{(l)} \varepsilon^{(l)}`, so that Ghost is X + Y (with the printed minus, -X - Y). Random variables are
given by the values they take, along the last axis, and the probabilities of these outcomes. Arguments are the
same everywhere, where a function says nothing else:

Parameters
----------
alpha, gains, weights
    :math:`\alpha^{(l)}`, :math:`c_l` and layer weights :math:`w_l`, of which plain LAI has 1.
similarities, remainders
    :math:`\beta^{(l)}`, the last row :math:`\beta^\star`, and :math:`\varepsilon^{(l)}`, in each outcome.
shared
    :math:`\beta^\star` in each outcome.
probabilities
    Of the outcomes, summing to 1 (not checked).
signal_mean, signal_variance, signal_second_moment
    :math:`E\beta^\star`, :math:`\mathrm{Var}\,\beta^\star` and :math:`E\beta^{\star 2}`.
noise, covariance
    :math:`\mathrm{Var}\,Y` and :math:`\mathrm{Cov}(\beta^\star, Y)`.
signal_covariance, noise_covariance
    :math:`\mathrm{Cov}(\beta^\star, \varepsilon^{(l)})` and
    :math:`\mathrm{Cov}(\varepsilon^{(l)}, \varepsilon^{(k)})`.
"""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import apply, dot
from lai_core._theory.arrays import Layers, Outcomes, Scalar, checked

__all__ = [
    "ghost_signal_noise",
    "ghost_variance",
    "ghost_variance_lower_bound",
    "lai_signal",
    "lai_variance",
    "minkowski_lower_bound",
    "noise_variance",
    "printed_ghost_variance",
    "random_weight_sum",
    "scale_free_variance",
    "signal_and_noise",
    "signed_covariance_bound",
    "unit_gain_difference",
    "variance_criterion",
    "variance_order",
]


# Ghost and LAI outcome by outcome, and their variances from moments: identities, and a printed one.


@checked
def signal_and_noise(
    alpha: Layers, gains: Layers, similarities: Float[Array, "L outcomes"], /
) -> tuple[Outcomes, Outcomes]:
    r"""Split Ghost's outcomes into signal X and noise Y.

    Implements :eq:`signal-and-noise`: :math:`X = (\sum_l \alpha^{(l)} c_l)\beta^\star` and
    :math:`Y = \sum_l \alpha^{(l)} (\beta^{(l)} - c_l \beta^\star)`.
    """
    xp, shared = xp_of(alpha), similarities[-1, ...]
    remainders = similarities - gains[:, None] * shared
    return dot(xp, alpha, gains) * shared, xp.sum(alpha[:, None] * remainders, axis=0)


@checked
def ghost_signal_noise(
    alpha: Layers, gains: Layers, shared: Outcomes, remainders: Float[Array, "L outcomes"], /
) -> Outcomes:
    r"""Compute Ghost's outcomes from signal and remainders, without the printed minus.

    Implements :eq:`ghost-signal-noise`: :math:`(\sum_l \alpha^{(l)} c_l)\beta^\star +
    \sum_l \alpha^{(l)} \varepsilon^{(l)}`, for one validation sample; printed with a minus and without
    the sum over validation samples.
    """
    xp = xp_of(alpha)
    return dot(xp, alpha, gains) * shared + xp.sum(alpha[:, None] * remainders, axis=0)


@checked
def lai_signal(alpha: Layers, shared: Outcomes, /) -> Outcomes:
    r"""Compute LAI's outcomes: the shared signal alone, without the printed minus.

    Implements :eq:`lai-signal`: :math:`(\sum_l \alpha^{(l)})\beta^\star`, for one validation sample.
    """
    return xp_of(alpha).sum(alpha) * shared


@checked
def noise_variance(alpha: Layers, noise_covariance: Float[Array, "L L"], /) -> Scalar:
    r"""Compute the variance of the noise Y, covariances between layers included.

    Implements :eq:`app-var-eps`: :math:`\sum_{l,k} \alpha^{(l)} \alpha^{(k)}
    \mathrm{Cov}(\varepsilon^{(l)}, \varepsilon^{(k)})`, for numbers :math:`\alpha^{(l)}` and one
    validation sample; `random_weight_sum` does without either.
    """
    xp = xp_of(alpha)
    return dot(xp, alpha, apply(xp, noise_covariance, alpha))


@checked
def ghost_variance(
    alpha: Layers,
    gains: Layers,
    signal_variance: Scalar,
    signal_covariance: Layers,
    noise_covariance: Float[Array, "L L"],
    /,
) -> Scalar:
    r"""Compute the variance of Ghost for one validation sample, with every covariance.

    Implements :eq:`app-var-exact`: :math:`(\sum_l \alpha^{(l)} c_l)^2\, \mathrm{Var}\,\beta^\star +
    \mathrm{Var}\,Y + 2 (\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y)`. It needs numbers
    :math:`\alpha^{(l)}` and one validation sample; `random_weight_sum` does without either.
    """
    signal, noise, cross = _ghost_parts(alpha, gains, signal_variance, signal_covariance, noise_covariance)
    return signal + noise + cross


@checked
def printed_ghost_variance(
    alpha: Layers, gains: Layers, signal_variance: Scalar, noise_covariance: Float[Array, "L L"], /
) -> Scalar:
    r"""Compute the variance of Ghost as it is printed, without the covariance of signal and noise.

    Implements :eq:`app-ghost-var` and :eq:`app-var-corr-lb`: :math:`(\sum_l \alpha^{(l)} c_l)^2\,
    \mathrm{Var}\,\beta^\star + \mathrm{Var}\,Y`. Appendix A prints it as the variance; it is short of
    :math:`2 (\sum_l \alpha^{(l)} c_l)\, \mathrm{Cov}(\beta^\star, Y)`. Appendix C prints it as a lower
    bound for :math:`\mathrm{Cov}(\beta^\star, Y) \ge 0`; it needs the sign of that product, and the signs
    of the remainders' covariances play no part. `signed_covariance_bound` holds always.
    """
    signal = dot(xp_of(alpha), alpha, gains) ** 2 * signal_variance
    return signal + noise_variance(alpha, noise_covariance)


@checked
def lai_variance(alpha: Layers, signal_variance: Scalar, /) -> Scalar:
    r"""Compute the variance of LAI for one validation sample.

    Implements :eq:`app-var-lai`: :math:`(\sum_l \alpha^{(l)})^2\, \mathrm{Var}\,\beta^\star`. It needs
    numbers :math:`\alpha^{(l)}` and one validation sample; `random_weight_sum` does without either.
    """
    return xp_of(alpha).sum(alpha) ** 2 * signal_variance


@checked
def random_weight_sum(
    alpha_mean: Float[Array, " p"],
    alpha_second_moment: Float[Array, "p p"],
    beta_mean: Float[Array, " p"],
    beta_second_moment: Float[Array, "p p"],
    /,
) -> Scalar:
    r"""Compute the variance of :math:`\sum_i \alpha_i \beta_i` with random alphas independent of the betas.

    Implements :eq:`random-weight-sum`: :math:`\sum_{i,k} E[\alpha_i \alpha_k] E[\beta_i \beta_k] -
    (\sum_i E\alpha_i\, E\beta_i)^2`. The index i runs over layers, or over layers and validation
    samples; for LAI every layer's :math:`\beta_i` is :math:`\beta^\star`.

    Parameters
    ----------
    alpha_mean, beta_mean
        :math:`E\alpha_i` and :math:`E\beta_i`.
    alpha_second_moment, beta_second_moment
        :math:`E[\alpha_i \alpha_k]` and :math:`E[\beta_i \beta_k]`.
    """
    xp = xp_of(alpha_mean)
    return xp.sum(alpha_second_moment * beta_second_moment) - dot(xp, alpha_mean, beta_mean) ** 2


def _ghost_parts(
    alpha: Array, gains: Array, signal_variance: Array, signal_covariance: Array, noise_covariance: Array
) -> tuple[Array, Array, Array]:
    """Return Var X, Var Y and 2 Cov(X, Y)."""
    xp = xp_of(alpha)
    scale = dot(xp, alpha, gains)
    noise = noise_variance(alpha, noise_covariance)
    return scale**2 * signal_variance, noise, 2.0 * scale * dot(xp, alpha, signal_covariance)


# Bounds on Ghost's variance, and Ghost against LAI: in size, relative to their means, as estimators.


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

    Returns
    -------
    tuple of arrays
        The bound with the signal's term and the bound by the noise alone.
    """
    xp = xp_of(alpha)
    signal, noise, cross = _ghost_parts(alpha, gains, signal_variance, signal_covariance, noise_covariance)
    opposed = xp.minimum(cross, xp.zeros_like(cross))
    return signal + noise + opposed, noise + opposed


@checked
def variance_order(alpha: Layers, deviations: Layers, /) -> tuple[Scalar, Scalar]:
    r"""Bound the variance of Ghost from above, beside LAI's variance, by the spread in each layer.

    Implements :eq:`variance-order`: :math:`\mathrm{Var}[\sum_l \alpha^{(l)} \beta^{(l)}] \le
    (\sum_l |\alpha^{(l)}|\, \mathrm{sd}\,\beta^{(l)})^2` whatever the covariances. Hence with
    non-negative :math:`\alpha^{(l)}` and no layer's spread above the last one's, LAI's variance
    :math:`(\sum_l \alpha^{(l)}\, \mathrm{sd}\,\beta^{(L)})^2` is at least Ghost's.

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
def variance_criterion(alpha: Layers, gains: Layers, signal_variance: Scalar, noise: Scalar, /) -> Scalar:
    r"""Compute the variance of Ghost minus that of LAI, for uncorrelated signal and noise.

    Implements :eq:`variance-criterion`: :math:`\mathrm{Var}\,Y - [(\sum_l \alpha^{(l)})^2 -
    (\sum_l \alpha^{(l)} c_l)^2]\,\mathrm{Var}\,\beta^\star` where
    :math:`\mathrm{Cov}(\beta^\star, Y) = 0`, as wherever :math:`E[\beta^{(l)}|g^{(L)}] = c_l\beta^\star`.

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
    """
    lai = signal_variance / signal_mean**2
    return lai + noise / (dot(xp_of(alpha), alpha, gains) * signal_mean) ** 2, lai
