"""Powers of the rate at which gradient norms decay, the constants of most bounds."""

from typing import Any

from lai_core._theory.arrays import Constant, checked


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

    :eq:`admissible-weights`. Assume: :math:`\rho \ge 0`.

    :eq:`decay-bounds-gain`. Assume: A1 for every gradient; :math:`\E[\Delta A \mid g] = 0`; :math:`S` is the
    second moment of :math:`g`. Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    tuple
        Of the kind of `rho`, except the last, which is 1.0.
    """
    powers: list[Constant] = [1.0]
    for _ in range(check_depth(depth) - 1):
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


def check_depth(depth: Any) -> int:
    """Raise unless `depth` is a positive whole number."""
    if isinstance(depth, bool) or not isinstance(depth, int):
        msg = f"depth: expected a whole number of layers, got {depth!r}"
        raise TypeError(msg)
    if depth < 1:
        msg = f"depth: expected at least one layer, got {depth}"
        raise ValueError(msg)
    return depth
