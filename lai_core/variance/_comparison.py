r"""Ghost against LAI: absolutely, relative to their means, and as estimators of the conditional mean."""

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.prepared import check_shape, dot, prepared


def regression_gain(similarities: Array, shared: Array, probabilities: Array, /) -> Float[Array, " layers"]:
    r"""Gains for which signal and noise are uncorrelated, whatever the law.

    Implements :eq:`regression-gain`: :math:`c_l = \mathrm{Cov}(\beta^{(l)}, \beta^\star) /
    \mathrm{Var}\,\beta^\star`, so that :math:`\mathrm{Cov}(\beta^\star, \varepsilon^{(l)}) = 0` and the
    printed variance of Ghost holds. Where :math:`E[\beta^{(l)}|g^{(L)}] = c_l\beta^\star`, it is this c.

    Parameters
    ----------
    similarities
        :math:`\beta^{(l)}` in each outcome, `(L, m)`.
    shared
        :math:`\beta^\star` in each outcome, `(m,)`, not constant.
    probabilities
        `(m,)`, summing to 1 (not looked at).

    Returns
    -------
    array
        `(L,)`; NaN where :math:`\beta^\star` does not vary.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {"similarities": similarities, "shared": shared, "probabilities": probabilities}
    xp, (similarities, shared, probabilities) = prepared(named)
    check_shape("probabilities", probabilities, tuple(shared.shape))
    check_shape("similarities", similarities, (similarities.shape[0], shared.shape[0]))
    centred = (shared - dot(xp, shared, probabilities)) * probabilities
    return dot(xp, similarities, centred) / dot(xp, shared, centred)


def variance_criterion(
    alpha: Array, gains: Array, signal_variance: Array, noise: Array, /
) -> Float[Array, ""]:
    r"""Variance of Ghost minus that of LAI, for uncorrelated signal and noise.

    Implements :eq:`variance-criterion`: :math:`\mathrm{Var}\,Y - [(\sum_l \alpha^{(l)})^2 -
    (\sum_l \alpha^{(l)} c_l)^2]\,\mathrm{Var}\,\beta^\star` where
    :math:`\mathrm{Cov}(\beta^\star, Y) = 0`: with the gains of `regression_gain` always, and wherever
    :math:`E[\beta^{(l)}|g^{(L)}] = c_l\beta^\star`. LAI's variance is the smaller one where this is
    positive; with gains 1 it is at least 0.

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
    return noise - (xp.sum(alpha) ** 2 - dot(xp, alpha, gains) ** 2) * signal_variance


def scale_free_variance(
    alpha: Array, gains: Array, signal_mean: Array, signal_variance: Array, noise: Array, /
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Squared coefficients of variation of Ghost and of LAI: variance over squared mean.

    Implements :eq:`scale-free-variance`: where :math:`E[\beta^{(l)}|g^{(L)}] = c_l\beta^\star`, Ghost's
    is LAI's plus :math:`\mathrm{Var}\,Y / ((\sum_l \alpha^{(l)} c_l)\,E\beta^\star)^2`, hence never the
    smaller one, for any gains and any :math:`\alpha^{(l)}`.

    Parameters
    ----------
    alpha, gains
        `(L,)`, with :math:`\sum_l \alpha^{(l)}` and :math:`\sum_l \alpha^{(l)} c_l` not 0.
    signal_mean, signal_variance, noise
        :math:`E\beta^\star` (not 0), :math:`\mathrm{Var}\,\beta^\star` and :math:`\mathrm{Var}\,Y`.

    Returns
    -------
    tuple of array
        Ghost's and LAI's, numbers.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    named = {
        "alpha": alpha,
        "gains": gains,
        "signal_mean": signal_mean,
        "signal_variance": signal_variance,
        "noise": noise,
    }
    xp, (alpha, gains, signal_mean, signal_variance, noise) = prepared(named)
    check_shape("gains", gains, tuple(alpha.shape))
    lai = signal_variance / signal_mean**2
    return lai + noise / (dot(xp, alpha, gains) * signal_mean) ** 2, lai


def calibrated_error(
    alpha: Array, gains: Array, weights: Array, signal_second_moment: Array, /
) -> Float[Array, ""]:
    r"""Mean squared error of weighted LAI about Ghost's conditional mean.

    Implements :eq:`calibrated-error`: about :math:`T = E[\text{Ghost}|g^{(L)}] = \sum_l \alpha^{(l)}
    c_l \beta^\star`, LAI with layer weights w has the error
    :math:`(\sum_l \alpha^{(l)} (w_l - c_l))^2 E\beta^{\star 2}`: none for w = c. Ghost itself has
    :math:`\mathrm{Var}\,Y`. (About the realised gradients' inner product it is Ghost that has none.)

    Parameters
    ----------
    alpha, gains, weights
        :math:`\alpha^{(l)}`, :math:`c_l` and :math:`w_l`, `(L,)`; plain LAI has weights 1.
    signal_second_moment
        :math:`E\beta^{\star 2}`, a number.

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
        "alpha": alpha,
        "gains": gains,
        "weights": weights,
        "signal_second_moment": signal_second_moment,
    }
    xp, (alpha, gains, weights, signal_second_moment) = prepared(named)
    for name, array in (("gains", gains), ("weights", weights)):
        check_shape(name, array, tuple(alpha.shape))
    return dot(xp, alpha, weights - gains) ** 2 * signal_second_moment
