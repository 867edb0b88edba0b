"""Mean scores of sources, whether they differ and by how much, and the step that follows them."""

from math import inf, log, sqrt

from jaxtyping import Float

from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_count, check_number
from lai_core._engine.namespace import (
    Array,
    Namespace,
    accumulation_dtype,
    cast,
    device_of,
    namespace_of,
    xp_of,
)
from lai_core._theory.algebra import dot, quotient
from lai_core._theory.arrays import checked


def group_scores(
    scores: Array, groups: Array, count: int, /
) -> tuple[Float[Array, " count"], Float[Array, " count"]]:
    r"""Compute each group's mean score and the standard error of that mean.

    Implements :eq:`share-derivative`: where the groups are the sources of a mixture, minus the mean score of
    source k is the derivative of the next validation loss in the source's share, per unit learning rate.

    Parameters
    ----------
    scores
        `(n,)`; positive helps. A score that is not finite is left out.
    groups
        `(n,)` integers in `[0, count)`, the group of each sample. A sample with another number belongs to no
        group.
    count
        Number of groups.

    Returns
    -------
    tuple
        Means and standard errors, `(count,)` each, in the scores' units. A group of one sample has the
        standard deviation that is pooled over all groups. A group without samples has mean 0 and an infinite
        standard error, as has a group of one sample where no group has two.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.mixtures import group_scores
    >>> means, errors = group_scores(np.array([1.0, 3.0, -2.0, -2.0]), np.array([0, 0, 1, 1]), 3)
    >>> means
    array([ 2., -2.,  0.])
    >>> errors
    array([ 1.,  0., inf])
    """
    xp, values, members = _find_members(scores, groups, count)
    scale = scale_of_squares(xp, values)
    values = values / scale
    sizes = xp.sum(members, axis=1)
    means = quotient(xp, dot(xp, members, values[None, :]), sizes, 0.0)
    deviations = (values[None, :] - means[:, None]) * members
    squares = xp.sum(deviations * deviations, axis=1)
    freedom = xp.maximum(sizes - 1, xp.zeros_like(sizes))
    pooled = quotient(xp, xp.sum(squares), xp.sum(freedom), inf)
    variances = xp.where(sizes > 1, squares / xp.maximum(freedom, xp.ones_like(freedom)), pooled)
    return means * scale, xp.sqrt(quotient(xp, variances, sizes, inf)) * scale


def group_sizes(scores: Array, groups: Array, count: int, /) -> Float[Array, " count"]:
    """Count the scores behind each mean of `group_scores`, for `Mixture.step` and `update_mixture`.

    Parameters
    ----------
    scores, groups, count
        As for `group_scores`. A score that is not finite is left out.

    Returns
    -------
    array
        `(count,)` whole numbers, of the type that scores are accumulated in.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.mixtures import group_sizes
    >>> group_sizes(np.array([1.0, 3.0, np.inf, -2.0]), np.array([0, 0, 0, 1]), 3)
    array([2., 1., 0.])
    """
    xp, _, members = _find_members(scores, groups, count)
    return xp.sum(members, axis=1)


def _find_members(scores: Array, groups: Array, count: int) -> tuple[Namespace, Array, Array]:
    """Return the namespace, the finite scores, 0 elsewhere, and `(count, n)`: 1 where a group has one."""
    check_array("scores", scores, "n")
    xp = namespace_of({"scores": scores, "groups": groups})
    check_array("groups", groups, str(scores.shape[0]), kind="integral")
    check_count("count", count)
    values = cast(xp, scores, accumulation_dtype(xp, scores.dtype))
    finite = xp.isfinite(values)
    numbers = xp.arange(count, dtype=groups.dtype, device=device_of(groups))
    members = xp.astype((groups[None, :] == numbers[:, None]) & finite[None, :], values.dtype)
    return xp, xp.where(finite, values, xp.zeros_like(values)), members


def scale_of_squares(xp: Namespace, values: Array) -> Array:
    """Return what to divide numbers by so that sums of their squares are finite: 1 unless they are huge."""
    limit = sqrt(xp.finfo(values.dtype).max) * 2.0**-16
    largest = xp.max(xp.abs(values))
    return xp.where(largest > limit, largest / limit, xp.ones_like(largest))


@checked
def cochran_q(
    means: Float[Array, "... K"], standard_errors: Float[Array, "... K"], /
) -> Float[Array, " ..."]:
    r"""Compute Cochran's Q, the precision-weighted spread of the means.

    Implements :eq:`cochran-q`: :math:`Q = \sum_k p_k (m_k - \bar m)^2` with :math:`p_k = 1 / e_k^2` and
    :math:`\bar m` the mean weighted by :math:`p_k`. If all sources have one true mean, Q is K - 1 on average,
    and has the chi-squared law with K - 1 degrees of freedom where the means are normal.

    Parameters
    ----------
    means, standard_errors
        One for each source. A source whose standard error is infinite or 0 does not count.

    Returns
    -------
    array
        Q; 0 where no source counts.
    """
    return q_of_estimates(xp_of(means), means, standard_errors, xp_of(means).zeros_like(means))


def q_of_estimates(
    xp: Namespace, means: Array, standard_errors: Array, inverse_freedom: Array
) -> Float[Array, " ..."]:
    r"""Compute Cochran's Q with standard errors that were estimated, on the scale of a chi-squared variable.

    With errors of :math:`\nu_k` degrees of freedom, :math:`T_k = (m_k - \mu) / e_k` has Student's law, and
    Wallace's :math:`\left(\frac{8 \nu_k + 1}{8 \nu_k + 3}\right)^2 \nu_k \ln(1 + T_k^2 / \nu_k)` about the
    chi-squared law with 1 degree of freedom. Their sum, at the :math:`\mu` that makes it least, is a
    likelihood-ratio statistic for one common mean. With errors that are known it is Q.

    Parameters
    ----------
    xp
        The namespace.
    means, standard_errors
        `(..., K)`, as for `cochran_q`.
    inverse_freedom
        `(..., K)`, :math:`1 / \nu_k`; 0 where the standard error is known.

    Returns
    -------
    array
        The statistic, to be compared with a chi-squared quantile of K - 1 degrees of freedom.
    """
    # a source that was not observed has precision 0
    precisions = quotient(xp, xp.ones_like(means), standard_errors * standard_errors, 0.0)[..., None, :]
    means = xp.where(precisions > 0, means[..., None, :], xp.zeros_like(means[..., None, :]))
    inverse_freedom = inverse_freedom[..., None, :]
    known = inverse_freedom > 0
    inverse = xp.where(known, inverse_freedom, xp.ones_like(means))

    # The sum may have several minima, each near one of the means: one row for a search from each of them.
    def squares(centres: Array) -> Array:
        return precisions * (means - centres[..., :, None]) ** 2

    centres = means[..., 0, :]
    for _ in range(3):
        weights = precisions * (1 + inverse_freedom) / (1 + squares(centres) * inverse_freedom)
        centres = quotient(xp, xp.sum(weights * means, axis=-1), xp.sum(weights, axis=-1), 0.0)
    found = squares(centres)
    wallace = ((8 + inverse) / (8 + 3 * inverse)) ** 2
    terms = xp.where(known, wallace * xp.log1p(found * inverse) / inverse, found)
    return xp.min(xp.sum(terms, axis=-1), axis=-1)


@checked
def contrast_variances(variances: Float[Array, "... K"], /) -> Float[Array, "... K"]:
    r"""Compute the variance of each mean's difference from the mean over sources.

    Implements :eq:`contrast-variance`: :math:`(1 - 2/K)\, v_k + \frac{1}{K^2} \sum_i v_i`.

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


def hedge_step_size(count: int, horizon: float, /) -> float:
    r"""Compute the step size that minimises Hedge's bound over a horizon.

    Implements :eq:`hedge-step`: :math:`\eta = \sqrt{\ln K / H}` minimises :math:`\ln K / \eta + \eta H`,
    which is :math:`2 \sqrt{H \ln K}` there.

    Parameters
    ----------
    count
        K, the number of sources.
    horizon
        H, the number of updates over which one mixture may be taken as the best.

    Returns
    -------
    float
        The step size; 0 for one source.
    """
    check_number("horizon", horizon, above=0.0)
    return sqrt(log(check_count("count", count)) / horizon)
