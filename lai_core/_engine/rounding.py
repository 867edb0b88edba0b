"""The bound under which every check accepts that two computations of one sum are the same."""

from collections.abc import Sequence
from math import inf, sqrt
from typing import NamedTuple

DEVIATIONS = 4.0
"""How many standard deviations of a rounding error are allowed: the share beyond is below 1e-4."""
IN_SERIES = 16
"""How many independent roundings of the coarsest type a term passes through: calibrated, see below."""
DIGITS = 5 / 8
"""The share of a type's digits that a difference of nearly equal numbers keeps: calibrated."""
SEEN = 0.01
"""The error of a single term that a check has to see."""


def rounding_bound(eps: float, magnitude: float) -> float:
    r"""Return by how much rounding alone may move a sum whose terms' squares have the root `magnitude`.

    `eps` is the distance from 1 to the next number, of the type of fewest digits that takes part: twice u.

    A sum of terms x_j, each computed with a relative error d_j, is off by sum_j d_j x_j. The terms' absolute
    values tell its size and not the sum, which nearly cancels where a model is trained, labels are random or
    a batch is large.

    Each d_j is made of m roundings in series, each at most the unit roundoff u = eps / 2. In the worst case
    d_j is gamma_m = m u / (1 - m u) (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
    Roundings have mean zero, so that d_j is at most t sqrt(m) u but for a share 2 exp(-t^2 / 2) of all cases
    (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019). Errors of different
    terms are independent, and those of the sum add up in squares:

        |error| <= t sqrt(m) u sqrt(sum_j x_j^2),  t = 4, m = 16.

    That errors add up in squares, and the factor t sqrt(m), are derived. m is not: a deep model has more
    roundings in series. m = 16, with t = 4 a bound of 8 eps, and the exponent 5/8 below are calibrated on
    200 small trained models (MLP, BatchNorm, residual, convolutional, transformer; float32, and bfloat16
    inside; 0 to 2,000 steps): none is refused, and 1% in one sample is seen.

    The root of the sum of squares is at most the sum of absolute values, under which an error in one of n
    equal terms would be lost sqrt(n) times as often.
    """
    return DEVIATIONS * sqrt(IN_SERIES) * (eps / 2) * magnitude


def tolerance(eps: float, terms: float, count: float, magnitude: float = 0.0) -> float:
    r"""Return by how much two computations of a sum of `count` terms may differ.

    `terms` is the root of the sum of the terms' squares, `magnitude` that of the products which the terms are
    sums of, where these are known. A sum with random signs has that size on average.

    The larger one of two numbers. The first is `rounding_bound`, of the terms and of a `magnitude` of what
    they are themselves made of. The second is for terms that have lost digits before they are terms: the
    gradient of a fitted sample's cross-entropy is p - 1, whose relative error is u / (1 - p), and no bound
    on the results knows of it. It grants each term an error of eps^(5/8), which leaves five of single
    precision's eight digits. But it grants the sum no more than a third of what an error of 1% in one term
    of average size makes, which is `terms / sqrt(count)`, for so much has to be seen.
    """
    root = sqrt(max(count, 1.0))
    lost = min(eps**DIGITS * terms * root, SEEN / 3 * terms / root)
    return max(rounding_bound(eps, max(terms, magnitude)), lost)


class Block(NamedTuple):
    """One parameter's part of two computations of a gradient.

    Attributes
    ----------
    error
        The norm of their difference.
    size
        The norm of one of them.
    eps
        As in `rounding_bound`.
    """

    error: float
    size: float
    eps: float


def sums_agree(blocks: Sequence[Block], count: float, magnitude: float = 0.0) -> list[bool]:
    r"""Say of which parameters two sums of gradients, with weights of random sign, are one.

    A parameter's error may be a rounding of the whole gradient, whose products it is made of: that of
    attention's key bias is zero but for such roundings. So is that of a last layer's bias, before a loss
    which a shift of all outputs does not move: of `magnitude`, the norm of the gradient at the outputs.
    Where the whole is not finite nothing is told. `count` is how many samples of weight 1 have the same sum
    of squares: sum_j w_j^2.
    """
    whole = sqrt(sum(block.size**2 for block in blocks) + magnitude**2)
    if not whole < inf:
        return [True] * len(blocks)
    return [block.error <= tolerance(block.eps, block.size, count, magnitude=whole) for block in blocks]
