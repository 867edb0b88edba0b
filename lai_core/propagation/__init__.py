r"""Noise propagation: how output gradients travel down the layers, and what noise does on the way.

Throughout, layer l has pre-activations :math:`s^{(l)}`, each sample x its gradients
:math:`g^{(l)}_x`, and :math:`J^{(l)}_x` of shape `(d_(l-1), d_l)` maps :math:`g^{(l)}_x` to
:math:`g^{(l-1)}_x`: it is the transposed Jacobian of :math:`s^{(l)}` in :math:`s^{(l-1)}`. A list
called `jacobians`, `means` or `deviations` holds the matrices of the layers l+1, ..., L, in this
order, so that their product is the operator :math:`A^{(l)}_x`. Leading axes of all arrays broadcast.
"""

from lai_core.propagation._noise import (
    jacobian_noise_bound,
    jacobian_noise_variance,
    measured_gains,
    propagated_moments,
    similarity_variance_as_printed,
)
from lai_core.propagation._operators import (
    backward_operator,
    layer_jacobian,
    separating_operator,
    vjp_recursion,
)
from lai_core.propagation._perturbation import (
    first_order_norm_bound,
    first_order_perturbation,
    gain_product,
    jacobian_split,
    perturbation_norm_bound,
    telescoping_perturbation,
)
from lai_core.propagation._random_weights import (
    RandomLayer,
    linear_random_weights_variance,
    random_weights_moments,
    random_weights_variance,
)
from lai_core.propagation._remainder import (
    printed_remainder,
    remainder_terms,
    similarity_decomposition,
)
from lai_core.propagation._similarity import (
    gradient_decomposition,
    isotropic_gain,
    layer_similarities,
    output_fluctuation,
    shared_signal,
    similarity_operator,
    trace_gain,
)

__all__ = [
    "RandomLayer",
    "backward_operator",
    "first_order_norm_bound",
    "first_order_perturbation",
    "gain_product",
    "gradient_decomposition",
    "isotropic_gain",
    "jacobian_noise_bound",
    "jacobian_noise_variance",
    "jacobian_split",
    "layer_jacobian",
    "layer_similarities",
    "linear_random_weights_variance",
    "measured_gains",
    "output_fluctuation",
    "perturbation_norm_bound",
    "printed_remainder",
    "propagated_moments",
    "random_weights_moments",
    "random_weights_variance",
    "remainder_terms",
    "separating_operator",
    "shared_signal",
    "similarity_decomposition",
    "similarity_operator",
    "similarity_variance_as_printed",
    "telescoping_perturbation",
    "trace_gain",
    "vjp_recursion",
]
