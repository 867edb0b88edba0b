"""Scores along the step that an adaptive optimizer takes, instead of along the gradient."""

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.arrays import Flat, Scores, checked
from lai_core.optimizers._adam import Adam, backprop_clipping, moments, prepare_gradient


@checked
def adam_step(
    parameters: Flat, gradient: Flat, first_moment: Flat, second_moment: Flat, /, *, adam: Adam, step: int
) -> tuple[Flat, Flat, Flat]:
    r"""Take one step of Adam, the map that :eq:`adam-derivative` differentiates.

    Arguments: :mod:`lai_core.optimizers`.

    Returns
    -------
    tuple of arrays
        Parameters, first moment and second moment after the step. Nothing is written to.
    """
    check_number("step", step, at_least=1)
    xp = xp_of(parameters)
    used = prepare_gradient(xp, parameters, gradient, adam)
    first, second, mean, root = moments(xp, used, first_moment, second_moment, adam, step)
    decay = float(adam.weight_decay) if adam.decoupled else 0.0
    direction = mean / (root + float(adam.epsilon)) + decay * parameters
    return parameters - float(adam.learning_rate) * direction, first, second


@checked
def adam_derivative_scores(
    validation_gradient: Flat,
    training_gradients: Float[Array, "n_train p"],
    parameters: Flat,
    gradient: Flat,
    first_moment: Flat,
    second_moment: Flat,
    /,
    *,
    adam: Adam,
    step: int,
) -> Scores:
    r"""Differentiate the decrease that one Adam step brings in each sample's weight.

    Implements :eq:`adam-derivative`: :math:`\langle C^\top (Q \odot \nabla L_V(\theta')), g_j \rangle`
    with

    .. math:: Q = \frac{1 - \beta_1}{(1 - \beta_1^t)(\sqrt{\hat v} + \varepsilon)} -
        \frac{(1 - \beta_2)\, \bar g\, \hat m}{(1 - \beta_2^t) \sqrt{\hat v} (\sqrt{\hat v} + \varepsilon)^2}

    and C the derivative of clipping. Q is the same for every sample: batch statistics are enough, no
    sample has moments of its own. The second term, which holding :math:`\hat v` fixed would drop, is
    set to 0 where :math:`\hat v = 0`. This is the derivative, not the difference between weight 1 and
    weight 0.

    Arguments: :mod:`lai_core.optimizers`.

    Parameters
    ----------
    validation_gradient
        Gradient of the summed validation loss **after** the step.

    Returns
    -------
    array
        Positive helps: minus the derivative of the validation loss after the step with respect to the
        sample's weight, divided by the learning rate.
    """
    check_number("step", step, at_least=1)
    xp = xp_of(parameters)
    used = prepare_gradient(xp, parameters, gradient, adam)
    _, _, mean, root = moments(xp, used, first_moment, second_moment, adam, step)
    # The step is -eta mean / divisor with divisor = root + epsilon. In the used gradient u, entry by entry:
    # d mean / du = (1 - b1) / (1 - b1^t), and root^2 = v^ gives d root / du = (1 - b2) / (1 - b2^t) u / root.
    divisor = root + float(adam.epsilon)
    # d mean / divisor: the term that is left where the second moment is held fixed
    frozen = (1.0 - adam.beta1) / ((1.0 - adam.beta1**step) * divisor)
    # mean d root / divisor^2
    seen = root > 0.0
    curved = (1.0 - adam.beta2) / (1.0 - adam.beta2**step) * used * mean
    curved = curved / (xp.where(seen, root, xp.ones_like(root)) * divisor * divisor)
    Q = frozen - xp.where(seen, curved, xp.zeros_like(curved))
    return matmul(xp, training_gradients, backprop_clipping(xp, Q * validation_gradient, gradient, adam))


@checked
def adam_direction_scores(
    validation_gradients: Float[Array, "n_val p"],
    training_gradients: Float[Array, "n_train p"],
    second_moment: Flat,
    /,
    *,
    epsilon: float = 1e-8,
) -> Scores:
    r"""Compute inner products in the metric of a diagonally preconditioned step, applied once.

    Implements :eq:`adam-direction`: :math:`\sum_z g_z^\top P g_j`, :math:`P = 1/(\sqrt{v} +
    \varepsilon)`. Scaling both sides by :math:`v^{-1/2}`, as printed, gives :math:`P^2` instead;
    scaling both by :math:`v^{-1/4}` gives this.

    Arguments: :mod:`lai_core.optimizers`.

    Parameters
    ----------
    second_moment
        Running mean of squared gradients, held fixed during the step.
    epsilon
        Added to its root, positive.

    Returns
    -------
    array
        Positive helps: a step of unit learning rate along :math:`-P g_j` lowers the summed validation loss
        by the score, to first order.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import optimizers
    >>> moment = np.array([1.0, 16.0])
    >>> score = optimizers.adam_direction_scores(np.array([[1.0, 1.0]]), np.array([[-1.0, 8.0]]), moment)
    >>> round(float(score[0]), 6)  # the printed scaling gives -0.5
    1.0
    """
    check_number("epsilon", epsilon, above=0.0)
    xp = xp_of(second_moment)
    summed = xp.sum(validation_gradients, axis=0)
    return matmul(xp, training_gradients, summed / (xp.sqrt(second_moment) + float(epsilon)))
