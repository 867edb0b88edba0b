"""lai_core for JAX: from any function of parameters to a trace, and back into the training loop.

As in `lai_core`, an argument of a wrong kind is a `TypeError`, one that does not fit a `ValueError`.
"""

try:
    import jax as _needed  # noqa: F401
except ModuleNotFoundError as _error:
    _message = "lai_jax: expected JAX, which is not installed; pip install 'lai-core[jax]' adds it"
    raise ModuleNotFoundError(_message, name="jax") from _error


from lai_jax._curation.mixture_batches import MixtureBatches
from lai_jax.curated_update import Report, curated_update, score
from lai_jax.dataset import Scorer, score_dataset, top_samples
from lai_jax.diagnose import Diagnosis, diagnose
from lai_jax.exact import exact_scores
from lai_jax.pytrees import register_record
from lai_jax.segments import check_segments, segment_scores
from lai_jax.selfcheck import SelfCheck, check_per_sample_gradients, selfcheck
from lai_jax.spikes import SpikeMonitor, SpikeRule
from lai_jax.summarize import summarize
from lai_jax.trace import (
    Coverage,
    GateTrace,
    coverage,
    per_sample_inner_products,
    per_sample_norms,
    trace,
    trace_gates,
)
from lai_jax.validation import Sketch, Validation, draw_sketch

__all__ = [
    "Coverage",
    "Diagnosis",
    "GateTrace",
    "MixtureBatches",
    "Report",
    "Scorer",
    "SelfCheck",
    "Sketch",
    "SpikeMonitor",
    "SpikeRule",
    "Validation",
    "check_per_sample_gradients",
    "check_segments",
    "coverage",
    "curated_update",
    "diagnose",
    "draw_sketch",
    "exact_scores",
    "per_sample_inner_products",
    "per_sample_norms",
    "register_record",
    "score",
    "score_dataset",
    "segment_scores",
    "selfcheck",
    "summarize",
    "top_samples",
    "trace",
    "trace_gates",
]


def __dir__() -> list[str]:
    return sorted(__all__)
