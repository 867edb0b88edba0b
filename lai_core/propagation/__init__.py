r"""Appendix A: how output gradients travel down the layers, and what noise does on the way.

* The chain of Jacobians and its product, skips included: `layer_jacobian`, `vjp_recursion`,
  `backward_operator`, `separating_operator`.
* A systematic part and a rest, and what the rest does to the product: `jacobian_split`,
  `telescoping_perturbation`, `perturbation_norm_bound`, beside the printed first order.
* A layer's similarity as gain times shared signal plus remainder: `similarity_decomposition`, `trace_gain`,
  `remainder_terms`.
* Its variance under independent noise in the Jacobians, `jacobian_noise_variance` and its bound, and over
  random weights, `random_weights_variance`.

Layer l has pre-activations :math:`s^{(l)}`, each sample x its gradients :math:`g^{(l)}_x`, and
:math:`J^{(l)}_x`, with one row for each unit of layer l-1 and one column for each of layer l, maps
:math:`g^{(l)}_x` to :math:`g^{(l-1)}_x`: it is the transposed Jacobian of :math:`s^{(l)}` in
:math:`s^{(l-1)}`. A list called `jacobians`, `means` or `deviations` holds the matrices of the layers
l+1, ..., L, in this order, so that their product is the operator :math:`A^{(l)}_x`. Leading axes of all
arrays broadcast. A `TypeError` names an argument of a wrong kind, a `ValueError` one whose shape or range
does not fit, as of matrices that do not multiply. Arguments are the same everywhere, where a function says
nothing else, and t = l+1, ..., L:

Parameters
----------
jacobians
    The :math:`J^{(t)}`.
means, deviations
    Systematic parts :math:`\bar J^{(t)}` and rests :math:`\Delta J^{(t)}`.
validation_deviations, training_deviations
    :math:`\Delta J^{(t)}` of z and of j.
laws
    Of each :math:`J^{(t)}`, the outcomes and their probabilities.
probabilities
    Of the outcomes, summing to 1 (not checked).
operator
    :math:`M^{(l)}_{zj}`.
gain
    c.
gains, perturbations
    :math:`\rho_t \ge \|\bar J^{(t)}\|_2` and :math:`\delta_t \ge \|\Delta J^{(t)}\|_2`.
output_gradient, output_gradients
    :math:`g^{(L)}`, fixed, or its outcomes.
validation, training
    :math:`g^{(L)}` of z and of j.
validation_norm, training_norm
    :math:`\|g^{(L)}_z\|` and :math:`\|g^{(L)}_j\|`.
clean, fluctuation
    :math:`g^\star` and :math:`\xi`.
layers
    From layer l up to layer L-1: each with the weights above it.
norms, similarity
    :math:`\|g^{(L)}_z\|^2 \|g^{(L)}_j\|^2` and :math:`\beta^{(L)}`.
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
    first_order_norm_bound,
    first_order_perturbation,
    gain_product,
    jacobian_split,
    layer_jacobian,
    perturbation_norm_bound,
    separating_operator,
    telescoping_perturbation,
    vjp_recursion,
)
from lai_core.propagation._random_weights import (
    RandomLayer,
    linear_random_weights_variance,
    random_weights_moments,
    random_weights_variance,
)
from lai_core.propagation._similarity import (
    gradient_decomposition,
    isotropic_gain,
    layer_similarities,
    output_fluctuation,
    printed_remainder,
    remainder_terms,
    shared_signal,
    similarity_decomposition,
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
