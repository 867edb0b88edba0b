r"""Appendix E: the gradient is not the step that an adaptive optimizer takes; what scores along its step are.

Parameters, moments and gradients are flat vectors of `p` numbers; each training gradient is that of the
sample's own, unnormalised loss. Scores are positive for samples that help, per unit learning rate and per
unit weight :math:`w_j` of the sample in the loss :math:`\sum_j w_j l_j`. Arguments are the same everywhere,
where a function says nothing else:

Parameters
----------
parameters, gradient
    Before the step; the gradient is the batch's, before clipping and decay.
first_moment, second_moment
    Running means of the gradient and of its square, before the step.
adam
    The settings.
step
    Which step this is, from 1.
validation_gradients, training_gradients
    Gradients of the samples' own losses, before the step.
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace, matmul, xp_of
from lai_core._theory.algebra import quotient
from lai_core._theory.arrays import Flat, Scores, checked

__all__ = [
    "Adam",
    "adam_derivative_scores",
    "adam_direction_scores",
    "adam_step",
]


# Adam as its settings and the parts of one step that its derivative needs.


@dataclass(frozen=True)
class Adam:
    r"""What Adam and AdamW are told, in the words of their authors.

    Parameters
    ----------
    learning_rate
        :math:`\eta`, positive.
    beta1, beta2
        Decay of the first and the second moment, in [0, 1).
    epsilon
        Added to the root of the second moment, positive.
    weight_decay
        :math:`\lambda`, not negative.
    decoupled
        Whether the decay shrinks the parameters (AdamW) or is added to the gradient (Adam with L2).
    max_norm
        Norm to which the batch gradient is clipped, before the decay is added. None: no clipping.
    norm_epsilon
        Added to the gradient's norm when clipping (torch's `clip_grad_norm_` adds 1e-6).
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    max_norm: float | None = None
    norm_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, above=0.0)
        check_number("beta1", self.beta1, at_least=0.0, below=1.0)
        check_number("beta2", self.beta2, at_least=0.0, below=1.0)
        check_number("epsilon", self.epsilon, above=0.0)
        check_number("weight_decay", self.weight_decay, at_least=0.0)
        check_number("norm_epsilon", self.norm_epsilon, at_least=0.0)
        if self.max_norm is not None:
            check_number("max_norm", self.max_norm, above=0.0)


def _prepare_gradient(xp: Namespace, theta: Array, gradient: Array, adam: Adam) -> Float[Array, " p"]:
    """Clip the batch gradient, then add the decay that enters it: none where it is decoupled."""
    if adam.max_norm is not None:
        _, _, factor = _measure_clipping(xp, gradient, adam.max_norm, adam)
        gradient = gradient * factor
    return gradient if adam.decoupled else gradient + float(adam.weight_decay) * theta


def _measure_clipping(xp: Namespace, gradient: Array, max_norm: float, adam: Adam) -> tuple[Any, Any, Any]:
    """Return the norm, whether clipping is active, and the factor of the gradient."""
    norm = xp.sqrt(xp.sum(gradient * gradient))
    padded = norm + float(adam.norm_epsilon)
    active = padded > float(max_norm)
    return norm, active, float(max_norm) / xp.where(active, padded, xp.full_like(norm, max_norm))


def _backprop_clipping(xp: Namespace, cotangent: Array, gradient: Array, adam: Adam) -> Float[Array, " p"]:
    """Apply the transposed derivative of clipping to `cotangent`."""
    if adam.max_norm is None:
        return cotangent
    # clip(g) = f g with f = max_norm / (|g| + e) where clipping is active, f = 1 elsewhere.
    # d clip(g) / dg = f I - f / (|g| (|g| + e)) g g' : symmetric, so that it is its own transpose;
    #                      |---- shrink ----|
    norm, active, factor = _measure_clipping(xp, gradient, adam.max_norm, adam)
    radial = xp.sum(gradient * cotangent)
    shrink = quotient(xp, factor, norm * (norm + float(adam.norm_epsilon)), 0.0)  # of g = 0 nothing is radial
    shrink = xp.where(active, shrink, xp.zeros_like(norm))
    return factor * cotangent - shrink * radial * gradient


def _moments(
    xp: Namespace, used: Array, first: Array, second: Array, adam: Adam, step: int
) -> tuple[Array, Array, Array, Array]:
    """Return both moments, the first corrected for its start, and the root of the second, corrected."""
    first = first * float(adam.beta1) + used * (1.0 - adam.beta1)
    second = second * float(adam.beta2) + used * used * (1.0 - adam.beta2)
    mean = first / (1.0 - adam.beta1**step)
    root = xp.sqrt(second / (1.0 - adam.beta2**step))
    return first, second, mean, root


# Scores along the step that an adaptive optimizer takes, instead of along the gradient.


@checked
def adam_step(
    parameters: Flat, gradient: Flat, first_moment: Flat, second_moment: Flat, /, *, adam: Adam, step: int
) -> tuple[Flat, Flat, Flat]:
    r"""Take one step of Adam, the map that :eq:`adam-derivative` differentiates.

    Returns
    -------
    tuple of arrays
        Parameters, first moment and second moment after the step. Nothing is written to.
    """
    check_number("step", step, at_least=1)
    xp = xp_of(parameters)
    used = _prepare_gradient(xp, parameters, gradient, adam)
    first, second, mean, root = _moments(xp, used, first_moment, second_moment, adam, step)
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
    used = _prepare_gradient(xp, parameters, gradient, adam)
    _, _, mean, root = _moments(xp, used, first_moment, second_moment, adam, step)
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
    return matmul(xp, training_gradients, _backprop_clipping(xp, Q * validation_gradient, gradient, adam))


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
    """
    check_number("epsilon", epsilon, above=0.0)
    xp = xp_of(second_moment)
    summed = xp.sum(validation_gradients, axis=0)
    return matmul(xp, training_gradients, summed / (xp.sqrt(second_moment) + float(epsilon)))
