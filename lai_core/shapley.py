r"""Shapley values of one SGD step, exactly and sampled, and what Ghost and the midpoint score miss of them.

The players are the batch's samples, with gradients :math:`g_i` of their own losses, each times its weight in
the step. A set S of them takes the step :math:`\theta - \eta \sum_{i \in S} g_i`, and its worth is the
decrease of the summed validation loss. Values are positive for samples that help; to first order
:math:`\phi_j \approx \eta v_j`.

Parameters
----------
loss
    The summed validation loss, from parameters to one number.
parameters
    Where the step starts.
gradients
    Gradients of the samples' own losses at `parameters`, each times its weight in the step.
learning_rate
    :math:`\eta`, positive.
smoothness
    :math:`\lambda`, a Lipschitz constant of the validation loss's gradient.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import factorial
from operator import add

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.arrays import Flat, PerSample, SampleGradients, checked

__all__ = [
    "monte_carlo_shapley",
    "one_step_shapley",
    "shapley_first_order_bound",
    "step_midpoint_scores",
]

MOST_PLAYERS = 16
"""Exact enumeration evaluates the loss at 2^n points; beyond this it is refused."""


@checked
def one_step_shapley(
    loss: Callable[[Array], Array], parameters: Flat, gradients: SampleGradients, /, *, learning_rate: float
) -> PerSample:
    r"""Compute Shapley values of one SGD step by enumerating every set of samples.

    Parameters
    ----------
    gradients
        Gradients of the samples' own losses at `parameters`, each times its weight in the step; at most 16.

    Returns
    -------
    array
        In units of the loss; the values add up to the decrease that the whole batch brings.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    n = int(gradients.shape[0])
    if n > MOST_PLAYERS:
        msg = f"gradients: expected at most {MOST_PLAYERS} samples to enumerate, got {n}; sample permutations"
        raise ValueError(msg)
    xp, moves = xp_of(gradients), gradients * float(learning_rate)
    # Sets are numbers: bit i of S says whether player i is in it. Doubling the list with player i added
    # puts the step of S in place S.
    steps: list[Array] = [xp.zeros_like(parameters)]
    for player in range(n):
        steps += [step + moves[player, ...] for step in steps]
    losses = [loss(parameters - step) for step in steps]
    # phi_j = sum over S without j of |S|! (n - 1 - |S|)! / n!  (L(S) - L(S and j)): the share of the n!
    # orders in which exactly the players of S come before j, times what j then adds.
    shares = [factorial(size) * factorial(n - 1 - size) / factorial(n) for size in range(n)]
    values = []
    for player in range(n):
        bit = 1 << player
        without = (S for S in range(2**n) if not S & bit)
        values.append(reduce(add, ((losses[S] - losses[S | bit]) * shares[S.bit_count()] for S in without)))
    return xp.stack(values)


@checked
def monte_carlo_shapley(
    loss: Callable[[Array], Array],
    parameters: Flat,
    gradients: SampleGradients,
    permutations: Sequence[Sequence[int]],
    /,
    *,
    learning_rate: float,
) -> tuple[PerSample, PerSample]:
    r"""Estimate Shapley values of one SGD step from permutations, with their standard errors.

    The estimate is unbiased where the permutations are drawn uniformly, because a Shapley value is a
    sample's mean contribution over all orders of joining; over all n! of them it is exact.

    Parameters
    ----------
    permutations
        At least two orders in which the samples join, each of the numbers 0 to n - 1.

    Returns
    -------
    tuple of arrays
        Mean contributions, in units of the loss; and their standard errors, the sample deviation over the
        root of the number of permutations.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    n, count = int(gradients.shape[0]), len(permutations)
    if count < 2:
        msg = f"permutations: expected at least two, for a standard error, got {count}"
        raise ValueError(msg)
    xp, moves = xp_of(gradients), gradients * float(learning_rate)
    rows = []
    for index, permutation in enumerate(permutations):
        order = [int(player) for player in permutation]
        if sorted(order) != list(range(n)):
            msg = f"permutations[{index}]: expected the numbers 0 to {n - 1} in some order, got {order}"
            raise ValueError(msg)
        theta, before, added = parameters, loss(parameters), {}
        for player in order:
            theta = theta - moves[player, ...]
            after = loss(theta)
            added[player], before = before - after, after
        rows.append(xp.stack([added[player] for player in range(n)]))
    contributions = xp.stack(rows)
    mean = xp.mean(contributions, axis=0)
    # standard error of a mean of m draws: sqrt(sum (x - mean)^2 / (m - 1)) / sqrt(m)
    deviations = contributions - mean[None, ...]
    return mean, xp.sqrt(xp.sum(deviations * deviations, axis=0) / float(count * (count - 1)))


@checked
def step_midpoint_scores(slope: Callable[[Array], Array], gradients: SampleGradients, /) -> PerSample:
    r"""Compute inner products with the derivative of any step at half of the batch's gradient.

    Implements :eq:`step-midpoint` and :eq:`midpoint`: :math:`\phi_j = -g_j^\top \nabla F(\tfrac12 \sum_i
    g_i)` with :math:`F(G)` the validation loss after the optimizer's step on the gradient G, exact where F is
    quadratic: what comes before j is on average half of the rest, and j's own part is averaged over its
    length. Of an SGD step, :math:`F(G) = L_V(\theta - \eta G)`, it is :math:`\eta\, g_j^\top \nabla
    L_V(\theta - \tfrac{\eta}{2} \sum_i g_i)`.

    Parameters
    ----------
    slope
        The gradient of F: from the gradient that the optimizer is given to the derivative, in it, of the
        summed validation loss after the step.
    gradients
        Gradients of the samples' own losses, each times its weight in the step.

    Returns
    -------
    array
        :math:`\phi_j`, in units of the loss. Positive helps.
    """
    xp = xp_of(gradients)
    return -matmul(xp, gradients, slope(xp.sum(gradients, axis=0) / 2.0))


@checked
def shapley_first_order_bound(
    gradients: SampleGradients, /, *, learning_rate: float, smoothness: float
) -> PerSample:
    r"""Bound how far a sample's inner product is from its Shapley value per unit learning rate.

    Implements :eq:`shapley-first-order`:
    :math:`|\phi_j/\eta - v_j| \le \tfrac{\lambda \eta}{2} |g_j| \sum_i |g_i|`: the gradient turns by at
    most :math:`\lambda` times the distance that the samples before j have covered, on average half of all.

    Returns
    -------
    array
        Attained by quadratics of curvature :math:`\lambda` with parallel gradients.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    check_number("smoothness", smoothness, at_least=0.0)
    xp = xp_of(gradients)
    norms = xp.sqrt(xp.sum(gradients * gradients, axis=-1))
    return norms * xp.sum(norms) * (float(smoothness) * float(learning_rate) / 2.0)
