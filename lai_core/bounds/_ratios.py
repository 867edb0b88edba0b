r"""What holds between Ghost, LAI and LLI, in terms of how similarities decay through the layers.

With the ratios :math:`b^{(l)}_{zj} = \beta^{(l)}_{zj} / \beta^{(L)}_{zj}`, Ghost is LAI with every
layer's alpha multiplied by its b. Bounds :math:`m^{(l)} \le b^{(l)} \le M^{(l)}` then bound every
difference, sharply. Under A1, A3 and non-expansive alignment m = 0 and
:math:`M = \rho^{2(L-l)}`; :math:`b^{(L)} = 1` always, so that the last rows of `low` and `high`
are not used.
"""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Kernel, Kernels, Scores, checked

Ratios = Float[Array, " L"] | Float[Array, "L n_val n_train"]
"""A bound on the ratios: one number for each layer, or for each layer and pair."""


@checked
def lai_gap_range(alpha: Kernels, beta_last: Kernel, low: Ratios, high: Ratios, /) -> tuple[Scores, Scores]:
    r"""Bound LAI's score minus Ghost's from both sides.

    Implements :eq:`lai-two-sided`: it lies between :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)}
    (1 - M^{(l)})` and :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)} (1 - m^{(l)})` where
    :math:`\alpha^{(l)} \ge 0` and :math:`\beta^{(L)} \ge 0`. Both ends are attained.

    Arguments: :mod:`lai_core.bounds`.
    """
    return _lower_layers(alpha, beta_last, 1.0 - high), _lower_layers(alpha, beta_last, 1.0 - low)


@checked
def ghost_over_lai_range(alpha: Kernels, low: Ratios, high: Ratios, /) -> tuple[Scores, Scores]:
    r"""Bound Ghost's score from both sides, in multiples of LAI's.

    Implements :eq:`ghost-lai-range`: Ghost's score is at least s and at most t times LAI's, where s and t
    are the smallest and the largest, over validation samples, of the mean of :math:`m^{(l)}` and of
    :math:`M^{(l)}` weighted by :math:`\alpha^{(l)}`, for :math:`\alpha^{(l)} \ge 0` and
    :math:`\beta^{(L)}_{zj} \ge 0`. With ratios in [0, 1], s is the smallest share of the last layer and t is
    1, so that LAI has the right sign and no smaller a size.

    Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    tuple of arrays
        The largest s and the smallest t. A validation sample all of whose similarities with j are 0 adds
        nothing to either score and does not count; both are 1 where no sample counts.
    """
    xp = xp_of(alpha)
    last, infinite = alpha[-1, ...], xp.full_like(alpha[0, ...], float("inf"))
    counts = xp.any(alpha != 0, axis=0)
    total = xp.where(counts, xp.sum(alpha, axis=0), xp.ones_like(last))
    least, most = ((xp.sum((alpha * _pair(b))[:-1, ...], axis=0) + last) / total for b in (low, high))
    some = xp.any(counts, axis=0)
    ends = (
        xp.min(xp.where(counts, least, infinite), axis=0),
        xp.max(xp.where(counts, most, -infinite), axis=0),
    )
    smallest, largest = (xp.where(some, end, xp.ones_like(end)) for end in ends)
    return smallest, largest


@checked
def relative_error_bound(alpha: Kernels, /) -> Scores:
    r"""Bound LAI's error for aligned layers, in multiples of LAI's score.

    Implements :eq:`relative-below-one`: :math:`|\mathrm{Ghost} - \mathrm{LAI}| \le (1 - s)\,
    |\mathrm{LAI}|`, where s is the smallest share of the last layer, :math:`\alpha^{(L)}_{zj} / \sum_l
    \alpha^{(l)}_{zj}`, over validation samples. Under A3 and non-expansive alignment with rho at most 1 all
    ratios are in [0, 1], as it asks (`ghost_over_lai_range`).

    Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    array
        1 - s, a number from 0 to 1: below 1 where :math:`\alpha^{(L)}` is positive wherever any
        similarity of a pair is, and 0 where all of them are 0, as both scores are then.
    """
    xp = xp_of(alpha)
    ratios = xp.concat([xp.zeros_like(alpha[1:, 0, 0]), xp.ones_like(alpha[:1, 0, 0])])
    return 1.0 - ghost_over_lai_range(alpha, ratios, ratios)[0]


@checked
def relative_limit(alpha: Kernels, beta_last: Kernel, /) -> Scores:
    r"""Compute where LAI's relative error goes as rho vanishes: not to 0.

    Implements :eq:`relative-limit`: :math:`|1 - \sum_z \beta^{(L)} \alpha^{(L)} / \sum_z \beta^{(L)}
    \sum_l \alpha^{(l)}|`, which is :math:`(L-1)/L` for equal embedding similarities, and so grows with
    depth: Ghost is then LLI.

    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(alpha)
    lli = xp.sum(alpha[-1, ...] * beta_last, axis=0)
    return xp.abs(1.0 - lli / xp.sum(xp.sum(alpha, axis=0) * beta_last, axis=0))


@checked
def mean_ratio(alpha: Kernels, beta: Kernels, /) -> Scores:
    r"""Compute the mean of the lower layers' ratios: LAI is nearer to Ghost than LLI iff it exceeds 1/2.

    Implements :eq:`lai-nearer-than-lli`: :math:`\sum_z \sum_{l<L} \alpha^{(l)} \beta^{(l)} / \sum_z
    \sum_{l<L} \alpha^{(l)} \beta^{(L)}`, for similarities of any sign: LLI gives the lower layers the ratio
    0, LAI the ratio 1.

    Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    array
        1/2, a tie, where the denominator is 0: LAI and LLI are then equal.
    """
    xp, lower = xp_of(alpha), alpha[:-1, ...]
    ghost = xp.sum(lower * beta[:-1, ...], axis=(0, 1))
    return quotient(xp, ghost, xp.sum(lower * beta[-1:, ...], axis=(0, 1)), 0.5)


def _pair(ratios: Array) -> Array:
    """Give one number for each layer the axes of alpha."""
    return ratios[:, None, None] if ratios.ndim == 1 else ratios


def _lower_layers(alpha: Array, beta_last: Array, ratios: Array) -> Array:
    xp = xp_of(alpha)
    return xp.sum(xp.sum((alpha * _pair(ratios))[:-1, ...], axis=0) * beta_last, axis=0)
