r"""Appendix B, "LAI is an approximation of Ghost": the printed gap and bounds, and those that hold.

* The printed statements (`gap`, `pair_gap_bound`, `conservative_bound`, ...): two of them do not hold for
  LAI, `geometric_bound_as_printed` and the reading of `lli_relative_bound` for LAI. What holds in their
  place: `lli_gap_bound`, `sharp_conservative_bound`, the bounds `..._without_alignment`.
* How far LAI and LLI are from Ghost in terms of how similarities decay through the layers, sharply:
  `lai_gap_range`, `relative_error_bound`, `relative_limit`.

There are L layers. :math:`\alpha^{(l)}_{zj}` and :math:`\beta^{(l)}_{zj}` are the similarities of layer
inputs and of output gradients, and rho, C_a and alpha_bar the constants of the assumptions
(`lai_core.assumptions`). Scores are positive for samples that help: Ghost's is
:math:`\sum_z\sum_l\alpha^{(l)}\beta^{(l)}`, LAI's :math:`\sum_z(\sum_l\alpha^{(l)})\beta^{(L)}` and LLI's
:math:`\sum_z\alpha^{(L)}\beta^{(L)}`; the printed influences are their negatives, and absolute gaps are the
same. Sums over powers of rho are computed as sums, so that every bound is right for rho = 1 and above, too.
Arrays over layers have the bottom layer first.

A bound on a gap or on similarities is at least their absolute value, one from both sides is the smallest and
the largest value. Arguments are the same everywhere, where a function says nothing else:

Parameters
----------
alpha, beta
    Similarities of layer inputs and of output gradients.
beta_last
    The last layer's beta.
validation_norms, training_norms
    Norms of the last layer's output gradients.
rho
    The rate of A1.
C_a
    The largest norm of a layer's input, of A2.
alpha_bar
    The smallest alpha of the last layer.
depth
    The number of layers L.
low, high
    m and M, not negative: bounds on the ratios of the layers' similarities to the last layer's.
"""

from jaxtyping import Float

from lai_core._engine.checks import check_count
from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import (
    Constant,
    Kernel,
    Kernels,
    Scores,
    TrainingNorms,
    ValidationNorms,
    checked,
)

__all__ = [
    "aligned_similarity_bound",
    "conservative_bound",
    "decay_powers",
    "gap",
    "geometric_bound_as_printed",
    "geometric_sum",
    "lai_gap_bound_without_alignment",
    "lai_gap_range",
    "lai_lower_bound",
    "lli_gap_bound",
    "lli_relative_bound",
    "mean_ratio",
    "norm_product_bound",
    "pair_gap_bound",
    "printed_ghost_influence",
    "printed_lai_influence",
    "relative_conservative_bound",
    "relative_error_bound",
    "relative_limit",
    "sharp_conservative_bound",
]


# The gap between Ghost and LAI and its bounds, as printed, and the powers of rho that bounds are made of.


@checked
def decay_powers(*, rho: Constant, depth: int) -> tuple[Constant, ...]:
    r"""Compute :math:`\rho^{2(L-l)}` for l = 1, ..., L: by how much A1 lets similarities decay.

    Implements :eq:`decay-bounds-gain`: the powers are the largest gains :math:`c_l` of the noise model
    that A1 leaves room for: for gradients of second moment S and a backward operator of mean
    :math:`\bar A`, whose noise is centred given the gradient, it implies :math:`\mathrm{tr}(\bar A^\top
    \bar A S) \le \rho^{2(L-l)} \mathrm{tr}\,S`. Small rho and gains near 1 exclude each other.

    Returns
    -------
    tuple
        Of the kind of `rho`, except the last, which is 1.0.
    """
    powers: list[Constant] = [1.0]
    for _ in range(check_count("depth", depth) - 1):
        powers.insert(0, powers[0] * rho * rho)
    return tuple(powers)


@checked
def geometric_sum(*, rho: Constant, depth: int) -> Constant:
    r"""Sum :math:`\rho^{2k}` over k = 1, ..., L - 1.

    Returns
    -------
    float or array
        Of the kind of `rho`; 0 for one layer.
    """
    return sum(decay_powers(rho=rho, depth=depth)[:-1], 0.0 * rho)


@checked
def printed_ghost_influence(alpha: Kernels, beta: Kernels, /) -> Scores:
    r"""Compute Ghost with the printed minus: negative helps.

    Implements :eq:`app-lai-defs`: :math:`-\sum_z \sum_l \alpha^{(l)}_{zj} \beta^{(l)}_{zj}`.
    """
    return -xp_of(alpha).sum(alpha * beta, axis=(0, 1))


@checked
def printed_lai_influence(alpha: Kernels, beta: Kernels, /) -> Scores:
    r"""Compute LAI with the printed minus: negative helps.

    Implements :eq:`app-lai-defs`: :math:`-\sum_z (\sum_l \alpha^{(l)}_{zj}) \beta^{(L)}_{zj}`.
    """
    xp = xp_of(alpha)
    return -xp.sum(xp.sum(alpha, axis=0) * beta[-1, ...], axis=0)


@checked
def gap(alpha: Kernels, beta: Kernels, /) -> Kernel:
    r"""Compute what Ghost has and LAI has not, pair by pair.

    Implements :eq:`app-epsilon-pair`:
    :math:`\zeta_{zj} = \sum_{l<L} \alpha^{(l)}_{zj} (\beta^{(l)}_{zj} - \beta^{(L)}_{zj})`.
    """
    return xp_of(alpha).sum(alpha * (beta - beta[-1:, ...]), axis=0)


@checked
def pair_gap_bound(beta: Kernels, /, *, C_a: Constant) -> Kernel:
    r"""Bound the gap of each pair by its gradient similarities.

    Implements :eq:`zeta-bound`: :math:`|\zeta| \le C_a^2\sum_{l<L} (|\beta^{(L)}| + |\beta^{(l)}|)`
    under A2, by which :math:`|\alpha^{(l)}| \le C_a^2`. The paper assumes A3 and omits the bars.
    """
    xp = xp_of(beta)
    size = xp.abs(beta)
    return C_a * C_a * xp.sum(size[:-1, ...] + size[-1:, ...], axis=0)


@checked
def norm_product_bound(
    validation_norms: ValidationNorms, training_norms: TrainingNorms, /, *, rho: Constant, depth: int
) -> Kernels:
    r"""Bound every layer's gradient similarity by decayed norms.

    Implements :eq:`norm-product-bound`:
    :math:`|\beta^{(l)}_{zj}| \le \rho^{2(L-l)} \|g^{(L)}_z\| \|g^{(L)}_j\|` under A1, by Cauchy and Schwarz.
    """
    products = validation_norms[:, None] * training_norms[None, :]
    return xp_of(products).stack([power * products for power in decay_powers(rho=rho, depth=depth)])


@checked
def conservative_bound(
    beta_last: Kernel,
    validation_norms: ValidationNorms,
    training_norms: TrainingNorms,
    /,
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Scores:
    r"""Bound the gap between Ghost and LAI under A1, A2 and A3.

    Implements :eq:`app-conservative`: :math:`C_a^2 \sum_z [(L-1) \beta^{(L)}_{zj} + \|g^{(L)}_z\|
    \|g^{(L)}_j\| \sum_{k=1}^{L-1} \rho^{2k}]`: each :math:`|\beta^{(l)} - \beta^{(L)}|` is at most the sum
    of both, and A1 bounds the first by decayed norms.
    """
    products = validation_norms[:, None] * training_norms[None, :]
    decayed = products * geometric_sum(rho=rho, depth=depth)
    return C_a * C_a * xp_of(beta_last).sum((depth - 1) * beta_last + decayed, axis=0)


@checked
def relative_conservative_bound(
    beta_last: Kernel,
    validation_norms: ValidationNorms,
    training_norms: TrainingNorms,
    /,
    *,
    rho: Constant,
    C_a: Constant,
    alpha_bar: Constant,
    depth: int,
) -> Scores:
    r"""Bound LAI's relative error under A1, A2, A3 and what the paper leaves unsaid.

    Implements :eq:`app-relative-conservative`: :math:`\frac{C_a^2}{\bar\alpha} [(L-1) +
    \frac{\sum_z \|g^{(L)}_z\| \|g^{(L)}_j\|}{\sum_z \beta^{(L)}_{zj}} \sum_{k=1}^{L-1}\rho^{2k}]`, the
    conservative bound over `lai_lower_bound`. It needs, beside the assumptions, that the lower layers'
    embedding similarities sum to no less than 0, that :math:`0 < \bar\alpha \le \alpha^{(L)}_{zj}`, and
    :math:`\sum_z \beta^{(L)}_{zj} > 0`.

    Returns
    -------
    array
        At least the gap between Ghost and LAI divided by LAI; never below L - 1, where aligned layers keep
        the error at 1 or below (`relative_error_bound`).
    """
    xp, geometric = xp_of(beta_last), geometric_sum(rho=rho, depth=depth)
    products = validation_norms[:, None] * training_norms[None, :]
    spread = xp.sum(products, axis=0) / xp.sum(beta_last, axis=0)
    return (C_a * C_a / alpha_bar) * ((depth - 1) + spread * geometric)


@checked
def lai_lower_bound(beta_last: Kernel, /, *, alpha_bar: Constant) -> Scores:
    r"""Bound the size of LAI's score from below.

    Implements :eq:`lai-lower-bound`: :math:`\bar\alpha \sum_z \beta^{(L)}_{zj}`, under A3, if the lower
    layers' embedding similarities sum to no less than 0 and :math:`\bar\alpha \le \alpha^{(L)}_{zj}`.
    """
    return alpha_bar * xp_of(beta_last).sum(beta_last, axis=0)


@checked
def geometric_bound_as_printed(beta_last: Kernel, /, *, rho: Constant, C_a: Constant, depth: int) -> Scores:
    r"""Compute the right-hand side printed for the gap between Ghost and LAI, which it does not bound.

    Implements :eq:`app-abs-gap`: :math:`C_a^2 (\sum_z \beta^{(L)}_{zj}) \sum_{k=1}^{L-1} \rho^{2k}`. It
    bounds the gap between Ghost and LLI (`lli_gap_bound`). LAI's is in `lai_gap_range`.
    """
    return C_a * C_a * xp_of(beta_last).sum(beta_last, axis=0) * geometric_sum(rho=rho, depth=depth)


# What holds between Ghost, LAI and LLI, in terms of how similarities decay through the layers.
#
# With the ratios `b^{(l)}_{zj} = \beta^{(l)}_{zj} / \beta^{(L)}_{zj}`, Ghost is LAI with every layer's alpha
# multiplied by its b. Bounds `m^{(l)} \le b^{(l)} \le M^{(l)}` then bound every difference, sharply. Under
# A1, A3 and non-expansive alignment m = 0 and `M = \rho^{2(L-l)}`; `b^{(L)} = 1` always, so that the last
# rows of `low` and `high` are not used.


Ratios = Float[Array, " L"] | Float[Array, "L n_val n_train"]
"""A bound on the ratios: one number for each layer, or for each layer and pair."""


@checked
def lai_gap_range(alpha: Kernels, beta_last: Kernel, low: Ratios, high: Ratios, /) -> tuple[Scores, Scores]:
    r"""Bound LAI's score minus Ghost's from both sides.

    Implements :eq:`lai-two-sided`: it lies between :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)}
    (1 - M^{(l)})` and :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)} (1 - m^{(l)})` where
    :math:`\alpha^{(l)} \ge 0` and :math:`\beta^{(L)} \ge 0`. Both ends are attained.
    """
    return _lower_layers(alpha, beta_last, 1.0 - high), _lower_layers(alpha, beta_last, 1.0 - low)


@checked
def relative_error_bound(alpha: Kernels, /) -> Scores:
    r"""Bound LAI's error for aligned layers, in multiples of LAI's score.

    Implements :eq:`relative-below-one`: :math:`|\mathrm{Ghost} - \mathrm{LAI}| \le (1 - s)\,
    |\mathrm{LAI}|`, where s is the smallest share of the last layer, :math:`\alpha^{(L)}_{zj} / \sum_l
    \alpha^{(l)}_{zj}`, over validation samples. Under A3 and non-expansive alignment with rho at most 1 all
    ratios are in [0, 1], as it asks.

    Returns
    -------
    array
        1 - s, a number from 0 to 1: below 1 where :math:`\alpha^{(L)}` is positive wherever any
        similarity of a pair is, and 0 where all of them are 0, as both scores are then.
    """
    # a validation sample without similarities adds nothing to either score: its share is 1, as if all last
    shares = quotient(xp_of(alpha), alpha[-1, ...], xp_of(alpha).sum(alpha, axis=0), 1.0)
    return 1.0 - xp_of(alpha).min(shares, axis=0)


@checked
def relative_limit(alpha: Kernels, beta_last: Kernel, /) -> Scores:
    r"""Compute where LAI's relative error goes as the lower gradients' similarities vanish: not to 0.

    Implements :eq:`relative-limit`: :math:`|1 - \sum_z \beta^{(L)} \alpha^{(L)} / \sum_z \beta^{(L)}
    \sum_l \alpha^{(l)}|`, which is :math:`(L-1)/L` for equal embedding similarities, and so grows with
    depth: Ghost is then LLI.
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


# Bounds that hold where the appendix prints others: for LLI, for absolute cosines, without alignment.


@checked
def sharp_conservative_bound(
    beta_last: Kernel,
    validation_norms: ValidationNorms,
    training_norms: TrainingNorms,
    /,
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Scores:
    r"""Bound the gap between Ghost and LAI under A1, A2 and A3 as tightly as these allow.

    Implements :eq:`conservative-sharp`: :math:`C_a^2 \sum_z \sum_{l<L} \max(\beta^{(L)}_{zj},\,
    \rho^{2(L-l)} \|g^{(L)}_z\| \|g^{(L)}_j\| - \beta^{(L)}_{zj})`, never above the printed bound:
    :math:`\beta^{(l)}` lies between 0 and the decayed norms, and is farthest from :math:`\beta^{(L)}` at
    one of these ends.
    """
    xp = xp_of(beta_last)
    products = validation_norms[:, None] * training_norms[None, :]
    total = xp.zeros_like(beta_last)
    for power in decay_powers(rho=rho, depth=depth)[:-1]:
        total = total + xp.maximum(beta_last, power * products - beta_last)
    return C_a * C_a * xp.sum(total, axis=0)


@checked
def aligned_similarity_bound(beta_last: Kernel, /, *, rho: Constant, depth: int) -> Kernels:
    r"""Bound every layer's gradient similarity by the last layer's.

    Implements :eq:`alignment-decay`: :math:`|\beta^{(l)}_{zj}| \le \rho^{2(L-l)} |\beta^{(L)}_{zj}|` under
    A1, if no lower layer's cosine exceeds the last one's in absolute value. The paper has no bars
    on the cosines (:eq:`alignment-implies-decay`), and needs A3 at the last layer in their place.
    """
    xp = xp_of(beta_last)
    size = xp.abs(beta_last)
    return xp.stack([power * size for power in decay_powers(rho=rho, depth=depth)])


@checked
def lli_gap_bound(beta_last: Kernel, /, *, rho: Constant, C_a: Constant, depth: int) -> Scores:
    r"""Bound the gap between Ghost and LLI.

    Implements :eq:`lli-gap`: :math:`|\mathrm{Ghost} - \mathrm{LLI}| \le C_a^2 \sum_z |\beta^{(L)}_{zj}|
    \sum_{k=1}^{L-1} \rho^{2k}` under A1 and A2, if no lower layer's cosine exceeds the last one's in
    absolute value. Under A3 it is the right-hand side that the paper prints for LAI.
    """
    xp = xp_of(beta_last)
    return C_a * C_a * xp.sum(xp.abs(beta_last), axis=0) * geometric_sum(rho=rho, depth=depth)


@checked
def lli_relative_bound(*, rho: Constant, C_a: Constant, alpha_bar: Constant, depth: int) -> Constant:
    r"""Bound the gap between Ghost and LLI, divided by LLI: what the paper prints for LAI.

    Implements :eq:`lli-relative-gap` and :eq:`app-rel-gap`: :math:`\frac{C_a^2}{\bar\alpha}
    \sum_{k=1}^{L-1} \rho^{2k}` under A1, A2, A3 and non-expansive alignment, with
    :math:`0 < \bar\alpha \le \alpha^{(L)}_{zj}` and :math:`\sum_z \beta^{(L)}_{zj} > 0`. The paper prints it
    as a bound on LAI's relative error, which it is not: that does not vanish with rho (`relative_limit`).

    Returns
    -------
    float or array
        Of the kind of the constants; of order rho squared.
    """
    return C_a * C_a / alpha_bar * geometric_sum(rho=rho, depth=depth)


@checked
def lai_gap_bound_without_alignment(
    beta_last: Kernel,
    validation_norms: ValidationNorms,
    training_norms: TrainingNorms,
    /,
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Scores:
    r"""Bound the gap between Ghost and LAI under A1 and A2 alone.

    Implements :eq:`gap-without-alignment`: :math:`C_a^2 \sum_z [(L-1) |\beta^{(L)}_{zj}| +
    \|g^{(L)}_z\| \|g^{(L)}_j\| \sum_{k=1}^{L-1} \rho^{2k}]`: `conservative_bound` with bars. Of LLI's gap it
    bounds what is left at :math:`\beta^{(L)} = 0`, the sum over layers of `norm_product_bound`.
    """
    size = xp_of(beta_last).abs(beta_last)
    return conservative_bound(size, validation_norms, training_norms, rho=rho, C_a=C_a, depth=depth)
