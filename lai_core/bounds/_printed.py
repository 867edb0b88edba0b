"""The gap between Ghost and LAI and its bounds, as printed, and the powers of rho that bounds are made of."""

from lai_core._engine.checks import check_count
from lai_core._engine.namespace import xp_of
from lai_core._theory.arrays import Constant, Kernel, Kernels, Scores, TrainingNorms, ValidationNorms, checked


@checked
def decay_powers(*, rho: Constant, depth: int) -> tuple[Constant, ...]:
    r"""Compute :math:`\rho^{2(L-l)}` for l = 1, ..., L: by how much A1 lets similarities decay.

    Implements :eq:`admissible-weights` and :eq:`decay-bounds-gain`. The powers are the largest layer
    weights for which the printed geometric bound holds: :math:`|b - w_l| \le \rho^{2(L-l)}` for every ratio
    b between 0 and :math:`\rho^{2(L-l)}` if and only if :math:`0 \le w_l \le \rho^{2(L-l)}`, so that LLI
    (0) is inside and LAI (1) outside. And they are the largest gains :math:`c_l` of the paper's noise
    model that A1 leaves room for: for gradients of second moment S and a backward operator of mean
    :math:`\bar A`, whose noise is centred given the gradient, it implies :math:`\mathrm{tr}(\bar A^\top
    \bar A S) \le \rho^{2(L-l)} \mathrm{tr}\,S`. Small rho and gains near 1 exclude each other.

    Arguments: :mod:`lai_core.bounds`.

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

    Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    float or array
        Of the kind of `rho`; 0 for one layer.

    Examples
    --------
    >>> from lai_core.bounds import geometric_sum
    >>> geometric_sum(rho=0.5, depth=3), geometric_sum(rho=1.0, depth=3)
    (0.3125, 2.0)
    """
    return sum(decay_powers(rho=rho, depth=depth)[:-1], 0.0 * rho)


@checked
def printed_ghost_influence(alpha: Kernels, beta: Kernels, /) -> Scores:
    r"""Compute Ghost with the printed minus: negative helps.

    Implements :eq:`app-lai-defs`: :math:`-\sum_z \sum_l \alpha^{(l)}_{zj} \beta^{(l)}_{zj}`.

    Arguments: :mod:`lai_core.bounds`.
    """
    return -xp_of(alpha).sum(alpha * beta, axis=(0, 1))


@checked
def printed_lai_influence(alpha: Kernels, beta: Kernels, /) -> Scores:
    r"""Compute LAI with the printed minus: negative helps.

    Implements :eq:`app-lai-defs`: :math:`-\sum_z (\sum_l \alpha^{(l)}_{zj}) \beta^{(L)}_{zj}`.

    Arguments: :mod:`lai_core.bounds`.
    """
    xp = xp_of(alpha)
    return -xp.sum(xp.sum(alpha, axis=0) * beta[-1, ...], axis=0)


@checked
def gap(alpha: Kernels, beta: Kernels, /) -> Kernel:
    r"""Compute what Ghost has and LAI has not, pair by pair.

    Implements :eq:`app-epsilon-pair`:
    :math:`\zeta_{zj} = \sum_{l<L} \alpha^{(l)}_{zj} (\beta^{(l)}_{zj} - \beta^{(L)}_{zj})`.

    Arguments: :mod:`lai_core.bounds`.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.bounds import gap
    >>> alpha, beta = np.ones((2, 1, 1)), np.array([[[0.25]], [[1.0]]])
    >>> gap(alpha, beta)
    array([[-0.75]])
    """
    return xp_of(alpha).sum(alpha * (beta - beta[-1:, ...]), axis=0)


@checked
def pair_gap_bound(beta: Kernels, /, *, C_a: Constant) -> Kernel:
    r"""Bound the gap of each pair by its gradient similarities.

    Implements :eq:`zeta-bound`: :math:`|\zeta| \le C_a^2\sum_{l<L} (|\beta^{(L)}| + |\beta^{(l)}|)`
    under A2, by which :math:`|\alpha^{(l)}| \le C_a^2`. The paper assumes A3 and omits the bars.

    Arguments: :mod:`lai_core.bounds`.
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

    Arguments: :mod:`lai_core.bounds`.
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

    Arguments: :mod:`lai_core.bounds`.
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

    Arguments: :mod:`lai_core.bounds`.

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

    Arguments: :mod:`lai_core.bounds`.
    """
    return alpha_bar * xp_of(beta_last).sum(beta_last, axis=0)


@checked
def geometric_bound_as_printed(beta_last: Kernel, /, *, rho: Constant, C_a: Constant, depth: int) -> Scores:
    r"""Compute the right-hand side printed for the gap between Ghost and LAI, which it does not bound.

    Implements :eq:`app-abs-gap`: :math:`C_a^2 (\sum_z \beta^{(L)}_{zj}) \sum_{k=1}^{L-1} \rho^{2k}`. It
    bounds the gap between Ghost and LLI (`lli_gap_bound`). LAI's is in `lai_gap_range`.

    Arguments: :mod:`lai_core.bounds`.
    """
    return C_a * C_a * xp_of(beta_last).sum(beta_last, axis=0) * geometric_sum(rho=rho, depth=depth)
