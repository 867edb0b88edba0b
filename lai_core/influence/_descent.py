"""What the sign of a score decides about one step, and how far a Hessian would turn the gradient."""

import math

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.arrays import checked


@checked
def descent_remainder(
    training_gradients: Float[Array, "n_train p"], /, *, learning_rate: float, smoothness: float
) -> Float[Array, " n_train"]:
    r"""Bound how far the change of the validation loss is from its first-order prediction.

    Implements :eq:`descent-meaning`:
    :math:`|L_V(\theta - \eta g_j) - L_V(\theta) + \eta v_j| \le \lambda \eta^2 |g_j|^2 / 2`, the remainder
    of a function whose gradient is :math:`\lambda`-Lipschitz, over a step of length :math:`\eta |g_j|`.

    Assume: :math:`\nabla L_V` is :math:`\lambda`-Lipschitz; :math:`\eta \ge 0`; one plain SGD step on sample
    :math:`j`. Arguments: :mod:`lai_core.influence`.

    Returns
    -------
    array
        The bound for each sample, in units of the loss; attained by quadratics of curvature
        :math:`\lambda`.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    check_number("smoothness", smoothness, at_least=0.0)
    squared = xp_of(training_gradients).sum(training_gradients * training_gradients, axis=-1)
    return squared * (float(smoothness) * float(learning_rate) ** 2 / 2.0)


@checked
def certified_learning_rate(
    scores: Float[Array, " n_train"], training_gradients: Float[Array, "n_train p"], /, *, smoothness: float
) -> Float[Array, " n_train"]:
    r"""Find the learning rate below which the sign of a score is the sign of the true decrease.

    Implements :eq:`descent-meaning`: :math:`\eta < 2 |v_j| / (\lambda |g_j|^2)`, where the first-order
    decrease :math:`\eta |v_j|` exceeds its remainder.

    Assume: :math:`\nabla L_V` is :math:`\lambda`-Lipschitz; :math:`\eta \ge 0`; one plain SGD step on sample
    :math:`j`. Arguments: :mod:`lai_core.influence`.

    Parameters
    ----------
    scores
        The scores of :func:`lai_core.influence.inner_product_scores`.

    Returns
    -------
    array
        For each sample; zero where a score is zero, which decides nothing.
    """
    check_number("smoothness", smoothness, above=0.0)
    xp = xp_of(scores)
    squared = xp.sum(training_gradients * training_gradients, axis=-1)
    moves = squared > 0.0
    divisor = xp.where(moves, squared, xp.ones_like(squared)) * float(smoothness)
    return xp.where(moves, 2.0 * xp.abs(scores) / divisor, xp.zeros_like(scores))


def hessian_cosine_bound(*, condition_number: float) -> float:
    r"""Bound the cosine between a gradient and its product with the inverse of a Hessian from below.

    Implements :eq:`hessian-cosine`: :math:`\cos(H^{-1} g, g) \ge 2\sqrt{k}/(1 + k)`, attained: Kantorovich's
    inequality.

    Assume: :math:`H` is positive definite; :math:`g_V \ne 0`.

    Parameters
    ----------
    condition_number
        :math:`k \ge 1`, the positive definite Hessian's largest eigenvalue over its smallest.

    Returns
    -------
    float
        In (0, 1]: how far replacing the Hessian by the identity can turn the validation gradient.

    Examples
    --------
    >>> from lai_core import influence
    >>> influence.hessian_cosine_bound(condition_number=9.0)
    0.6
    """
    check_number("condition_number", condition_number, at_least=1.0)
    return 2.0 * math.sqrt(condition_number) / (1.0 + float(condition_number))
