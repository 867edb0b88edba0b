r"""What an approximate score guarantees about ranking and selection.

Scales do not matter for selection: an approximation is good where the quotient *exact / approximate*
varies little. Let it lie in [m, M] for every sample, 0 < m (`ghost_over_lai_range` bounds it for LAI).
Then the cosine, the correlation, the order of pairs and the signs are bounded, whatever m and M are;
without a lower bound on the quotient nothing is.
"""

from jaxtyping import Bool

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Constant, Kernel, Layers, Scalar, Scores, checked


@checked
def reversed_pairs(scores: Scores, approximation: Scores, /) -> Bool[Array, "n_train n_train"]:
    r"""Find the pairs that an approximation ranks the other way round.

    Implements :eq:`rank-flip`: LAI reverses pairs of Ghost, and of LLI, even on linear networks that
    satisfy every assumption.

    Assume: :math:`\rho \ge 0`; the networks written above. Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    array
        Whether j is above k in `scores` and below k in `approximation`.
    """
    above = scores[:, None] > scores[None, :]
    return xp_of(scores).logical_and(above, approximation[:, None] < approximation[None, :])


@checked
def cosine_guarantee(*, low: Constant, high: Constant) -> Constant:
    r"""Bound the cosine between exact and approximate scores from below.

    Implements :eq:`rank-cosine`: :math:`\cos \ge 2\sqrt{mM} / (m + M)` for quotients in [m, M], attained:
    Kantorovich's inequality.

    Assume: :math:`m \le \Ghost_j / \LAI_j \le M` for every sample; :math:`m > 0`; scores are not all zero.
    Arguments: :mod:`lai_core.bounds`.

    Examples
    --------
    >>> from lai_core.bounds import cosine_guarantee
    >>> cosine_guarantee(low=1.0, high=4.0)
    0.8
    """
    return 2.0 * (low * high) ** 0.5 / (low + high)


@checked
def pearson_guarantee(approximation: Scores, /, *, low: Constant, high: Constant) -> Scalar:
    r"""Bound the correlation between exact and approximate scores from below.

    Implements :eq:`rank-pearson`: :math:`r \ge \sqrt{1 - (\tau/\lambda)^2 (1 + 1/\mathrm{CV}^2)}` with
    :math:`\lambda = (M+m)/2`, :math:`\tau = (M-m)/2` and CV the approximate scores' standard deviation
    over their absolute mean. The quotients' bounds alone give nothing: scores must also spread.

    Assume: :math:`m \le \Ghost_j / \LAI_j \le M` for every sample; :math:`m > 0`; the radicand is positive;
    scores are not all equal. Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    array
        -1, no guarantee, where the root's argument is not positive.
    """
    xp = xp_of(approximation)
    spread = xp.sum((approximation - xp.mean(approximation)) ** 2)
    tilt = (high - low) / (high + low)
    # 1 + 1 / CV^2 = sum S^2 / sum (S - mean)^2: the root's argument, times what may be 0
    left = spread - tilt * tilt * xp.sum(approximation * approximation)
    positive, one = left > 0, xp.ones_like(left)
    return xp.where(positive, xp.sqrt(xp.where(positive, left, one) / xp.where(positive, spread, one)), -one)


@checked
def certain_order(
    approximation: Scores, /, *, low: Constant, high: Constant
) -> Bool[Array, "n_train n_train"]:
    r"""Find the pairs whose order is certain.

    Implements :eq:`concordance`: quotients in [m, M] put an exact score between :math:`\min(mS, MS)` and
    :math:`\max(mS, MS)`; j is above k for certain where these intervals do not meet. For positive scores
    that is :math:`S_j / S_k > M/m`.

    Assume: :math:`m \le \Ghost_j / \LAI_j \le M` for every sample; :math:`m > 0`; both scores have one sign.
    Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    array
        Whether the exact score of j certainly exceeds that of k.
    """
    xp = xp_of(approximation)
    ends = low * approximation, high * approximation
    return xp.minimum(*ends)[:, None] > xp.maximum(*ends)[None, :]


@checked
def certain_sign(kernel: Kernel, /, *, low: Constant, high: Constant) -> Bool[Array, " n_train"]:
    r"""Find the samples whose score's sign is certain, although validation samples disagree.

    Implements :eq:`sign-agreement`: with P and N the sums of the positive and of the negative parts of
    LAI's kernel over validation samples, and quotients in [m, M] pair by pair, Ghost's score has LAI's
    sign where :math:`mP > MN` or :math:`mN > MP`.

    Assume: every term's ratio lies in :math:`[m, M]`; :math:`m > 0`; :math:`N > 0`.
    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(kernel)
    size = xp.abs(kernel)
    helps, hurts = (xp.sum(size + part, axis=0) for part in (kernel, -kernel))  # 2 P and 2 N
    return xp.logical_or(low * helps > high * hurts, low * hurts > high * helps)


@checked
def selection_regret(scores: Scores, approximation: Scores, /) -> Scalar:
    r"""Compute what is lost to first order by keeping the samples whose approximate score is positive.

    Implements :eq:`selection-regret`: :math:`\sum_j \max(v_j, 0) - \sum_{\hat v_j > 0} v_j`.

    Assume: the normalisation of the step does not depend on which samples are kept.
    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(scores)
    wrong = xp.where(approximation > 0, scores < 0, scores > 0)
    return xp.sum(xp.where(wrong, xp.abs(scores), xp.zeros_like(scores)))


@checked
def selection_regret_bound(scores: Scores, approximation: Scores, /) -> Scalar:
    r"""Bound the regret by the smallest distance between scores and scaled approximate scores.

    Implements :eq:`selection-regret`: :math:`\min_{\lambda \ge 0} \sum_j |v_j - \lambda \hat v_j|`. Where a
    sample is kept or dropped wrongly, :math:`v_j` and :math:`\lambda \hat v_j` have opposite signs, and
    their distance is at least :math:`|v_j|`.

    Assume: the normalisation of the step does not depend on which samples are kept.
    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(scores)
    # sum_j |v_j - lambda a_j| = sum_j |a_j| |v_j / a_j - lambda| + what does not depend on lambda: convex,
    # with its minimum at the median of the quotients weighted by |a_j|, or at 0 where that is negative.
    quotients = quotient(xp, scores, approximation, 0.0)
    order = xp.argsort(quotients)
    weights = xp.take(xp.abs(approximation), order, axis=0)
    below = xp.cumulative_sum(weights) - weights
    reached = xp.take(quotients, order, axis=0)
    # the median is the largest quotient with at most half of the weight below it
    nowhere = xp.full_like(reached, -float("inf"))
    candidates = xp.where(below * 2.0 <= xp.sum(weights), reached, nowhere)
    median = xp.max(xp.where(weights > 0, candidates, nowhere))
    scale = xp.where(median > 0, median, xp.zeros_like(median))
    return xp.sum(xp.abs(scores - scale * approximation))


@checked
def certified_regret_bound(approximation: Scores, errors: Scores, /) -> Scalar:
    r"""Bound the regret by how far each approximate score can be off: the least such bound.

    Implements :eq:`certified-regret`: :math:`\sum_j \max(\epsilon_j - |\hat v_j|, 0)` where
    :math:`|v_j - \hat v_j| \le \epsilon_j`. Only a sample whose error can exceed its score is misjudged, and
    then its exact score is at most the excess; the scores at that excess attain the bound.

    Assume: :math:`|v_j - \hat v_j| \le \epsilon_j` for every :math:`j`; the normalisation of the step
    does not depend on which samples are kept. Arguments: :mod:`lai_core.bounds`.

    Parameters
    ----------
    errors
        Their bounds, not negative, such as `top_layers_bound`'s.
    """
    xp = xp_of(approximation)
    excess = errors - xp.abs(approximation)
    return xp.sum(xp.where(excess > 0, excess, xp.zeros_like(excess)))


@checked
def common_factor(gains: Layers, proportions: Layers, /) -> Scalar:
    r"""Compute the one factor between Ghost and LAI where they rank alike.

    Implements :eq:`identical-ranking`: :math:`\sum_l k_l c_l / \sum_l k_l` where
    :math:`\beta^{(l)} = c_l \beta^{(L)}` and :math:`\alpha^{(l)} = k_l \alpha^{(1)}` for every pair, as
    in linear networks of scaled orthogonal layers. The correlation is then 1, whatever the factor.

    Assume: :math:`\beta^{(l)} = c_l \beta^{(L)}` for all pairs; :math:`\alpha^{(l)} = k_l \alpha^{(1)}` for
    all pairs; :math:`\sum_l k_l \ne 0`.

    Parameters
    ----------
    gains, proportions
        c and k; the last gain is 1.

    Returns
    -------
    array
        Ghost's score over LAI's.
    """
    xp = xp_of(gains)
    return xp.sum(gains * proportions) / xp.sum(proportions)
