"""Influence of a sample on the validation loss: Eq. 1 and 2, and what their sign decides."""

from lai_core.influence._descent import (
    certified_learning_rate,
    descent_remainder,
    hessian_cosine_bound,
)
from lai_core.influence._hessian import (
    directional_scores,
    inner_product_scores,
    leave_one_out,
    printed_influence,
    removal_influence,
)
from lai_core.influence._identities import (
    pre_activation_gradients,
    self_votes,
    softmax_feedback,
)
from lai_core.influence._ownership import ownership_residuals

__all__ = [
    "certified_learning_rate",
    "descent_remainder",
    "directional_scores",
    "hessian_cosine_bound",
    "inner_product_scores",
    "leave_one_out",
    "ownership_residuals",
    "pre_activation_gradients",
    "printed_influence",
    "removal_influence",
    "self_votes",
    "softmax_feedback",
]
