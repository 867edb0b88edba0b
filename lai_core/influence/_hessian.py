"""Influence from explicit gradients, Eq. 1 and Eq. 2, and what the sign of a score decides about one step."""

from collections.abc import Callable

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import solve
from lai_core._theory.arrays import checked


@checked
def removal_influence(
    validation_gradients: Float[Array, "n_val p"],
    training_gradients: Float[Array, "n_train p"],
    hessian: Float[Array, "p p"],
    /,
    *,
    damping: float = 0.0,
) -> Float[Array, " n_train"]:
    r"""Return the first-order change of the summed validation loss when a training sample is removed.

    Implements :eq:`removal-influence`: :math:`+\sum_z g_z^\top (H + \delta I)^{-1} g_j`. Removing the sample
    moves the minimiser by :math:`+H^{-1} g_j`, to first order.

    Parameters
    ----------
    validation_gradients
        Gradients of the validation losses at the minimiser of the summed training loss.
    training_gradients
        Gradients of the training losses at the same parameters.
    hessian
        Hessian of the training loss summed (not averaged) over samples, the scale on which removing a
        sample subtracts one of its losses.
    damping
        :math:`\delta`, the multiple of the identity that is added to the Hessian: a ridge penalty, and the
        way out where the Hessian alone is singular.

    Returns
    -------
    array
        For each training sample, in units of the loss. Positive helps: without the sample the validation
        loss rises.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> points, minimiser = np.array([[0.0], [2.0]]), 1.0  # of the losses (theta - x)^2 / 2
    >>> influence.removal_influence(minimiser - points[:1], minimiser - points, 2 * np.eye(1))
    array([ 0.5, -0.5])
    """
    xp = xp_of(hessian)
    summed = xp.sum(validation_gradients, axis=0)
    message = "hessian: expected an invertible matrix, damped, got a singular one; raise the damping"
    preconditioned = solve(xp, _damp(hessian, damping), summed, message)
    return matmul(xp, training_gradients, preconditioned)


def printed_influence(
    validation_gradients: Float[Array, "n_val p"],
    training_gradients: Float[Array, "n_train p"],
    hessian: Float[Array, "p p"],
    /,
    *,
    damping: float = 0.0,
) -> Float[Array, " n_train"]:
    r"""Return Eq. 1 as printed, whose sign is that of a sample's presence, not of its removal.

    Implements :eq:`influence`: :math:`-\sum_z g_z^\top H^{-1} g_j`. Arguments: :mod:`lai_core.influence`.

    Returns
    -------
    array
        **Negative helps**: the first-order change of the summed validation loss when the sample is counted
        once more.
    """
    return -removal_influence(validation_gradients, training_gradients, hessian, damping=damping)


@checked
def inner_product_scores(
    validation_gradients: Float[Array, "n_val p"], training_gradients: Float[Array, "n_train p"], /
) -> Float[Array, " n_train"]:
    r"""Return the inner product of each training gradient with the summed validation gradient.

    Implements :eq:`IP`, without the printed minus. It is Eq. 1 with the identity for the Hessian.

    In place of the influence it keeps the ranking of arbitrary samples only where :math:`g_V` is an
    eigenvector of :math:`H`. Arguments: :mod:`lai_core.influence`.

    Returns
    -------
    array
        Positive helps: one SGD step of unit learning rate on sample j lowers the summed validation loss by
        the score, to first order; :func:`lai_core.influence.descent_remainder` bounds the rest.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> influence.inner_product_scores(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0], [0.0, -1.0]]))
    array([ 3., -2.])
    """
    xp = xp_of(validation_gradients)
    return matmul(xp, training_gradients, xp.sum(validation_gradients, axis=0))


@checked
def directional_scores(
    losses: Callable[[Array], Array],
    parameters: Float[Array, " p"],
    direction: Float[Array, " p"],
    /,
    *,
    step: float = 1e-3,
) -> Float[Array, " n_train"]:
    r"""Compute inner products with the validation gradient from two forward passes.

    Implements :eq:`directional-derivative`:
    :math:`v_j = \frac{d}{d\epsilon} l_j(\theta + \epsilon\, \nabla L_V)|_{\epsilon = 0}`, by central
    differences, which are exact for quadratics. It holds for every parameter of every architecture:
    biases, shared matrices, embeddings and normalisation gains included.

    Parameters
    ----------
    losses
        From parameters to the training samples' own losses, one number for each sample.
    parameters
        Where to differentiate.
    direction
        The gradient of the summed validation loss.
    step
        Half the distance between the two passes, in multiples of `direction`.

    Returns
    -------
    array
        Positive helps, as in `inner_product_scores`; the error is of order `step` squared.
    """
    check_number("step", step, above=0.0)
    move = direction * float(step)
    return (losses(parameters + move) - losses(parameters - move)) / (2.0 * float(step))


def _damp(hessian: Float[Array, "p p"], damping: float) -> Float[Array, "p p"]:
    check_number("damping", damping, at_least=0.0)
    xp = xp_of(hessian)
    identity = xp.triu(xp.tril(xp.ones_like(hessian)))  # eye would ask a traced array for its device
    return hessian + identity * float(damping)


@checked
def descent_remainder(
    training_gradients: Float[Array, "n_train p"], /, *, learning_rate: float, smoothness: float
) -> Float[Array, " n_train"]:
    r"""Bound how far the change of the validation loss is from its first-order prediction.

    Implements :eq:`descent-meaning`:
    :math:`|L_V(\theta - \eta g_j) - L_V(\theta) + \eta v_j| \le \lambda \eta^2 |g_j|^2 / 2`, the remainder
    of a function whose gradient is :math:`\lambda`-Lipschitz, over a step of length :math:`\eta |g_j|`.

    Arguments: :mod:`lai_core.influence`.

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

    Arguments: :mod:`lai_core.influence`.

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
