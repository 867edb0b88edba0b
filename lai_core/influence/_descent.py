r"""What the sign of an inner product with the validation gradient decides, and what the Hessian would change.

Gradients are flat, one row of `p` numbers a sample, each of that sample's own, unnormalised loss.
"""

import math

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array
from lai_core._theory.shapes import conformed


def descent_remainder(
    training_gradients: Array, /, *, learning_rate: float, smoothness: float
) -> Float[Array, " n_train"]:
    r"""How far the change of the validation loss can be from its first-order prediction.

    Implements :eq:`descent-meaning`:
    :math:`|L_V(\theta - \eta g_j) - L_V(\theta) + \eta v_j| \le \lambda \eta^2 |g_j|^2 / 2`.

    Parameters
    ----------
    training_gradients
        `(n_train, p)`.
    learning_rate
        :math:`\eta`, positive.
    smoothness
        :math:`\lambda`, a Lipschitz constant of the summed validation loss's gradient.

    Returns
    -------
    array
        `(n_train,)`, units of the loss; attained by quadratics of curvature :math:`\lambda`.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or a number is out of range.
    """
    check_number("learning_rate", learning_rate, above=0.0)
    check_number("smoothness", smoothness, at_least=0.0)
    xp, (training,) = conformed({"training_gradients": (training_gradients, "n_train p")})
    return xp.sum(training * training, axis=-1) * (float(smoothness) * float(learning_rate) ** 2 / 2.0)


def certified_learning_rate(
    scores: Array, training_gradients: Array, /, *, smoothness: float
) -> Float[Array, " n_train"]:
    r"""Below which learning rate the sign of a score is that of the true decrease.

    Implements :eq:`descent-meaning`: :math:`\eta < 2 |v_j| / (\lambda |g_j|^2)`.

    Parameters
    ----------
    scores
        `(n_train,)`, of :func:`lai_core.influence.inner_product_scores`.
    training_gradients
        `(n_train, p)`.
    smoothness
        :math:`\lambda`, positive: a Lipschitz constant of the summed validation loss's gradient.

    Returns
    -------
    array
        `(n_train,)`; zero where a score is zero, which decides nothing.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If a shape does not fit or `smoothness` is not positive.
    """
    check_number("smoothness", smoothness, above=0.0)
    xp, (values, training) = conformed(
        {"scores": (scores, "n_train"), "training_gradients": (training_gradients, "n_train p")}
    )
    squared = xp.sum(training * training, axis=-1)
    moves = squared > 0.0
    divisor = xp.where(moves, squared, xp.ones_like(squared)) * float(smoothness)
    return xp.where(moves, 2.0 * xp.abs(values) / divisor, xp.zeros_like(values))


def hessian_cosine_bound(condition_number: float) -> float:
    r"""Smallest cosine between a gradient and its product with the inverse of a Hessian.

    Implements :eq:`hessian-cosine`: :math:`\cos(H^{-1} g, g) \ge 2\sqrt{k}/(1 + k)`, attained.

    Parameters
    ----------
    condition_number
        :math:`k \ge 1`, the positive definite Hessian's largest eigenvalue over its smallest.

    Returns
    -------
    float
        In (0, 1]: how far replacing the Hessian by the identity can turn the validation gradient.

    Raises
    ------
    TypeError
        If `condition_number` is not a Python number.
    ValueError
        If it is below 1.

    Examples
    --------
    >>> from lai_core import descent
    >>> descent.hessian_cosine_bound(9.0)
    0.6
    """
    check_number("condition_number", condition_number, at_least=1.0)
    return 2.0 * math.sqrt(condition_number) / (1.0 + float(condition_number))
