r"""Appendix E: the gradient is not the step that an adaptive optimizer takes; what scores along its step are.

* One step of Adam and the derivative of the loss after it, exactly: `Adam`, `adam_step`,
  `adam_derivative_scores`.
* Inner products in the metric of a diagonal preconditioner: `adam_direction_scores`.

Parameters, moments and gradients are flat vectors of `p` numbers; each training gradient is that of the
sample's own, unnormalised loss. Scores are positive for samples that help, per unit learning rate and per
unit weight :math:`w_j` of the sample in the loss :math:`\sum_j w_j l_j`. A `TypeError` names an argument of
a wrong kind, a `ValueError` one whose shape or range does not fit. Arguments are the same everywhere, where a
function says nothing else:

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

from lai_core.optimizers._adam import Adam
from lai_core.optimizers._scores import (
    adam_derivative_scores,
    adam_direction_scores,
    adam_step,
)

__all__ = [
    "Adam",
    "adam_derivative_scores",
    "adam_direction_scores",
    "adam_step",
]
