r"""Bounds that hold where the appendix "LAI is an approximation of Ghost" prints others.

The printed geometric bounds are bounds for LLI; alignment is needed in absolute value only, or not
at all. Notation and units are those of `lai_core.bounds`; what is sharp in terms of the decay of
similarities is in `lai_core.bounds`. Every bound here holds for rho = 1 and above, too.
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
    decay_powers,
    last_layer,
    norm_products,
    power_sum,
)


def sharp_conservative_bound(
    beta_last: Float[Array, "n_val n_train"],
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Float[Array, " n_train"]:
    r"""Bound the gap between Ghost and LAI under A1, A2 and A3 as tightly as these allow.

    Implements :eq:`conservative-sharp`: :math:`C_a^2 \sum_z \sum_{l<L} \max(\beta^{(L)}_{zj},\,
    \rho^{2(L-l)} \|g^{(L)}_z\| \|g^{(L)}_j\| - \beta^{(L)}_{zj})`, never above the printed bound.

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
    C_a = check_constant("C_a", C_a, beta)
    powers = decay_powers(check_constant("rho", rho, beta), check_depth(depth))[:-1]
    total = xp.zeros_like(beta)
    for power in powers:
        total = total + xp.maximum(beta, power * products - beta)
    return C_a * C_a * xp.sum(total, axis=0)


def aligned_similarity_bound(
    beta_last: Float[Array, "n_val n_train"], *, rho: Constant, depth: int
) -> Float[Array, "L n_val n_train"]:
    r"""Bound every layer's gradient similarity by the last layer's.

    Implements :eq:`alignment-decay`: :math:`|\beta^{(l)}_{zj}| \le \rho^{2(L-l)} |\beta^{(L)}_{zj}|` under
    A1, if no lower layer's cosine exceeds the last one's in absolute value. The paper has no bars
    on the cosines (:eq:`alignment-implies-decay`), and needs A3 at the last layer in their place.

    Parameters
    ----------
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
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
    xp, (beta,) = check_axes({"beta_last": (beta_last, (Z, J))})
    powers = decay_powers(check_constant("rho", rho, beta), check_depth(depth))
    return xp.stack([power * xp.abs(beta) for power in powers])


def lli_gap_bound(
    beta_last: Float[Array, "n_val n_train"], *, rho: Constant, C_a: Constant, depth: int
) -> Float[Array, " n_train"]:
    r"""Bound the gap between Ghost and LLI.

    Implements :eq:`lli-gap`: :math:`|\mathrm{Ghost} - \mathrm{LLI}| \le C_a^2 \sum_z |\beta^{(L)}_{zj}|
    \sum_{k=1}^{L-1} \rho^{2k}` under A1 and A2, if no lower layer's cosine exceeds the last one's in
    absolute value. Under A3 it is the right-hand side that the paper prints for LAI.

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
    return C_a * C_a * xp.sum(xp.abs(beta), axis=0) * power_sum(rho, depth, beta)


def lli_relative_bound(*, rho: Constant, C_a: Constant, alpha_bar: Constant, depth: int) -> Constant:
    r"""Bound the gap between Ghost and LLI, divided by LLI.

    Implements :eq:`lli-relative-gap`: :math:`\frac{C_a^2}{\bar\alpha} \sum_{k=1}^{L-1} \rho^{2k}` under
    A1, A2, A3 and non-expansive alignment, with :math:`0 < \bar\alpha \le \alpha^{(L)}_{zj}` and
    :math:`\sum_z \beta^{(L)}_{zj} > 0`.

    Parameters
    ----------
    rho, C_a, alpha_bar
        The constants of A1, A2 and of the last layer's embeddings.
    depth
        The number of layers L.

    Returns
    -------
    float or array
        Of the kind of the constants; of order rho squared.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a constant is negative.
    """
    C_a, alpha_bar = check_constant("C_a", C_a), check_constant("alpha_bar", alpha_bar)
    return C_a * C_a / alpha_bar * power_sum(rho, depth)


def lli_gap_bound_without_alignment(
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Float[Array, " n_train"]:
    r"""Bound the gap between Ghost and LLI under A1 and A2 alone.

    Implements :eq:`gap-without-alignment`: :math:`C_a^2 \|g^{(L)}_j\| \sum_z \|g^{(L)}_z\|
    \sum_{k=1}^{L-1} \rho^{2k}`.

    Parameters
    ----------
    validation_norms, training_norms
        Norms of the last layer's output gradients, `(n_val,)` and `(n_train,)`.
    rho, C_a
        The constants of A1 and A2; rho may be 1 and more.
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
    xp, products = norm_products(validation_norms, training_norms)
    C_a = check_constant("C_a", C_a, products)
    return C_a * C_a * xp.sum(products, axis=0) * power_sum(rho, depth, products)


def lai_gap_bound_without_alignment(
    beta_last: Float[Array, "n_val n_train"],
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    *,
    rho: Constant,
    C_a: Constant,
    depth: int,
) -> Float[Array, " n_train"]:
    r"""Bound the gap between Ghost and LAI under A1 and A2 alone.

    Implements :eq:`gap-without-alignment`: :math:`C_a^2 \sum_z [(L-1) |\beta^{(L)}_{zj}| +
    \|g^{(L)}_z\| \|g^{(L)}_j\| \sum_{k=1}^{L-1} \rho^{2k}]`.

    Parameters
    ----------
    beta_last
        Gradient similarities of the last layer, `(n_val, n_train)`.
    validation_norms, training_norms
        Norms of the last layer's output gradients, `(n_val,)` and `(n_train,)`.
    rho, C_a
        The constants of A1 and A2; rho may be 1 and more.
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
    return C_a * C_a * xp.sum((depth - 1) * xp.abs(beta) + products * geometric, axis=0)


def gain_ceiling(rho: Constant, depth: int) -> tuple[Constant, ...]:
    r"""Bound the gains c_l of the paper's noise model that A1 leaves room for.

    Implements :eq:`decay-bounds-gain`: for gradients of second moment S, A1 and an unbiased backward
    operator of mean :math:`\bar A` imply :math:`\mathrm{tr}(\bar A^\top \bar A S) \le \rho^{2(L-l)}
    \mathrm{tr}\,S`; for isotropic S the gain is at most :math:`\rho^{2(L-l)}`. Small rho and gains
    near 1 exclude each other.

    Parameters
    ----------
    rho
        The rate of A1.
    depth
        The number of layers L.

    Returns
    -------
    tuple
        :math:`\rho^{2(L-l)}` for l = 1, ..., L, of the kind of `rho`, except the last, which is 1.0.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If `rho` is negative or `depth` not positive.
    """
    return tuple(decay_powers(check_constant("rho", rho), check_depth(depth)))
