"""Adam as its settings and the parts of one step that its derivative needs."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace
from lai_core._theory.algebra import quotient


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

    @property
    def gradient_decay(self) -> float:
        """The decay that enters the gradient: none where it is decoupled."""
        return 0.0 if self.decoupled else float(self.weight_decay)


def prepare_gradient(xp: Namespace, theta: Array, gradient: Array, adam: Adam) -> Float[Array, " p"]:
    """Clip the batch gradient, then add the decay that enters it."""
    if adam.max_norm is not None:
        _, _, factor = _measure_clipping(xp, gradient, adam.max_norm, adam)
        gradient = gradient * factor
    return gradient + adam.gradient_decay * theta


def _measure_clipping(xp: Namespace, gradient: Array, max_norm: float, adam: Adam) -> tuple[Any, Any, Any]:
    """Return the norm, whether clipping is active, and the factor of the gradient."""
    norm = xp.sqrt(xp.sum(gradient * gradient))
    padded = norm + float(adam.norm_epsilon)
    active = padded > float(max_norm)
    return norm, active, float(max_norm) / xp.where(active, padded, xp.full_like(norm, max_norm))


def backprop_clipping(xp: Namespace, cotangent: Array, gradient: Array, adam: Adam) -> Float[Array, " p"]:
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


def moments(
    xp: Namespace, used: Array, first: Array, second: Array, adam: Adam, step: int
) -> tuple[Array, Array, Array, Array]:
    """Return both moments, the first corrected for its start, and the root of the second, corrected."""
    first = first * float(adam.beta1) + used * (1.0 - adam.beta1)
    second = second * float(adam.beta2) + used * used * (1.0 - adam.beta2)
    mean = first / (1.0 - adam.beta1**step)
    root = xp.sqrt(second / (1.0 - adam.beta2**step))
    return first, second, mean, root
