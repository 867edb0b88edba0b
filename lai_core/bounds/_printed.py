r"""The appendix "LAI is an approximation of Ghost": its gap and bounds, as printed.

Notation: L layers; :math:`\alpha^{(l)}_{zj}` and :math:`\beta^{(l)}_{zj}` are the similarities of
layer inputs and of output gradients (`lai_core.assumptions`); rho, C_a and alpha_bar are the
constants of the assumptions (`lai_core.assumptions`). Scores are positive for samples that help, so
that Ghost's score is :math:`\sum_z\sum_l\alpha^{(l)}\beta^{(l)}`, LAI's
:math:`\sum_z(\sum_l\alpha^{(l)})\beta^{(L)}` and LLI's :math:`\sum_z\alpha^{(L)}\beta^{(L)}`; the
printed influences are their negatives, and absolute gaps the same.

Two of the printed bounds do not hold for LAI, and are named so; what holds in their place is in
`lai_core.bounds` and `lai_core.bounds`. Sums over powers of rho are computed as sums:
they are right for rho = 1 and above, too.
"""

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.layerwise import (
    Constant,
    J,
    Z,
    check_axes,
    check_constant,
    check_depth,
    check_layerwise,
    decay_powers,
    last_layer,
    norm_products,
    power_sum,
)


def printed_ghost_influence(
    alpha: Float[Array, "L n_val n_train"], beta: Float[Array, "L n_val n_train"]
) -> Float[Array, " n_train"]:
    r"""Compute Ghost with the printed minus: negative helps.

    Implements :eq:`app-lai-defs`: :math:`-\sum_z \sum_l \alpha^{(l)}_{zj} \beta^{(l)}_{zj}`.

    Parameters
    ----------
    alpha, beta
        Similarities of layer inputs and of output gradients, `(L, n_val, n_train)`.

    Returns
    -------
    array
        `(n_train,)`, the negative of Ghost's scores.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (alpha, beta) = check_layerwise({"alpha": alpha, "beta": beta})
    return -xp.sum(alpha * beta, axis=(0, 1))


def printed_lai_influence(
    alpha: Float[Array, "L n_val n_train"], beta: Float[Array, "L n_val n_train"]
) -> Float[Array, " n_train"]:
    r"""Compute LAI with the printed minus: negative helps.

    Implements :eq:`app-lai-defs`: :math:`-\sum_z (\sum_l \alpha^{(l)}_{zj}) \beta^{(L)}_{zj}`.

    Parameters
    ----------
    alpha, beta
        Similarities of layer inputs and of output gradients, `(L, n_val, n_train)`; of beta only the
        last layer is looked at.

    Returns
    -------
    array
        `(n_train,)`, the negative of LAI's scores.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    xp, (alpha, beta) = check_layerwise({"alpha": alpha, "beta": beta})
    return -xp.sum(xp.sum(alpha, axis=0) * beta[-1, ...], axis=0)


def gap(
    alpha: Float[Array, "L n_val n_train"], beta: Float[Array, "L n_val n_train"]
) -> Float[Array, "n_val n_train"]:
    r"""Compute what Ghost has and LAI has not, pair by pair.

    Implements :eq:`app-epsilon-pair`:
    :math:`\zeta_{zj} = \sum_{l<L} \alpha^{(l)}_{zj} (\beta^{(l)}_{zj} - \beta^{(L)}_{zj})`.

    Parameters
    ----------
    alpha, beta
        Similarities of layer inputs and of output gradients, `(L, n_val, n_train)`.

    Returns
    -------
    array
        `(n_val, n_train)`: Ghost's kernel minus LAI's.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.bounds import gap
    >>> alpha, beta = np.ones((2, 1, 1)), np.array([[[0.25]], [[1.0]]])
    >>> gap(alpha, beta)
    array([[-0.75]])
    """
    xp, (alpha, beta) = check_layerwise({"alpha": alpha, "beta": beta})
    return xp.sum(alpha * (beta - beta[-1:, ...]), axis=0)


def pair_gap_bound(beta: Float[Array, "L n_val n_train"], *, C_a: Constant) -> Float[Array, "n_val n_train"]:
    r"""Bound one pair's gap by its gradient similarities.

    Implements :eq:`zeta-bound`: :math:`|\zeta| \le C_a^2\sum_{l<L} (|\beta^{(L)}| + |\beta^{(l)}|)`
    under A2. The paper assumes A3 and omits the bars.

    Parameters
    ----------
    beta
        Gradient similarities, `(L, n_val, n_train)`.
    C_a
        The largest norm of a layer's input.

    Returns
    -------
    array
        `(n_val, n_train)`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a constant is negative.
    """
    xp, (beta,) = check_layerwise({"beta": beta})
    C_a = check_constant("C_a", C_a, beta)
    size = xp.abs(beta)
    return C_a * C_a * xp.sum(size[:-1, ...] + size[-1:, ...], axis=0)


def norm_product_bound(
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    *,
    rho: Constant,
    depth: int,
) -> Float[Array, "L n_val n_train"]:
    r"""Bound every layer's gradient similarity by decayed norms.

    Implements :eq:`norm-product-bound`:
    :math:`|\beta^{(l)}_{zj}| \le \rho^{2(L-l)} \|g^{(L)}_z\| \|g^{(L)}_j\|` under A1.

    Parameters
    ----------
    validation_norms, training_norms
        Norms of the last layer's output gradients, `(n_val,)` and `(n_train,)`.
    rho
        The rate of A1.
    depth
        The number of layers L.

    Returns
    -------
    array
        `(L, n_val, n_train)`, the bottom layer first.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a constant is negative.
    """
    xp, products = norm_products(validation_norms, training_norms)
    powers = decay_powers(check_constant("rho", rho, products), check_depth(depth))
    return xp.stack([power * products for power in powers])


def geometric_sum(rho: Constant, depth: int) -> Constant:
    r"""Sum :math:`\rho^{2k}` over k = 1, ..., L - 1.

    Parameters
    ----------
    rho
        The rate of A1.
    depth
        The number of layers L.

    Returns
    -------
    float or array
        Of the kind of `rho`; 0 for one layer.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If `rho` is negative or `depth` not positive.

    Examples
    --------
    >>> from lai_core.bounds import geometric_sum
    >>> geometric_sum(0.5, 3), geometric_sum(1.0, 3)
    (0.3125, 2.0)
    """
    return power_sum(rho, depth)


def conservative_bound(
    beta_last: Float[Array, "n_val n_train"],
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Float[Array, " n_train"]:
    r"""Bound the gap between Ghost and LAI under A1, A2 and A3.

    Implements :eq:`app-conservative`: :math:`C_a^2 \sum_z [(L-1) \beta^{(L)}_{zj} + \|g^{(L)}_z\|
    \|g^{(L)}_j\| \sum_{k=1}^{L-1} \rho^{2k}]`.

    Parameters
    ----------
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
    validation_norms, training_norms
        Norms of the last layer's output gradients, `(n_val,)` and `(n_train,)`.
    rho, C_a
        The constants of A1 and A2.
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
    xp, beta, products = last_layer(beta_last, validation_norms, training_norms)
    C_a, geometric = check_constant("C_a", C_a, beta), power_sum(rho, depth, beta)
    return C_a * C_a * xp.sum((depth - 1) * beta + products * geometric, axis=0)


def relative_conservative_bound(
    beta_last: Float[Array, "n_val n_train"],
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    *,
    rho: Constant,
    C_a: Constant,
    alpha_bar: Constant,
    depth: int,
) -> Float[Array, " n_train"]:
    r"""Bound LAI's relative error under A1, A2, A3 and what the paper leaves unsaid.

    Implements :eq:`app-relative-conservative`: :math:`\frac{C_a^2}{\bar\alpha} [(L-1) +
    \frac{\sum_z \|g^{(L)}_z\| \|g^{(L)}_j\|}{\sum_z \beta^{(L)}_{zj}} \sum_{k=1}^{L-1}\rho^{2k}]`.
    It needs, beside the assumptions, that the lower layers' embedding similarities sum to no less than
    0, that :math:`0 < \bar\alpha \le \alpha^{(L)}_{zj}`, and :math:`\sum_z \beta^{(L)}_{zj} > 0`.

    Parameters
    ----------
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
    validation_norms, training_norms
        Norms of the last layer's output gradients, `(n_val,)` and `(n_train,)`.
    rho, C_a, alpha_bar
        The constants of A1, A2 and of the last layer's embeddings.
    depth
        The number of layers L.

    Returns
    -------
    array
        `(n_train,)`: at least the gap between Ghost and LAI divided by LAI; never below L - 1, where
        aligned layers keep the error below 1 (`lai_core.bounds.relative_error_bound`).

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a constant is negative.
    """
    xp, beta, products = last_layer(beta_last, validation_norms, training_norms)
    C_a, geometric = check_constant("C_a", C_a, beta), power_sum(rho, depth, beta)
    spread = xp.sum(products, axis=0) / xp.sum(beta, axis=0)
    return (C_a * C_a / check_constant("alpha_bar", alpha_bar, beta)) * ((depth - 1) + spread * geometric)


def lai_lower_bound(
    beta_last: Float[Array, "n_val n_train"], *, alpha_bar: Constant
) -> Float[Array, " n_train"]:
    r"""Bound the size of LAI's score from below.

    Implements :eq:`lai-lower-bound`: :math:`\bar\alpha \sum_z \beta^{(L)}_{zj}`, under A3, if the lower
    layers' embedding similarities sum to no less than 0 and :math:`\bar\alpha \le \alpha^{(L)}_{zj}`.

    Parameters
    ----------
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
    alpha_bar
        The smallest embedding similarity of the last layer.

    Returns
    -------
    array
        `(n_train,)`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or the constant is negative.
    """
    xp, (beta,) = check_axes({"beta_last": (beta_last, (Z, J))})
    return check_constant("alpha_bar", alpha_bar, beta) * xp.sum(beta, axis=0)


def geometric_bound_as_printed(
    beta_last: Float[Array, "n_val n_train"], *, rho: Constant, C_a: Constant, depth: int
) -> Float[Array, " n_train"]:
    r"""Compute the right-hand side printed for the gap between Ghost and LAI, which it does not bound.

    Implements :eq:`app-abs-gap`: :math:`C_a^2 (\sum_z \beta^{(L)}_{zj}) \sum_{k=1}^{L-1} \rho^{2k}`. It
    bounds the gap between Ghost and LLI (`lai_core.bounds.lli_gap_bound`). LAI's is in
    `lai_core.bounds.lai_gap_range`.

    Parameters
    ----------
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
    rho, C_a
        The constants of A1 and A2.
    depth
        The number of layers L.

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
    xp, (beta,) = check_axes({"beta_last": (beta_last, (Z, J))})
    C_a = check_constant("C_a", C_a, beta)
    return C_a * C_a * xp.sum(beta, axis=0) * power_sum(rho, depth, beta)


def relative_bound_as_printed(*, rho: Constant, C_a: Constant, alpha_bar: Constant, depth: int) -> Constant:
    r"""Compute the right-hand side printed for LAI's relative error, which it does not bound.

    Implements :eq:`app-rel-gap`: :math:`\frac{C_a^2}{\bar\alpha} \sum_{k=1}^{L-1} \rho^{2k}`. It bounds
    LLI's relative error (`lai_core.bounds.lli_relative_bound`); LAI's does not vanish with rho
    (`lai_core.bounds.relative_limit`).

    Parameters
    ----------
    rho, C_a, alpha_bar
        The constants of A1, A2 and of the last layer's embeddings.
    depth
        The number of layers L.

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
    """
    C_a, alpha_bar = check_constant("C_a", C_a), check_constant("alpha_bar", alpha_bar)
    return C_a * C_a / alpha_bar * geometric_sum(rho, depth)
