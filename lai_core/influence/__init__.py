r"""Section 3: what a training sample does to the validation loss, and what the sign of a score decides.

* Eq. 1 with an explicit Hessian, as it is printed and with the sign of a removal: `removal_influence`,
  `printed_influence`.
* Eq. 2, the inner product of gradients, and what it promises for one step: `inner_product_scores`,
  `directional_scores`, `descent_remainder`, `certified_learning_rate`.
* Where the factors of Ghost come from and what they cancel: `pre_activation_gradients`, `self_votes`,
  `ownership_residuals`.

Gradients are flat: one row of `p` numbers for each sample, of the sample's own, unnormalised loss. Scores
are positive for samples that help. A `TypeError` names an argument of a wrong kind, a `ValueError` one whose
shape or range does not fit. Arguments are the same everywhere, where a function says nothing else:

Parameters
----------
validation_gradients, training_gradients
    Gradients of the samples' own losses at the same parameters.
hessian, damping
    As in `removal_influence`.
learning_rate
    :math:`\eta`, positive.
smoothness
    :math:`\lambda`, a Lipschitz constant of the gradient of the summed validation loss.
"""

from lai_core.influence._hessian import (
    certified_learning_rate,
    descent_remainder,
    directional_scores,
    inner_product_scores,
    printed_influence,
    removal_influence,
)
from lai_core.influence._identities import (
    ownership_residuals,
    pre_activation_gradients,
    self_votes,
)

__all__ = [
    "certified_learning_rate",
    "descent_remainder",
    "directional_scores",
    "inner_product_scores",
    "ownership_residuals",
    "pre_activation_gradients",
    "printed_influence",
    "removal_influence",
    "self_votes",
]
