"""What selecting by an approximate score costs."""

from lai_core._engine.namespace import xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Scalar, Scores, checked


@checked
def selection_regret(scores: Scores, approximation: Scores, /) -> Scalar:
    r"""Compute what is lost to first order by keeping the samples whose approximate score is positive.

    Implements :eq:`selection-regret`: :math:`\sum_j \max(v_j, 0) - \sum_{\hat v_j > 0} v_j`.

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
