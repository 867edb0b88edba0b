r"""What an approximate score guarantees about ranking and selection.

Scales do not matter for selection: an approximation is good where the quotient *exact / approximate*
varies little. Let it lie in [m, M] for every sample, 0 < m (`lai_core.bounds.ghost_over_lai_range`
bounds it for LAI). Then the cosine, the correlation, the order of pairs and the signs are bounded,
whatever m and M are; without a lower bound on the quotient nothing is.
"""

from jaxtyping import Bool, Float

from lai_core._engine.namespace import Array
from lai_core._theory.layerwise import Constant, J, Z, check_axes, check_constant, quotient


def reversed_pairs(
    scores: Float[Array, " n_train"], approximation: Float[Array, " n_train"]
) -> Bool[Array, "n_train n_train"]:
    """Find the pairs that an approximation ranks the other way round.

    Implements :eq:`rank-flip`: LAI reverses pairs of Ghost, and of LLI, even on linear networks that
    satisfy every assumption.

    Parameters
    ----------
    scores, approximation
        `(n_train,)`.

    Returns
    -------
    array
        `(n_train, n_train)`: whether j is above k in `scores` and below k in `approximation`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (exact, other) = check_axes({"scores": (scores, (J,)), "approximation": (approximation, (J,))})
    return xp.logical_and(exact[:, None] > exact[None, :], other[:, None] < other[None, :])


def cosine_guarantee(*, low: Constant, high: Constant) -> Constant:
    r"""Bound the cosine between exact and approximate scores from below.

    Implements :eq:`rank-cosine`: :math:`\cos \ge 2\sqrt{mM} / (m + M)` for quotients in [m, M], attained.

    Parameters
    ----------
    low, high
        m and M, positive.

    Returns
    -------
    float or array
        Of the kind of the constants.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a constant is negative.

    Examples
    --------
    >>> from lai_core.bounds import cosine_guarantee
    >>> cosine_guarantee(low=1.0, high=4.0)
    0.8
    """
    low, high = check_constant("low", low), check_constant("high", high)
    return 2.0 * (low * high) ** 0.5 / (low + high)


def pearson_guarantee(
    approximation: Float[Array, " n_train"], *, low: Constant, high: Constant
) -> Float[Array, ""]:
    r"""Bound the correlation between exact and approximate scores from below.

    Implements :eq:`rank-pearson`: :math:`r \ge \sqrt{1 - (\tau/\lambda)^2 (1 + 1/\mathrm{CV}^2)}` with
    :math:`\lambda = (M+m)/2`, :math:`\tau = (M-m)/2` and CV the approximate scores' standard deviation
    over their absolute mean. The quotients' bounds alone give nothing: scores must also spread.

    Parameters
    ----------
    approximation
        `(n_train,)`.
    low, high
        m and M, positive.

    Returns
    -------
    array
        Without axes; -1, no guarantee, where the root's argument is not positive.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a constant is negative.
    """
    xp, (ours,) = check_axes({"approximation": (approximation, (J,))})
    low, high = check_constant("low", low, ours), check_constant("high", high, ours)
    spread = ours - xp.mean(ours)
    inflation = quotient(xp, xp.sum(ours * ours), xp.sum(spread * spread), float("inf"))
    tilt = (high - low) / (high + low)
    root = 1.0 - tilt * tilt * inflation
    positive = root > 0
    return xp.where(positive, xp.sqrt(xp.where(positive, root, xp.ones_like(root))), -xp.ones_like(root))


def certain_order(
    approximation: Float[Array, " n_train"], *, low: Constant, high: Constant
) -> Bool[Array, "n_train n_train"]:
    r"""Find the pairs whose order is certain.

    Implements :eq:`concordance`: quotients in [m, M] put an exact score between :math:`\min(mS, MS)` and
    :math:`\max(mS, MS)`; j is above k for certain where these intervals do not meet. For positive scores
    that is :math:`S_j / S_k > M/m`.

    Parameters
    ----------
    approximation
        `(n_train,)`.
    low, high
        m and M, not negative.

    Returns
    -------
    array
        `(n_train, n_train)`: whether the exact score of j certainly exceeds that of k.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a constant is negative.
    """
    xp, (ours,) = check_axes({"approximation": (approximation, (J,))})
    ends = [check_constant(name, end, ours) * ours for name, end in (("low", low), ("high", high))]
    return xp.minimum(*ends)[:, None] > xp.maximum(*ends)[None, :]


def certain_sign(
    kernel: Float[Array, "n_val n_train"], *, low: Constant, high: Constant
) -> Bool[Array, " n_train"]:
    r"""Find the samples whose score's sign is certain, although validation samples disagree.

    Implements :eq:`sign-agreement`: with P and N the sums of the positive and of the negative parts of
    LAI's kernel over validation samples, and quotients in [m, M] pair by pair, Ghost's score has LAI's
    sign where :math:`mP > MN` or :math:`mN > MP`.

    Parameters
    ----------
    kernel
        LAI's kernel, `(n_val, n_train)`.
    low, high
        m and M of every pair, not negative.

    Returns
    -------
    array
        `(n_train,)`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a constant is negative.
    """
    xp, (kernel,) = check_axes({"kernel": (kernel, (Z, J))})
    low, high = check_constant("low", low, kernel), check_constant("high", high, kernel)
    size = xp.abs(kernel)
    helps, hurts = (xp.sum((size + part) * 0.5, axis=0) for part in (kernel, -kernel))
    return xp.logical_or(low * helps > high * hurts, low * hurts > high * helps)


def selection_regret(
    scores: Float[Array, " n_train"], approximation: Float[Array, " n_train"]
) -> Float[Array, ""]:
    r"""Compute what is lost to first order by keeping the samples whose approximate score is positive.

    Implements :eq:`selection-regret`: :math:`\sum_j \max(v_j, 0) - \sum_{\hat v_j > 0} v_j`.

    Parameters
    ----------
    scores, approximation
        Exact and approximate scores, `(n_train,)`; positive helps.

    Returns
    -------
    array
        Without axes, in units of scores; not negative.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (exact, other) = check_axes({"scores": (scores, (J,)), "approximation": (approximation, (J,))})
    wrong = xp.where(other > 0, exact < 0, exact > 0)
    return xp.sum(xp.where(wrong, xp.abs(exact), xp.zeros_like(exact)))


def selection_regret_bound(
    scores: Float[Array, " n_train"], approximation: Float[Array, " n_train"]
) -> Float[Array, ""]:
    r"""Bound the regret by the smallest distance between scores and scaled approximate scores.

    Implements :eq:`selection-regret`: :math:`\min_{\lambda \ge 0} \sum_j |v_j - \lambda \hat v_j|`, whose
    minimum is at a weighted median of the quotients.

    Parameters
    ----------
    scores, approximation
        Exact and approximate scores, `(n_train,)`; positive helps.

    Returns
    -------
    array
        Without axes; at least the regret.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (exact, other) = check_axes({"scores": (scores, (J,)), "approximation": (approximation, (J,))})
    quotients = quotient(xp, exact, other, 0.0)
    order = xp.argsort(quotients)
    weights = xp.take(xp.abs(other), order, axis=0)
    below = xp.cumulative_sum(weights) - weights
    reached = xp.take(quotients, order, axis=0)
    candidates = xp.where(below * 2.0 <= xp.sum(weights), reached, xp.full_like(reached, -float("inf")))
    scale = xp.max(xp.where(weights > 0, candidates, xp.full_like(reached, -float("inf"))))
    scale = xp.where(scale > 0, scale, xp.zeros_like(scale))
    return xp.sum(xp.abs(exact - scale * other))


def common_factor(gains: Float[Array, " L"], proportions: Float[Array, " L"]) -> Float[Array, ""]:
    r"""Compute the one factor between Ghost and LAI where they rank alike.

    Implements :eq:`identical-ranking`: :math:`\sum_l k_l c_l / \sum_l k_l` where
    :math:`\beta^{(l)} = c_l \beta^{(L)}` and :math:`\alpha^{(l)} = k_l \alpha^{(1)}` for every pair, as
    in linear networks of scaled orthogonal layers. The correlation is then 1, whatever the factor.

    Parameters
    ----------
    gains, proportions
        c and k, `(L,)`; the last gain is 1.

    Returns
    -------
    array
        Without axes.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (gains, shares) = check_axes({"gains": (gains, ("L",)), "proportions": (proportions, ("L",))})
    return xp.sum(gains * shares) / xp.sum(shares)
