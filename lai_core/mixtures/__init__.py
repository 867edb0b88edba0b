"""Decide by source: mean scores of data sources, and mixture weights that follow them while a model trains.

One training step on a mixture of sources with weights w moves the next validation loss by minus the learning
rate times the mean score of source k, per unit of w_k. `group_scores` computes these means with their
standard errors, `Mixture` moves the weights by them.

A `TypeError` names an argument of a wrong kind, a `ValueError` one whose shape or range does not fit.
"""

from lai_core.mixtures._evidence import (
    cochran_q,
    contrast_variances,
    group_scores,
    group_sizes,
    hedge_step_size,
    shrink_contrasts,
)
from lai_core.mixtures._mixture import (
    Mixture,
    MixtureState,
    MixtureUpdate,
    initial_mixture,
    update_mixture,
)

__all__ = [
    "Mixture",
    "MixtureState",
    "MixtureUpdate",
    "cochran_q",
    "contrast_variances",
    "group_scores",
    "group_sizes",
    "hedge_step_size",
    "initial_mixture",
    "shrink_contrasts",
    "update_mixture",
]
