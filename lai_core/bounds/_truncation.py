r"""Ghost from its top layers alone: a bound on the rest, and an unbiased estimate of the whole.

Backpropagation runs from the top: stopping it early saves its cost and misses the bottom layers.
Either the missing part is bounded by forward quantities (a certificate), or the depth is drawn at
random and what was computed is reweighted (no bias, a known variance).
"""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace, accumulation_dtype, cast, namespace_of
from lai_core._theory.layerwise import Constant, J, Z, check_axes, check_constant, quotient


def layer_factors(
    weight: Float[Array, "d_out d_in"], slopes: Float[Array, "n d_in"], *, lipschitz: Constant = 1.0
) -> Float[Array, " n"]:
    r"""Bound by how much one step of backpropagation can stretch each sample's gradient.

    Implements :eq:`top-layer-certificate`: :math:`f(x) = \min(\|W\|_2\,\mathrm{Lip},\,
    (\sum_i \phi'(s_{x,i})^2 \|W_{:,i}\|^2)^{1/2})`, as :math:`g^{(t)} = \phi'(s^{(t)}) \circ W^\top
    g^{(t+1)}`.

    Parameters
    ----------
    weight
        The matrix of layer t + 1, `(d_out, d_in)`.
    slopes
        Slopes of the activation function at the outputs of layer t, `(n, d_in)`.
    lipschitz
        The largest slope of the activation function.

    Returns
    -------
    array
        `(n,)`: no gradient grows by more from layer t + 1 to layer t.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or the constant is negative.
    """
    named = {"weight": (weight, ("d_out", "d_in")), "slopes": (slopes, ("n", "d_in"))}
    xp, (weight, slopes) = check_axes(named)
    spectral = xp.max(xp.linalg.svdvals(weight)) * check_constant("lipschitz", lipschitz, weight)
    columns = xp.sum(weight * weight, axis=0)
    frobenius = xp.sqrt(xp.sum(slopes * slopes * columns, axis=-1))
    return xp.minimum(frobenius, xp.ones_like(frobenius) * spectral)


def top_layers_bound(
    alpha: Float[Array, "below n_val n_train"],
    validation_factors: Float[Array, "below n_val"],
    training_factors: Float[Array, "below n_train"],
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
) -> Float[Array, " n_train"]:
    r"""Bound what the layers below k contribute to Ghost's score.

    Implements :eq:`top-layer-certificate`: :math:`\sum_z \|g^{(k)}_z\| \|g^{(k)}_j\| \sum_{l<k}
    |\alpha^{(l)}_{zj}| \prod_{t=l}^{k-1} f_t(z) f_t(j)`. A score from layers k, ..., L that exceeds it in
    absolute value has the right sign; two that differ by more than both their bounds have the right
    order. k = L certifies LLI.

    Parameters
    ----------
    alpha
        Embedding similarities of the layers below k, `(k-1, n_val, n_train)`, the bottom one first.
    validation_factors, training_factors
        `layer_factors` of the steps from layer t + 1 to t, t = 1, ..., k - 1: `(k-1, n_val)` and
        `(k-1, n_train)`.
    validation_norms, training_norms
        Norms of the output gradients of layer k, `(n_val,)` and `(n_train,)`.

    Returns
    -------
    array
        `(n_train,)`: at least the absolute difference between Ghost's score and its top layers'.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit.
    """
    named = {
        "alpha": (alpha, ("below", Z, J)),
        "validation_factors": (validation_factors, ("below", Z)),
        "training_factors": (training_factors, ("below", J)),
        "validation_norms": (validation_norms, (Z,)),
        "training_norms": (training_norms, (J,)),
    }
    xp, (alpha, f_z, f_j, of_z, of_j) = check_axes(named)
    total = xp.zeros_like(alpha[0, ...])
    for layer in range(int(alpha.shape[0]) - 1, -1, -1):
        of_z, of_j = of_z * f_z[layer, ...], of_j * f_j[layer, ...]
        total = total + xp.abs(alpha[layer, ...]) * of_z[:, None] * of_j[None, :]
    return xp.sum(total, axis=0)


def truncated_ghost(kept_terms: Float[Array, "kept ..."], probabilities: Float[Array, " L"]) -> Array:
    r"""Estimate Ghost without bias from the layers that a random depth kept.

    Implements :eq:`random-truncation`: :math:`\sum_{l \ge K} x^{(l)} / q_l` where the lowest layer K is
    drawn, independently of the terms, with :math:`P(K \le l) = q_l`, :math:`q_L = 1`.

    Parameters
    ----------
    kept_terms
        The terms :math:`x^{(l)}` of layers K, ..., L, the top one last: `(L - K + 1, ...)`.
    probabilities
        q of all layers, `(L,)`, not decreasing, the last one 1.

    Returns
    -------
    array
        The estimate of the sum of all L terms, of their shape.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If there are more terms than probabilities.
    """
    xp, terms, chances = _terms_and_chances("kept_terms", kept_terms, probabilities)
    kept, depth = int(terms.shape[0]), int(chances.shape[0])
    if kept > depth:
        msg = f"kept_terms: expected at most {depth} layers as in probabilities, got {kept}"
        raise ValueError(msg)
    return xp.sum(terms / _as_layers(xp, chances[depth - kept :], terms), axis=0)


def truncation_variance(terms: Float[Array, "L ..."], probabilities: Float[Array, " L"]) -> Array:
    r"""Compute the variance of `truncated_ghost` over its random depth.

    Implements :eq:`truncation-variance`: :math:`\sum_{l<L} P_l^2 (1/q_l - 1/q_{l+1})` with the partial
    sums :math:`P_l = \sum_{k \le l} x^{(k)}` from the bottom.

    Parameters
    ----------
    terms
        The terms of all layers, the top one last: `(L, ...)`.
    probabilities
        q of all layers, `(L,)`, not decreasing, the last one 1.

    Returns
    -------
    array
        Of the shape of a term, in its units squared.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If there is not one probability a layer.
    """
    xp, terms, chances = _terms_and_chances("terms", terms, probabilities)
    if terms.shape[0] != chances.shape[0]:
        msg = f"probabilities: expected one for each of {terms.shape[0]} layers, got {chances.shape[0]}"
        raise ValueError(msg)
    partial = xp.cumulative_sum(terms, axis=0)[:-1, ...]
    steps = 1.0 / chances[:-1] - 1.0 / chances[1:]
    return xp.sum(partial * partial * _as_layers(xp, steps, partial), axis=0)


def truncation_probabilities(
    terms: Float[Array, "L ..."], costs: Sequence[float], *, share: float
) -> Float[Array, " L"]:
    r"""Find the probabilities of least variance for an expected share of the whole cost.

    Implements :eq:`truncation-variance`: its minimum over :math:`q_1 \le \dots \le q_L = 1` with
    :math:`\sum_l q_l c_l` given is :math:`q_l = \min(1, t \sqrt{s_l})`, s being the slopes of the greatest
    convex minorant of the mean squared partial sums over the cumulative costs, t set by the cost.

    Parameters
    ----------
    terms
        Terms of all layers, the top one last, `(L, ...)`: the variance is summed over what follows.
    costs
        What each layer costs, `(L,)` positive Python numbers, of any unit.
    share
        The expected cost over that of all layers; at least the last layer's, at most 1.

    Returns
    -------
    array
        `(L,)`. 0 only for layers whose partial sums all vanish.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If there is not one cost a layer, or `share` is out of reach.
    """
    xp, (terms,) = _arrays({"terms": terms})
    depth = int(terms.shape[0])
    if len(costs) != depth:
        msg = f"costs: expected one for each of {depth} layers, got {len(costs)}"
        raise ValueError(msg)
    for index, cost in enumerate(costs):
        check_number(f"costs[{index}]", cost, above=0.0)
    prices = [float(cost) for cost in costs]
    check_number("share", share, at_least=prices[-1] / sum(prices), at_most=1.0)
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
    """Return t with sum_{l<L} c_l min(1, t root_l) + c_L = budget: the largest over numbers capped."""
    scales = []
    for free in range(1, len(roots) + 1):
        cost = sum(price * root for price, root in zip(prices[:free], roots[:free], strict=True))
        left = xp.full_like(roots[0], budget - sum(prices[free:]))
        scales.append(quotient(xp, left, cost, 0.0))
    return xp.max(xp.stack(scales), axis=0)


def _arrays(named: dict[str, Array]) -> tuple[Namespace, list[Array]]:
    xp = namespace_of(named)
    for name, array in named.items():
        if array.ndim == 0:
            msg = f"{name}: expected a first axis of layers, got an array without axes"
            raise ValueError(msg)
    dtype = accumulation_dtype(xp, *(array.dtype for array in named.values()))
    return xp, [cast(xp, array, dtype) for array in named.values()]


def _terms_and_chances(name: str, terms: Array, chances: Array) -> tuple[Namespace, Array, Array]:
    check_axes({"probabilities": (chances, ("L",))})
    xp, (terms, chances) = _arrays({name: terms, "probabilities": chances})
    return xp, terms, chances


def _as_layers(xp: Namespace, values: Array, like: Array) -> Array:
    return xp.reshape(values, (values.shape[0],) + (1,) * (like.ndim - 1))
