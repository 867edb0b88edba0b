r"""Appendix B, "LAI is an approximation of Ghost": the printed gap and bounds, and those that hold.

* The printed statements (`gap`, `pair_gap_bound`, `conservative_bound`, ...): two of them do not hold for
  LAI, `geometric_bound_as_printed` and the reading of `lli_relative_bound` for LAI. What holds in their
  place: `lli_gap_bound`, `sharp_conservative_bound`, the bounds `..._without_alignment`.
* How far LAI and LLI are from Ghost in terms of how similarities decay through the layers, sharply:
  `lai_gap_range`, `ghost_over_lai_range`, `relative_error_bound`, `relative_limit`.
* What an approximate score guarantees about selection: `selection_regret_bound`.

There are L layers. :math:`\alpha^{(l)}_{zj}` and :math:`\beta^{(l)}_{zj}` are the similarities of layer
inputs and of output gradients, and rho, C_a and alpha_bar the constants of the assumptions
(`lai_core.assumptions`). Scores are positive for samples that help: Ghost's is
:math:`\sum_z\sum_l\alpha^{(l)}\beta^{(l)}`, LAI's :math:`\sum_z(\sum_l\alpha^{(l)})\beta^{(L)}` and LLI's
:math:`\sum_z\alpha^{(L)}\beta^{(L)}`; the printed influences are their negatives, and absolute gaps are the
same. Sums over powers of rho are computed as sums, so that every bound is right for rho = 1 and above, too.
Arrays over layers have the bottom layer first. A `TypeError` names an argument of a wrong kind, a
`ValueError` one whose shape or range does not fit.

A bound on a gap or on similarities is at least their absolute value, one from both sides is the smallest and
the largest value. Arguments are the same everywhere, where a function says nothing else:

Parameters
----------
alpha, beta
    Similarities of layer inputs and of output gradients.
beta_last
    The last layer's beta.
validation_norms, training_norms
    Norms of the last layer's output gradients.
rho
    The rate of A1.
C_a
    The largest norm of a layer's input, of A2.
alpha_bar
    The smallest alpha of the last layer.
depth
    The number of layers L.
low, high
    m and M, not negative: bounds on the ratios of the layers' similarities to the last layer's.
scores, approximation
    Exact and approximate scores; positive helps.
"""

from lai_core.bounds._corrected import (
    aligned_similarity_bound,
    lai_gap_bound_without_alignment,
    lli_gap_bound,
    lli_gap_bound_without_alignment,
    lli_relative_bound,
    sharp_conservative_bound,
)
from lai_core.bounds._printed import (
    conservative_bound,
    decay_powers,
    gap,
    geometric_bound_as_printed,
    geometric_sum,
    lai_lower_bound,
    norm_product_bound,
    pair_gap_bound,
    printed_ghost_influence,
    printed_lai_influence,
    relative_conservative_bound,
)
from lai_core.bounds._ranking import (
    selection_regret,
    selection_regret_bound,
)
from lai_core.bounds._ratios import (
    ghost_over_lai_range,
    lai_gap_range,
    mean_ratio,
    relative_error_bound,
    relative_limit,
)

__all__ = [
    "aligned_similarity_bound",
    "conservative_bound",
    "decay_powers",
    "gap",
    "geometric_bound_as_printed",
    "geometric_sum",
    "ghost_over_lai_range",
    "lai_gap_bound_without_alignment",
    "lai_gap_range",
    "lai_lower_bound",
    "lli_gap_bound",
    "lli_gap_bound_without_alignment",
    "lli_relative_bound",
    "mean_ratio",
    "norm_product_bound",
    "pair_gap_bound",
    "printed_ghost_influence",
    "printed_lai_influence",
    "relative_conservative_bound",
    "relative_error_bound",
    "relative_limit",
    "selection_regret",
    "selection_regret_bound",
    "sharp_conservative_bound",
]
