"""From scores to weights, and how sure the scores are of their sign."""

from lai_core.estimators.policies._intervals import drop_harmful, score_intervals, standard_errors
from lai_core.estimators.policies._weights import (
    keep_all,
    keep_positive,
    keep_top,
    reweight,
    sampling_probabilities,
    top_count,
)

__all__ = [
    "drop_harmful",
    "keep_all",
    "keep_positive",
    "keep_top",
    "reweight",
    "sampling_probabilities",
    "score_intervals",
    "standard_errors",
    "top_count",
]
