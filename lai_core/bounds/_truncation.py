"""Ghost from layers down to a random depth, reweighted: without bias, with a known variance."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import checked


@checked
def truncated_ghost(
    kept_terms: Float[Array, "kept ..."], probabilities: Float[Array, " L"], /
) -> Float[Array, "..."]:
    r"""Estimate Ghost without bias from the layers that a random depth kept.

    Implements :eq:`random-truncation`: :math:`\sum_{l \ge K} x^{(l)} / q_l` where the lowest layer K is
    drawn, independently of the terms, with :math:`P(K \le l) = q_l`, :math:`q_L = 1`: layer l is kept with
    probability :math:`q_l`, so that its share in the mean is :math:`x^{(l)}`.

    Assume: :math:`q` is increasing with :math:`q_L = 1`; the terms with :math:`q_l = 0` add up to zero; the
    expectation is over :math:`K`. Arguments: :mod:`lai_core.bounds`.

    Parameters
    ----------
    kept_terms
        The terms :math:`x^{(l)}` of layers K, ..., L, the top one last. A layer with :math:`q_l = 0` is
        never kept, and its term is left out.
    """
    kept, depth = int(kept_terms.shape[0]), int(probabilities.shape[0])
    if kept > depth:
        msg = f"kept_terms: expected at most {depth} layers as in probabilities, got {kept}"
        raise ValueError(msg)
    chances = _as_layers(probabilities[depth - kept :], kept_terms)
    xp = xp_of(kept_terms)
    return xp.sum(quotient(xp, kept_terms, chances, 0.0), axis=0)


@checked
def truncation_variance(
    terms: Float[Array, "L ..."], probabilities: Float[Array, " L"], /
) -> Float[Array, "..."]:
    r"""Compute the variance of `truncated_ghost` over its random depth.

    Implements :eq:`truncation-variance`: :math:`\sum_{l<L} P_l^2 (1/q_l - 1/q_{l+1})` with the partial
    sums :math:`P_l = \sum_{k \le l} x^{(k)}` from the bottom, both over layers with :math:`q > 0`: no other
    layer is ever kept.

    Assume: :math:`0 \le q_1 \le \dots \le q_L = 1`; the variance is over :math:`K`.
    Arguments: :mod:`lai_core.bounds`.

    Returns
    -------
    array
        For each entry of a term, in its units squared.
    """
    # With 1[K <= l] the indicator that layer l is kept, the estimate is sum_l x_l 1[K <= l] / q_l. Since
    # 1[K <= l] 1[K <= k] = 1[K <= min(l, k)], Cov = 1 / q_max(l, k) - 1, and summing x_l x_k against it by
    # parts, with x_l = P_l - P_(l-1), leaves one square for each layer below the top.
    # Layers that are never kept have P = 0, whatever stands for their 1 / q.
    xp = xp_of(terms)
    kept = xp.where(_as_layers(probabilities > 0, terms), terms, xp.zeros_like(terms))
    partial = xp.cumulative_sum(kept, axis=0)[:-1, ...]
    inverse = quotient(xp, xp.ones_like(probabilities), probabilities, 0.0)
    return xp.sum(partial * partial * _as_layers(inverse[:-1] - inverse[1:], partial), axis=0)


@checked
def truncation_probabilities(
    terms: Float[Array, "L ..."], /, *, costs: Sequence[float], share: float
) -> Float[Array, " L"]:
    r"""Find the probabilities of least variance for an expected share of the whole cost.

    Implements :eq:`truncation-variance`: its minimum over :math:`q_1 \le \dots \le q_L = 1` with
    :math:`\sum_l q_l c_l` given is :math:`q_l = \min(1, t \sqrt{s_l})`, s being the slopes of the greatest
    convex minorant of the mean squared partial sums over the cumulative costs, t set by the cost.

    Assume: :math:`0 \le q_1 \le \dots \le q_L = 1`; the variance is over :math:`K`.

    Parameters
    ----------
    terms
        Terms of all layers, the top one last: the variance is summed over their entries.
    costs
        What each layer costs: positive Python numbers, of any unit.
    share
        The expected cost over that of all layers; at least the last layer's, at most 1.

    Returns
    -------
    array
        0 for the layers up to the last one, below the top, at which every entry's partial sum is 0:
        together they add nothing, and the estimate stays unbiased without them.
    """
    xp, depth = xp_of(terms), int(terms.shape[0])
    if len(costs) != depth:
        msg = f"costs: expected one for each of {depth} layers, got {len(costs)}"
        raise ValueError(msg)
    for index, cost in enumerate(costs):
        check_number(f"costs[{index}]", cost, above=0.0)
    prices = [float(cost) for cost in costs]
    # At the last layer's own share the others would never be evaluated, and what they add up to be missed.
    check_number("share", share, above=prices[-1] / sum(prices) if depth > 1 else 0.0, at_most=1.0)
    # The variance is sum_{l<L} (P_l^2 - P_(l-1)^2) / q_l less a constant. Were the q free, its minimum at a
    # given cost would have q_l^2 proportional to (P_l^2 - P_(l-1)^2) / c_l, the slope of P^2 over the
    # cumulative cost. As q may not decrease, neighbours whose slopes would share one q: the slopes are
    # those of the greatest convex minorant.
    partial = xp.reshape(xp.cumulative_sum(terms, axis=0), (depth, -1))
    squares = xp.mean(partial * partial, axis=1)
    roots = [slope**0.5 for slope in _minorant_slopes(xp, squares, prices)]
    one = xp.ones_like(squares[-1:])
    if not roots:
        return one
    scale = _scale(xp, roots, prices, float(share) * sum(prices))
    return xp.concat([*(xp.minimum(one, scale * root) for root in roots), one])


def _minorant_slopes(xp: Namespace, squares: Array, prices: list[float]) -> list[Array]:
    """Return the slopes below the top layer: the max over starts of the min over ends of chords."""
    slopes = []
    for layer in range(len(prices) - 1):
        starts = []
        for start in range(layer + 1):
            before = squares[start - 1 : start] if start else xp.zeros_like(squares[:1])
            chords = [
                (squares[end : end + 1] - before) / sum(prices[start : end + 1])
                for end in range(layer, len(prices) - 1)
            ]
            starts.append(xp.min(xp.stack(chords), axis=0))
        slopes.append(xp.max(xp.stack(starts), axis=0))
    return slopes


def _scale(xp: Namespace, roots: list[Array], prices: list[float], budget: float) -> Array:
    """Return t with sum_{l<L} c_l min(1, t root_l) + c_L = budget."""
    # Roots do not decrease, so that the layers with q = 1 are the top ones. With `free` layers below them,
    # t sum_{l <= free} c_l root_l = budget - sum_{l > free} c_l. A wrong number overstates what a t costs,
    # and so gives a smaller t than the right one.
    scales = []
    for free in range(1, len(roots) + 1):
        cost = sum(price * root for price, root in zip(prices[:free], roots[:free], strict=True))
        left = xp.full_like(roots[0], budget - sum(prices[free:]))
        scales.append(quotient(xp, left, cost, 0.0))
    return xp.max(xp.stack(scales), axis=0)


def _as_layers(values: Array, like: Array) -> Array:
    """Give one number for each layer as many axes as `like` has."""
    return xp_of(values).reshape(values, (values.shape[0],) + (1,) * (like.ndim - 1))
