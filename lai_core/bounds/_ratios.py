r"""What holds between Ghost, LAI and LLI, in terms of how similarities decay through the layers.

With the ratios :math:`b^{(l)}_{zj} = \beta^{(l)}_{zj} / \beta^{(L)}_{zj}`, Ghost is LAI with every
layer's alpha multiplied by its b. Bounds :math:`m^{(l)} \le b^{(l)} \le M^{(l)}` then bound every
difference, sharply. Under A1, A3 and non-expansive alignment m = 0 and
:math:`M = \rho^{2(L-l)}`; :math:`b^{(L)} = 1` always, so that the last rows of `low` and `high`
are not looked at.
"""

from jaxtyping import Float

from lai_core._engine.namespace import Array, Namespace
from lai_core._theory.layerwise import (
    Constant,
    J,
    Z,
    check_axes,
    check_constant,
    check_depth,
    check_layerwise,
    per_layer,
    quotient,
)


def lai_gap_range(
    alpha: Float[Array, "L n_val n_train"], beta_last: Float[Array, "n_val n_train"], low: Array, high: Array
) -> tuple[Float[Array, " n_train"], Float[Array, " n_train"]]:
    r"""Bound LAI's score minus Ghost's from both sides.

    Implements :eq:`lai-two-sided`: it lies between :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)}
    (1 - M^{(l)})` and :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)} (1 - m^{(l)})` where
    :math:`\alpha^{(l)} \ge 0` and :math:`\beta^{(L)} \ge 0`. Both ends are attained.

    Parameters
    ----------
    alpha
        Embedding similarities, `(L, n_val, n_train)`, not negative.
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`, not negative.
    low, high
        Bounds on the ratios, `(L,)` or `(L, n_val, n_train)`.

    Returns
    -------
    tuple of arrays
        The smallest and the largest difference, `(n_train,)` each.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, alpha, beta, low, high = _ratios(alpha, beta_last, low, high)
    return _weighted(xp, alpha, beta, 1.0 - high), _weighted(xp, alpha, beta, 1.0 - low)


def lli_gap_range(
    alpha: Float[Array, "L n_val n_train"], beta_last: Float[Array, "n_val n_train"], low: Array, high: Array
) -> tuple[Float[Array, " n_train"], Float[Array, " n_train"]]:
    r"""Bound Ghost's score minus LLI's from both sides.

    Implements :eq:`lli-two-sided`: it lies between :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)}
    m^{(l)}` and :math:`\sum_z \beta^{(L)} \sum_{l<L} \alpha^{(l)} M^{(l)}` where
    :math:`\alpha^{(l)} \ge 0` and :math:`\beta^{(L)} \ge 0`. Both ends are attained.

    Parameters
    ----------
    alpha
        Embedding similarities, `(L, n_val, n_train)`, not negative.
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`, not negative.
    low, high
        Bounds on the ratios, `(L,)` or `(L, n_val, n_train)`.

    Returns
    -------
    tuple of arrays
        The smallest and the largest difference, `(n_train,)` each.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, alpha, beta, low, high = _ratios(alpha, beta_last, low, high)
    return _weighted(xp, alpha, beta, low), _weighted(xp, alpha, beta, high)


def lai_gap_bound(
    beta_last: Float[Array, "n_val n_train"], *, C_a: Constant, depth: int
) -> Float[Array, " n_train"]:
    r"""Bound the gap between Ghost and LAI for ratios between 0 and 1 and embeddings of any sign.

    Implements :eq:`lai-two-sided`: :math:`|\mathrm{Ghost} - \mathrm{LAI}| \le C_a^2 (L-1) \sum_z
    |\beta^{(L)}_{zj}|` under A2. No factor below 1 can be added under A1, for any rho: ratios may be 0.

    Parameters
    ----------
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
    C_a
        The largest norm of a layer's input.
    depth
        The number of layers L.

    Returns
    -------
    array
        `(n_train,)`: at least the absolute difference of the two scores.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a constant is negative.
    """
    xp, (beta,) = check_axes({"beta_last": (beta_last, (Z, J))})
    C_a = check_constant("C_a", C_a, beta)
    return C_a * C_a * (check_depth(depth) - 1) * xp.sum(xp.abs(beta), axis=0)


def ghost_over_lai_range(
    alpha: Float[Array, "L n_val n_train"], low: Array, high: Array
) -> tuple[Float[Array, " n_train"], Float[Array, " n_train"]]:
    r"""Bound Ghost's score divided by LAI's.

    Implements :eq:`ghost-lai-range`: it lies between the smallest and the largest, over validation
    samples, of the mean of :math:`m^{(l)}` and of :math:`M^{(l)}` weighted by :math:`\alpha^{(l)}`,
    where :math:`\alpha^{(l)} \ge 0`, :math:`\beta^{(L)}_{zj} \ge 0` and LAI's score is not 0. With
    ratios in [0, 1]: between :math:`\min_z \alpha^{(L)} / \sum_l \alpha^{(l)}` and 1, so that LAI has
    the right sign and no smaller a size.

    Parameters
    ----------
    alpha
        Embedding similarities, `(L, n_val, n_train)`, not negative and not all 0 for any pair.
    low, high
        Bounds on the ratios, `(L,)` or `(L, n_val, n_train)`.

    Returns
    -------
    tuple of arrays
        The smallest and the largest quotient, `(n_train,)` each.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    check_layerwise({"alpha": alpha})
    xp, alpha, _, low, high = _ratios(alpha, alpha[-1, ...], low, high)
    whole = xp.sum(alpha, axis=0)
    ends = [(xp.sum((alpha * b)[:-1, ...], axis=0) + alpha[-1, ...]) / whole for b in (low, high)]
    return xp.min(ends[0], axis=0), xp.max(ends[1], axis=0)


def relative_error_bound(alpha: Float[Array, "L n_val n_train"]) -> Float[Array, " n_train"]:
    r"""Bound LAI's relative error for aligned layers.

    Implements :eq:`relative-below-one`: :math:`|\mathrm{Ghost} - \mathrm{LAI}| / |\mathrm{LAI}| \le
    1 - \min_z \alpha^{(L)}_{zj} / \sum_l \alpha^{(l)}_{zj} < 1` under A3 and non-expansive alignment
    with rho at most 1, where :math:`\alpha^{(l)} \ge 0` and :math:`\alpha^{(L)} > 0`.

    Parameters
    ----------
    alpha
        Embedding similarities, `(L, n_val, n_train)`, not negative.

    Returns
    -------
    array
        `(n_train,)`.

    Raises
    ------
    TypeError
        If `alpha` is of a wrong kind.
    ValueError
        If `alpha` has a wrong shape.
    """
    xp, (alpha,) = check_layerwise({"alpha": alpha})
    return 1.0 - xp.min(alpha[-1, ...] / xp.sum(alpha, axis=0), axis=0)


def relative_limit(
    alpha: Float[Array, "L n_val n_train"], beta_last: Float[Array, "n_val n_train"]
) -> Float[Array, " n_train"]:
    r"""Compute where LAI's relative error goes as rho vanishes: not to 0.

    Implements :eq:`relative-limit`: :math:`|1 - \sum_z \beta^{(L)} \alpha^{(L)} / \sum_z \beta^{(L)}
    \sum_l \alpha^{(l)}|`, which is :math:`(L-1)/L` for equal embedding similarities, and so grows with
    depth.

    Parameters
    ----------
    alpha
        Embedding similarities, `(L, n_val, n_train)`.
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.

    Returns
    -------
    array
        `(n_train,)`, where LAI's score is not 0.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (alpha, beta) = check_axes({"alpha": (alpha, ("L", Z, J)), "beta_last": (beta_last, (Z, J))})
    last = xp.sum(alpha[-1, ...] * beta, axis=0)
    return xp.abs(1.0 - last / xp.sum(xp.sum(alpha, axis=0) * beta, axis=0))


def mean_ratio(
    alpha: Float[Array, "L n_val n_train"], beta: Float[Array, "L n_val n_train"]
) -> Float[Array, " n_train"]:
    r"""Compute the mean of the lower layers' ratios: LAI is nearer to Ghost than LLI iff it exceeds 1/2.

    Implements :eq:`lai-nearer-than-lli`: :math:`\sum_z \sum_{l<L} \alpha^{(l)} \beta^{(l)} / \sum_z
    \sum_{l<L} \alpha^{(l)} \beta^{(L)}`, for similarities of any sign.

    Parameters
    ----------
    alpha, beta
        Similarities of layer inputs and of output gradients, `(L, n_val, n_train)`.

    Returns
    -------
    array
        `(n_train,)`; 1/2, a tie, where the denominator is 0: LAI and LLI are then equal.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (alpha, beta) = check_layerwise({"alpha": alpha, "beta": beta})
    lower = alpha[:-1, ...]
    ghost = xp.sum(lower * beta[:-1, ...], axis=(0, 1))
    return quotient(xp, ghost, xp.sum(lower * beta[-1:, ...], axis=(0, 1)), 0.5)


def _ratios(
    alpha: Array, beta_last: Array, low: Array, high: Array
) -> tuple[Namespace, Array, Array, Array, Array]:
    """Check, and give `low` and `high` the axes of alpha."""
    axes: dict[str, tuple[Array, tuple[str, ...]]] = {
        "alpha": (alpha, ("L", Z, J)),
        "beta_last": (beta_last, (Z, J)),
    }
    for name, bound in (("low", low), ("high", high)):
        axes[name] = (bound, ("L",) if getattr(bound, "ndim", 0) == 1 else ("L", Z, J))
    xp, (alpha, beta, low, high) = check_axes(axes)
    return xp, alpha, beta, per_layer(low, alpha), per_layer(high, alpha)


def _weighted(xp: Namespace, alpha: Array, beta: Array, ratio: Array) -> Array:
    return xp.sum(xp.sum((alpha * ratio)[:-1, ...], axis=0) * beta, axis=0)
