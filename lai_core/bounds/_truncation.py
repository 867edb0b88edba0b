r"""Ghost from its top layers alone: a bound on the rest, and an unbiased estimate of the whole.

Backpropagation runs from the top: stopping it early saves its cost and misses the bottom layers.
Either the missing part is bounded by forward quantities (a certificate), or the depth is drawn at
random and what was computed is reweighted (no bias, a known variance).
"""

from collections.abc import Sequence
from math import inf

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import checked


@checked
def layer_factors(
    weight: Float[Array, "d_out d_in"], slopes: Float[Array, "n d_in"], /
) -> Float[Array, " n"]:
    r"""Bound by how much one step of backpropagation can stretch each sample's gradient.

    Implements :eq:`top-layer-certificate`: :math:`f(x) = \min(\|W\|_2 \max_i |\phi'(s_{x,i})|,\,
    (\sum_i \phi'(s_{x,i})^2 \|W_{:,i}\|^2)^{1/2})`, the smaller of two bounds on the norm of the matrix in
    :math:`g^{(t)} = \phi'(s^{(t)}) \circ W^\top g^{(t+1)}`. The slopes are the sample's own, so that it holds
    for every activation function, those with slopes above 1 (GELU, SiLU) included.

    Parameters
    ----------
    weight
        The matrix of layer t + 1.
    slopes
        Slopes of the activation function at the outputs of layer t.

    Returns
    -------
    array
        No gradient grows by more from layer t + 1 to layer t.
    """
    xp = xp_of(weight)
    spectral = xp.max(xp.linalg.svdvals(weight)) * xp.max(xp.abs(slopes), axis=-1)
    columns = xp.sum(weight * weight, axis=0)
    frobenius = xp.sqrt(xp.sum(slopes * slopes * columns, axis=-1))
    # The sums have d_in d_out terms, one after the other at worst; a singular value is off by a few roundings
    # of the largest one for each row and column.
    entries = int(weight.shape[0]) * int(weight.shape[1])
    return rounded_up(xp, xp.minimum(frobenius, spectral), 8 * entries + 8)


@checked
def layer_norm_factor(gain: Float[Array, " d"], deviation: Float[Array, " n"], /) -> Float[Array, " n"]:
    r"""Bound by how much the backward step of a LayerNorm can stretch each sample's gradient.

    Implements :eq:`block-factors`: :math:`\max_i |\gamma_i| / \sigma(x)`. Removing the mean and the part
    along the normalised input only shortens a gradient.

    Parameters
    ----------
    gain
        The LayerNorm's gain.
    deviation
        What it divided each sample by, the square root of variance plus epsilon.

    Returns
    -------
    array
        Rounded up.
    """
    xp = xp_of(gain)
    return rounded_up(xp, xp.max(xp.abs(gain)) / deviation, 1)


@checked
def residual_factor(branch: Float[Array, " n"], /) -> Float[Array, " n"]:
    r"""Bound by how much the backward step of a residual block can stretch each sample's gradient.

    Implements :eq:`block-factors`: :math:`1 + F` for :math:`h + f(h)`, F being the product of the factors
    along the branch f.

    Parameters
    ----------
    branch
        F.

    Returns
    -------
    array
        Rounded up.
    """
    return rounded_up(xp_of(branch), 1.0 + branch, 1)


@checked
def top_layers_bound(
    alpha: Float[Array, "below n_val n_train"],
    validation_factors: Float[Array, "below n_val"],
    training_factors: Float[Array, "below n_train"],
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    /,
) -> Float[Array, " n_train"]:
    r"""Bound what the layers below k of a chain contribute to Ghost's score, rounded up.

    Implements :eq:`top-layer-certificate`: :math:`\sum_z \|g^{(k)}_z\| \|g^{(k)}_j\| \sum_{l<k}
    |\alpha^{(l)}_{zj}| \prod_{t=l}^{k-1} f_t(z) f_t(j)`. A score from layers k, ..., L that exceeds it in
    absolute value has the right sign; two that differ by more than both their bounds have the right
    order. k = L certifies LLI.

    Parameters
    ----------
    alpha
        Embedding similarities of the k - 1 layers below k, the bottom one first.
    validation_factors, training_factors
        `layer_factors` of the steps from layer t + 1 to t, t = 1, ..., k - 1.
    validation_norms, training_norms
        Norms of the output gradients of layer k.

    Returns
    -------
    array
        At least the absolute difference between Ghost's score and its top layers', of the arguments as they
        are: what is rounded here is rounded up.
    """
    xp = xp_of(alpha)
    # From the top down, the products of factors so far times the norms bound the gradients of layer l.
    below, norms = int(alpha.shape[0]), (validation_norms, training_norms)
    reached: list[tuple[Array, Array]] = []
    for layer in range(below - 1, -1, -1):
        norms = norms[0] * validation_factors[layer, ...], norms[1] * training_factors[layer, ...]
        reached.insert(0, norms)
    bounds = (rounded_up(xp, xp.stack(side), below) for side in zip(*reached, strict=True))
    return _missing(xp, alpha, *bounds)


@checked
def missing_layers_bound(
    alpha: Float[Array, "missing n_val n_train"],
    validation_norms: Float[Array, "missing n_val"],
    training_norms: Float[Array, "missing n_train"],
    /,
) -> Float[Array, " n_train"]:
    r"""Bound what layers contribute to Ghost's score whose gradients have known bounds alone.

    Implements :eq:`block-factors`: :math:`\sum_z \sum_l |\alpha^{(l)}_{zj}|\, b_l(z)\, b_l(j)`. Like
    `top_layers_bound`, for networks that are no chain: there b follows the graph, a block at a time.

    Parameters
    ----------
    alpha
        Embedding similarities of the layers that are missing.
    validation_norms, training_norms
        At least the norms of their output gradients, b.

    Returns
    -------
    array
        At least the absolute value of these layers' part of Ghost's score; rounded up.
    """
    return _missing(xp_of(alpha), alpha, validation_norms, training_norms)


def _missing(xp: Namespace, alpha: Array, norms_z: Array, norms_j: Array) -> Array:
    """Sum absolute products over layers and validation samples, rounded up."""
    terms = xp.abs(alpha) * norms_z[:, :, None] * norms_j[:, None, :]
    return rounded_up(xp, xp.sum(terms, axis=(0, 1)), 2 + int(alpha.shape[0]) * int(alpha.shape[1]))


def rounded_up(xp: Namespace, value: Array, operations: int) -> Array:
    """Return at least what so many operations on positive numbers would give without rounding."""
    # Each rounds by a factor of at least 1 - u, u = eps / 2: with k of them the exact value is at most
    # value / (1 - u)^k <= value (1 + k eps) as long as k eps < 1. The next number makes up for this product's
    # own rounding. Numbers too small to be normal are outside of what this says.
    return xp.nextafter(
        value * (1.0 + operations * float(xp.finfo(value.dtype).eps)), xp.full_like(value, inf)
    )


@checked
def truncated_ghost(
    kept_terms: Float[Array, "kept ..."], probabilities: Float[Array, " L"], /
) -> Float[Array, "..."]:
    r"""Estimate Ghost without bias from the layers that a random depth kept.

    Implements :eq:`random-truncation`: :math:`\sum_{l \ge K} x^{(l)} / q_l` where the lowest layer K is
    drawn, independently of the terms, with :math:`P(K \le l) = q_l`, :math:`q_L = 1`: layer l is kept with
    probability :math:`q_l`, so that its share in the mean is :math:`x^{(l)}`.

    Parameters
    ----------
    kept_terms
        The terms :math:`x^{(l)}` of layers K, ..., L, the top one last.
    probabilities
        q of all layers, not decreasing, the last one 1.

    Returns
    -------
    array
        The estimate of the sum of all L terms.

    Raises
    ------
    ValueError
        If there are more terms than probabilities.
    """
    kept, depth = int(kept_terms.shape[0]), int(probabilities.shape[0])
    if kept > depth:
        msg = f"kept_terms: expected at most {depth} layers as in probabilities, got {kept}"
        raise ValueError(msg)
    chances = _as_layers(probabilities[depth - kept :], kept_terms)
    return xp_of(kept_terms).sum(kept_terms / chances, axis=0)


@checked
def truncation_variance(
    terms: Float[Array, "L ..."], probabilities: Float[Array, " L"], /
) -> Float[Array, "..."]:
    r"""Compute the variance of `truncated_ghost` over its random depth.

    Implements :eq:`truncation-variance`: :math:`\sum_{l<L} P_l^2 (1/q_l - 1/q_{l+1})` with the partial
    sums :math:`P_l = \sum_{k \le l} x^{(k)}` from the bottom.

    Parameters
    ----------
    terms
        The terms of all layers, the top one last.
    probabilities
        q of all layers, not decreasing, the last one 1.

    Returns
    -------
    array
        For each entry of a term, in its units squared.
    """
    # With 1[K <= l] the indicator that layer l is kept, the estimate is sum_l x_l 1[K <= l] / q_l. Since
    # 1[K <= l] 1[K <= k] = 1[K <= min(l, k)], Cov = 1 / q_max(l, k) - 1, and summing x_l x_k against it by
    # parts, with x_l = P_l - P_(l-1), leaves one square for each layer below the top.
    xp = xp_of(terms)
    partial = xp.cumulative_sum(terms, axis=0)[:-1, ...]
    steps = 1.0 / probabilities[:-1] - 1.0 / probabilities[1:]
    return xp.sum(partial * partial * _as_layers(steps, partial), axis=0)


@checked
def truncation_probabilities(
    terms: Float[Array, "L ..."], /, *, costs: Sequence[float], share: float
) -> Float[Array, " L"]:
    r"""Find the probabilities of least variance for an expected share of the whole cost.

    Implements :eq:`truncation-variance`: its minimum over :math:`q_1 \le \dots \le q_L = 1` with
    :math:`\sum_l q_l c_l` given is :math:`q_l = \min(1, t \sqrt{s_l})`, s being the slopes of the greatest
    convex minorant of the mean squared partial sums over the cumulative costs, t set by the cost.

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
        0 only for layers whose partial sums all vanish.

    Raises
    ------
    ValueError
        If there is not one cost for each layer, or `share` is out of reach.
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
