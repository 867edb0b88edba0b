"""Whether sources differ, and by how much, given mean scores with standard errors."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import checked


@checked
def cochran_q(
    means: Float[Array, "... K"], standard_errors: Float[Array, "... K"], /
) -> Float[Array, " ..."]:
    r"""Compute Cochran's Q, the precision-weighted spread of the means.

    Implements :eq:`cochran-q`: :math:`Q = \sum_k p_k (m_k - \bar m)^2` with :math:`p_k = 1 / e_k^2` and
    :math:`\bar m` the mean weighted by :math:`p_k`. If all sources have one true mean, Q is K - 1 on average,
    and has the chi-squared law with K - 1 degrees of freedom where the means are normal.

    :eq:`cochran-q`. Assume: the means are independent with standard deviations :math:`e_k > 0`; their
    expectations are equal.

    Parameters
    ----------
    means, standard_errors
        One for each source. A source whose standard error is infinite or 0 does not count.

    Returns
    -------
    array
        Q; 0 where no source counts.
    """
    xp = xp_of(means)
    # a source that was not observed has precision 0
    precisions = quotient(xp, xp.ones_like(means), standard_errors * standard_errors, 0.0)
    values = xp.where(precisions > 0, means, xp.zeros_like(means))
    total = xp.sum(precisions, axis=-1, keepdims=True)
    centre = quotient(xp, xp.sum(precisions * values, axis=-1, keepdims=True), total, 0.0)
    return xp.sum(precisions * (values - centre) ** 2, axis=-1)


@checked
def contrast_variances(variances: Float[Array, "... K"], /) -> Float[Array, "... K"]:
    r"""Compute the variance of each mean's difference from the mean over sources.

    Implements :eq:`contrast-variance`: :math:`(1 - 2/K)\, v_k + \frac{1}{K^2} \sum_i v_i`.

    :eq:`contrast-variance`. Assume: the means are independent with variances :math:`v_k`.

    Parameters
    ----------
    variances
        Squared standard errors of the means.

    Returns
    -------
    array
        The variances of :math:`m_k - \frac1K \sum_i m_i`.
    """
    xp, count = xp_of(variances), int(variances.shape[-1])
    total = xp.sum(variances, axis=-1, keepdims=True)
    return variances * (1.0 - 2.0 / count) + total / count**2


@checked
def shrink_contrasts(
    contrasts: Float[Array, "... K"], variances: Float[Array, "... K"], /
) -> Float[Array, "... K"]:
    r"""Shrink noisy contrasts towards 0 by their estimated share of signal.

    Implements :eq:`contrast-shrinkage`: :math:`c_k\, t / (t + v_k)`, the linear estimate with the smallest
    mean squared error, where :math:`t` is the variance of the true contrasts; it is estimated by
    :math:`\max(0, \frac1K \sum_k (c_k^2 - v_k))` (empirical Bayes; Morris 1983).

    :eq:`contrast-shrinkage`. Assume: the true contrast has mean 0 and variance :math:`t`; the error has mean
    0 and variance :math:`v_k > 0` and is uncorrelated with it.

    Parameters
    ----------
    contrasts
        Differences from the mean over sources.
    variances
        The contrasts' error variances.

    Returns
    -------
    array
        The shrunk contrasts; all 0 where the contrasts spread no more than their errors.
    """
    xp = xp_of(contrasts)
    excess = xp.mean(contrasts * contrasts - variances, axis=-1, keepdims=True)
    signal = xp.where(excess > 0, excess, xp.zeros_like(excess))
    return contrasts * quotient(xp, signal, signal + variances, 0.0)
