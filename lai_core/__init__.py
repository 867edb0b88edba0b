"""Layer-aware influence: which samples of a training batch help and which hurt, on any array backend.

Scores are positive for samples that help: to first order, one SGD step of unit learning rate on
sample j, on the parameters that the estimator sees, lowers the summed validation loss by score j.

Arguments are checked from shapes and types alone: one of a wrong kind is a `TypeError`, one that does not fit
a `ValueError`, and both name the argument, what was expected, what came, and where there is one the way out.
"""

from lai_core.estimators.by_position import position_scores, segment_scores
from lai_core.estimators.checks import check_values, fitting_positions
from lai_core.estimators.kernels import ghost_kernel, lai_kernel, lli_kernel
from lai_core.estimators.policies import (
    drop_harmful,
    keep_all,
    keep_positive,
    keep_top,
    reweight,
    sampling_probabilities,
    standard_errors,
)
from lai_core.estimators.preconditioned import (
    preconditioned_lai_scores,
    update_input_second_moments,
    update_second_moment,
)
from lai_core.estimators.scores import ghost_scores, lai_scores, lli_scores, self_influence
from lai_core.estimators.summaries import ValidationSummary, summarize
from lai_core.mixtures import Mixture
from lai_core.records.base import Record, Trace, mask_positions
from lai_core.records.convolution import ConvolutionTrace
from lai_core.records.dense import ExpertTrace, LayerTrace, ReadoutTrace
from lai_core.records.embedding import EmbeddingTrace, GainTrace

__version__ = "0.1.0"

__all__ = [
    "ConvolutionTrace",
    "EmbeddingTrace",
    "ExpertTrace",
    "GainTrace",
    "LayerTrace",
    "Mixture",
    "ReadoutTrace",
    "Record",
    "Trace",
    "ValidationSummary",
    "check_values",
    "drop_harmful",
    "fitting_positions",
    "ghost_kernel",
    "ghost_scores",
    "keep_all",
    "keep_positive",
    "keep_top",
    "lai_kernel",
    "lai_scores",
    "lli_kernel",
    "lli_scores",
    "mask_positions",
    "position_scores",
    "preconditioned_lai_scores",
    "reweight",
    "sampling_probabilities",
    "segment_scores",
    "self_influence",
    "standard_errors",
    "summarize",
    "update_input_second_moments",
    "update_second_moment",
]
