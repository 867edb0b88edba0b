"""Arrays with one entry for every layer, validation and training sample, and constants beside them."""

from collections.abc import Mapping
from typing import Any

from lai_core._engine.checks import check_floating, check_not_empty, check_number
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, is_array, namespace_of

Constant = Any
"""A Python number, or an array without axes, which may be traced by a compiler."""

Z, J = "n_val", "n_train"


def check_axes(named: Mapping[str, tuple[Array, tuple[str, ...]]]) -> tuple[Namespace, list[Array]]:
    """Raise unless arrays have the named axes, of equal length where equally named.

    Returns
    -------
    tuple
        The namespace, and the arrays in one accumulation type, in order.

    Raises
    ------
    ValueError
        If a shape does not fit.
    """
    xp = namespace_of({name: array for name, (array, _) in named.items()})
    lengths: dict[str, tuple[int, str]] = {}
    for name, (array, axes) in named.items():
        check_floating(name, array, xp)
        if array.ndim != len(axes):
            msg = f"{name}: expected shape ({', '.join(axes)}), got {tuple(array.shape)}"
            raise ValueError(msg)
        check_not_empty(name, array)
        for axis, length in zip(axes, array.shape, strict=True):
            expected, source = lengths.setdefault(axis, (int(length), name))
            if length != expected:
                msg = f"{name}: expected {axis} = {expected} as in {source}, got shape {tuple(array.shape)}"
                raise ValueError(msg)
    dtype = accumulation_dtype(xp, *(array.dtype for array, _ in named.values()))
    return xp, [cast(xp, array, dtype) for array, _ in named.values()]


def check_layerwise(named: Mapping[str, Array]) -> tuple[Namespace, list[Array]]:
    """Raise unless all arrays are `(L, n_val, n_train)`; returned as `check_axes` does."""
    return check_axes({name: (array, ("L", Z, J)) for name, array in named.items()})


def check_constant(name: str, value: Constant, like: Array | None = None) -> Constant:
    """Raise unless `value` is a Python number, not negative, or an array without axes.

    Returns
    -------
    float or array
        The number, or the array in the type of `like`.

    Raises
    ------
    ValueError
        If it is negative or has axes.
    """
    if not is_array(value):
        check_number(name, value, at_least=0.0)
        return float(value)
    xp = namespace_of({name: value} if like is None else {"arrays": like, name: value})
    check_floating(name, value, xp)
    if value.ndim != 0:
        msg = f"{name}: expected a number or an array without axes, got shape {tuple(value.shape)}"
        raise ValueError(msg)
    return value if like is None else cast(xp, value, like.dtype)


def check_depth(depth: Any) -> int:
    """Raise unless `depth` is a positive whole number.

    Returns
    -------
    int
        The depth.

    Raises
    ------
    TypeError
        If it is not a whole number.
    ValueError
        If it is not positive.
    """
    if isinstance(depth, bool) or not isinstance(depth, int):
        msg = f"depth: expected a whole number of layers, got {depth!r}"
        raise TypeError(msg)
    if depth < 1:
        msg = f"depth: expected at least one layer, got {depth}"
        raise ValueError(msg)
    return depth


def decay_powers(rho: Constant, depth: int) -> list[Constant]:
    """Return rho^(2(L-l)) for l = 1, ..., L: from the bottom, 1.0 last."""
    powers: list[Constant] = [1.0]
    for _ in range(depth - 1):
        powers.insert(0, powers[0] * rho * rho)
    return powers


def per_layer(value: Array, like: Array) -> Array:
    """Return `(L,)` as `(L, 1, 1)`, so that it multiplies `like`; `(L, n_val, n_train)` as it is."""
    xp = namespace_of({"arrays": like, "value": value})
    value = cast(xp, value, like.dtype)
    return xp.reshape(value, (value.shape[0], 1, 1)) if value.ndim == 1 else value


def quotient(xp: Namespace, numerator: Array, denominator: Array, otherwise: float) -> Array:
    """Divide, with `otherwise` where the denominator is 0; differentiable on both branches."""
    zero = denominator == 0
    safe = xp.where(zero, xp.ones_like(denominator), denominator)
    return xp.where(zero, xp.full_like(numerator, otherwise), numerator / safe)


def power_sum(rho: Constant, depth: int, like: Array | None = None) -> Constant:
    """Return the sum of rho^(2k) over k = 1, ..., L - 1, after checking both."""
    rho = check_constant("rho", rho, like)
    return sum(decay_powers(rho, check_depth(depth))[:-1], 0.0 * rho)


def norm_products(validation_norms: Array, training_norms: Array) -> tuple[Namespace, Array]:
    """Return the products of the norms of every pair, `(n_val, n_train)`, after checking both."""
    named = {"validation_norms": (validation_norms, (Z,)), "training_norms": (training_norms, (J,))}
    xp, (left, right) = check_axes(named)
    return xp, left[:, None] * right[None, :]


def last_layer(
    beta_last: Array, validation_norms: Array, training_norms: Array
) -> tuple[Namespace, Array, Array]:
    """Return the last layer's similarities and products of norms, after checking all three."""
    named = {
        "beta_last": (beta_last, (Z, J)),
        "validation_norms": (validation_norms, (Z,)),
        "training_norms": (training_norms, (J,)),
    }
    xp, (beta, left, right) = check_axes(named)
    return xp, beta, left[:, None] * right[None, :]
