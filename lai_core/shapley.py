r"""Shapley values of one SGD step, exactly and sampled, and what Ghost and the midpoint score miss of them.

The players are the batch's samples, with gradients :math:`g_i`; a set S of them takes the step
:math:`\theta - \eta \sum_{i \in S} g_i`, and its worth is the decrease of the summed validation loss.
The values are positive for samples that help. First order: :math:`\phi_j \approx \eta v_j`.
"""

from collections.abc import Callable, Sequence
from math import factorial
from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace
from lai_core._theory.shapes import conformed

__all__ = [
    "midpoint_error_bound",
    "midpoint_scores",
    "monte_carlo_shapley",
    "one_step_shapley",
    "shapley_first_order_bound",
]

MOST_PLAYERS = 16
"""Exact enumeration evaluates the loss at 2^n points; beyond this it is refused."""


def one_step_shapley(
    loss: Callable[[Array], Array], parameters: Array, gradients: Array, /, *, learning_rate: float
) -> Float[Array, " n"]:
    r"""Shapley values of one SGD step, by enumerating every set of samples.

    Parameters
    ----------
    loss
        The summed validation loss, from parameters `(p,)` to one number.
    parameters
        `(p,)`.
    gradients
        `(n, p)`, of the samples' own losses at `parameters`, each times its weight in the step; n at
        most 16.
    learning_rate
        :math:`\eta`, positive.

    Returns
    -------
    array
        `(n,)`, units of the loss; they add up to the decrease that the whole batch brings.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit, there are too many samples, or `learning_rate` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import shapley
    >>> loss = lambda theta: np.sum(theta * theta) / 2
    >>> shapley.one_step_shapley(loss, np.ones(1), np.array([[1.0], [-1.0]]), learning_rate=0.5)
    array([ 0.5, -0.5])
    """
    xp, theta, moves = _checked(parameters, gradients, learning_rate)
    n = int(moves.shape[0])
    if n > MOST_PLAYERS:
        msg = f"gradients: expected at most {MOST_PLAYERS} samples to enumerate, got {n}; sample permutations"
        raise ValueError(msg)
    steps: list[Array] = [xp.zeros_like(theta)]
    for player in range(n):  # bit i of a set's place says whether player i is in it
        steps += [step + moves[player, ...] for step in steps]
    losses = [loss(theta - step) for step in steps]
    weights = [factorial(size) * factorial(n - 1 - size) / factorial(n) for size in range(n)]
    values = []
    for player in range(n):
        without = (place for place in range(2**n) if not place >> player & 1)
        marginals = (
            (losses[place] - losses[place | 1 << player]) * weights[place.bit_count()] for place in without
        )
        values.append(_total(marginals))
    return xp.stack(values)


def monte_carlo_shapley(
    loss: Callable[[Array], Array],
    parameters: Array,
    gradients: Array,
    permutations: Sequence[Sequence[int]],
    /,
    *,
    learning_rate: float,
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Shapley values of one SGD step estimated from permutations, with their standard errors.

    Unbiased where the permutations are drawn uniformly; over all n! of them it is exact.

    Parameters
    ----------
    loss, parameters, gradients, learning_rate
        As in `one_step_shapley`, any n.
    permutations
        At least two orders in which the samples join, each of the numbers 0 to n - 1.

    Returns
    -------
    tuple of arrays
        `(n,)` mean marginal decreases; `(n,)` their standard errors, the sample deviation over the
        root of the number of permutations.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit, or a permutation is not one.
    """
    xp, theta, moves = _checked(parameters, gradients, learning_rate)
    n, count = int(moves.shape[0]), len(permutations)
    if count < 2:
        msg = f"permutations: expected at least two, for a standard error, got {count}"
        raise ValueError(msg)
    rows = []
    for index, permutation in enumerate(permutations):
        order = [int(player) for player in permutation]
        if sorted(order) != list(range(n)):
            msg = f"permutations[{index}]: expected the numbers 0 to {n - 1} in some order, got {order}"
            raise ValueError(msg)
        rows.append(xp.stack(_marginals(loss, theta, moves, order)))
    decreases = xp.stack(rows)
    mean = xp.mean(decreases, axis=0)
    deviations = decreases - mean[None, ...]
    return mean, xp.sqrt(xp.sum(deviations * deviations, axis=0) / float(count * (count - 1)))


def midpoint_scores(
    gradient: Callable[[Array], Array], parameters: Array, gradients: Array, /, *, learning_rate: float
) -> Float[Array, " n"]:
    r"""Inner products with the validation gradient half a step ahead.

    Implements :eq:`midpoint`: :math:`\phi_j = \eta\, g_j^\top \nabla L_V(\theta - \tfrac{\eta}{2} \sum_i
    g_i)`, exact where the validation loss is quadratic.

    Parameters
    ----------
    gradient
        Gradient of the summed validation loss, from `(p,)` to `(p,)`.
    parameters, gradients, learning_rate
        As in `one_step_shapley`, any n.

    Returns
    -------
    array
        `(n,)`, :math:`\phi_j / \eta` up to `midpoint_error_bound`. Positive helps, per unit learning rate.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `learning_rate` is not positive.
    """
    xp, theta, moves = _checked(parameters, gradients, learning_rate)
    halfway = gradient(theta - xp.sum(moves, axis=0) / 2.0)
    return xp.matmul(moves, halfway) / float(learning_rate)


def shapley_first_order_bound(
    gradients: Array, /, *, learning_rate: float, smoothness: float
) -> Float[Array, " n"]:
    r"""How far a sample's inner product can be from its Shapley value per unit learning rate.

    Implements :eq:`shapley-first-order`:
    :math:`|\phi_j/\eta - v_j| \le \tfrac{\lambda \eta}{2} |g_j| \sum_i |g_i|`.

    Parameters
    ----------
    gradients
        `(n, p)`.
    learning_rate
        :math:`\eta`, positive.
    smoothness
        :math:`\lambda`, a Lipschitz constant of the validation loss's gradient.

    Returns
    -------
    array
        `(n,)`; attained by quadratics of curvature :math:`\lambda` with parallel gradients.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a number is out of range.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    check_number("smoothness", smoothness, at_least=0.0)
    xp, (moves,) = conformed({"gradients": (gradients, "n p")})
    norms = xp.sqrt(xp.sum(moves * moves, axis=-1))
    return norms * xp.sum(norms) * (float(smoothness) * float(learning_rate) / 2.0)


def midpoint_error_bound(
    gradients: Array, /, *, learning_rate: float, hessian_lipschitz: float
) -> Float[Array, " n"]:
    r"""How far the midpoint score can be from the Shapley value per unit learning rate.

    Implements :eq:`midpoint-error`: with :math:`G = \sum_i g_i` the error is at most

    .. math:: \tfrac{\mu \eta^2}{2} |g_j| \Big( \tfrac16 \sum_{i \ne j} |g_i|^2 +
        \tfrac1{12} |G - g_j|^2 + \tfrac1{12} |g_j|^2 \Big) \le \tfrac{\mu \eta^2}{8} |g_j| \Big( \sum_i
        |g_i| \Big)^2.

    Parameters
    ----------
    gradients
        `(n, p)`.
    learning_rate
        :math:`\eta`, positive.
    hessian_lipschitz
        :math:`\mu`, a Lipschitz constant of the validation loss's Hessian.

    Returns
    -------
    array
        `(n,)`, the first of the two bounds; attained by cubics of one parameter.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a number is out of range.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    check_number("hessian_lipschitz", hessian_lipschitz, at_least=0.0)
    xp, (moves,) = conformed({"gradients": (gradients, "n p")})
    squared = xp.sum(moves * moves, axis=-1)
    others = xp.sum(moves, axis=0, keepdims=True) - moves
    spread = (xp.sum(squared) - squared) / 6.0 + (xp.sum(others * others, axis=-1) + squared) / 12.0
    return xp.sqrt(squared) * spread * (float(hessian_lipschitz) * float(learning_rate) ** 2 / 2.0)


def _checked(parameters: Array, gradients: Array, learning_rate: float) -> tuple[Namespace, Array, Array]:
    """Return the namespace, the parameters, and each sample's part of the step."""
    check_number("learning_rate", learning_rate, above=0.0)
    xp, (theta, moves) = conformed({"parameters": (parameters, "p"), "gradients": (gradients, "n p")})
    return xp, theta, moves * float(learning_rate)


def _marginals(
    loss: Callable[[Array], Array], theta: Array, moves: Array, order: Sequence[int]
) -> list[Array]:
    """Return what each sample adds when the samples join in this order, by sample."""
    added: dict[int, Any] = {}
    before = loss(theta)
    for player in order:
        theta = theta - moves[player, ...]
        after = loss(theta)
        added[player] = before - after
        before = after
    return [added[player] for player in range(len(order))]


def _total(terms: Any) -> Array:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first
