r"""Appendix C: Ghost as signal plus noise, LAI as signal alone, and which of them varies more.

* Ghost and LAI outcome by outcome, and moments of what takes finitely many values: `signal_and_noise`,
  `ghost_signal_noise`, `lai_signal`, `expectation`, `covariances`.
* Their variances from moments, with every covariance: `ghost_variance`, `lai_variance`, `noise_variance`,
  and the printed one that drops a term.
* Bounds on Ghost's variance from below and above: `minkowski_lower_bound`, `signed_covariance_bound`,
  `variance_order`.
* Which of the two varies more: `regression_gain`, `variance_criterion`, `unit_gain_difference`,
  `scale_free_variance`.

Throughout, :math:`\beta^{(l)} = c_l \beta^\star + \varepsilon^{(l)}` for one validation sample z and one
training sample j, with gains :math:`c_l` and :math:`\beta^\star = \beta^{(L)}`; the
:math:`\alpha^{(l)}` are numbers unless said otherwise. :math:`X = (\sum_l \alpha^{(l)} c_l)\beta^\star`
and :math:`Y = \sum_l \alpha^{(l)} \varepsilon^{(l)}`, so that Ghost is X + Y (with the printed minus,
-X - Y). Random variables are given by the values they take, along the last axis, and the probabilities of
these outcomes. A `TypeError` names an argument of a wrong kind, a `ValueError` one whose shape or range
does not fit. Arguments are the same everywhere, where a function says nothing else:

Parameters
----------
alpha, gains, weights
    :math:`\alpha^{(l)}`, :math:`c_l` and layer weights :math:`w_l`, of which plain LAI has 1.
similarities, remainders
    :math:`\beta^{(l)}`, the last row :math:`\beta^\star`, and :math:`\varepsilon^{(l)}`, in each outcome.
shared
    :math:`\beta^\star` in each outcome.
probabilities
    Of the outcomes, summing to 1 (not checked).
signal_mean, signal_variance, signal_second_moment
    :math:`E\beta^\star`, :math:`\mathrm{Var}\,\beta^\star` and :math:`E\beta^{\star 2}`.
noise, covariance
    :math:`\mathrm{Var}\,Y` and :math:`\mathrm{Cov}(\beta^\star, Y)`.
signal_covariance, noise_covariance
    :math:`\mathrm{Cov}(\beta^\star, \varepsilon^{(l)})` and
    :math:`\mathrm{Cov}(\varepsilon^{(l)}, \varepsilon^{(k)})`.
"""

from lai_core.variance._comparison import (
    ghost_variance_lower_bound,
    minkowski_lower_bound,
    regression_gain,
    scale_free_variance,
    signed_covariance_bound,
    unit_gain_difference,
    variance_criterion,
    variance_order,
)
from lai_core.variance._identities import (
    covariances,
    expectation,
    ghost_signal_noise,
    ghost_variance,
    lai_signal,
    lai_variance,
    noise_variance,
    printed_ghost_variance,
    random_weight_sum,
    signal_and_noise,
)

__all__ = [
    "covariances",
    "expectation",
    "ghost_signal_noise",
    "ghost_variance",
    "ghost_variance_lower_bound",
    "lai_signal",
    "lai_variance",
    "minkowski_lower_bound",
    "noise_variance",
    "printed_ghost_variance",
    "random_weight_sum",
    "regression_gain",
    "scale_free_variance",
    "signal_and_noise",
    "signed_covariance_bound",
    "unit_gain_difference",
    "variance_criterion",
    "variance_order",
]
