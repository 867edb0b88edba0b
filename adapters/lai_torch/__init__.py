"""lai_core for PyTorch: from a model to a trace, and back into the training loop.

As in `lai_core`, an argument of a wrong kind is a `TypeError`, one that does not fit a `ValueError`.
"""

try:
    import torch as _needed  # noqa: F401
except ModuleNotFoundError as _error:
    _message = "lai_torch: expected PyTorch, which is not installed; pip install 'lai-core[torch]' adds it"
    raise ModuleNotFoundError(_message, name="torch") from _error


from lai_core._adapters import warn_of_old_name as _warn_of_old_name
from lai_torch.curator import Curator, Weigher
from lai_torch.dataset import Scorer, score_dataset, top_samples
from lai_torch.diagnose import Diagnosis, diagnose
from lai_torch.exact import ExactScores, exact_scores
from lai_torch.integrations.sampling import MixtureSampler, MixtureStream
from lai_torch.integrations.spikes import SpikeMonitor, SpikeRule
from lai_torch.options import (
    LAI,
    LLI,
    CalibratedLAI,
    Exact,
    GateLAI,
    Ghost,
    KeptOptions,
    Midpoint,
    PreconditionedLAI,
)
from lai_torch.options.policies import GroupFloor, KeepBelowLoss, Scheduled, draw
from lai_torch.report import Report, ScoredReport
from lai_torch.segments import check_segments, segment_scores
from lai_torch.selfcheck import SelfCheck, check_per_sample_gradients, selfcheck
from lai_torch.trace import (
    Coverage,
    GateTrace,
    PerSampleNorms,
    coverage,
    per_sample_inner_products,
    per_sample_norms,
    trace,
    trace_gates,
)

__all__ = [
    "LAI",
    "LLI",
    "CalibratedLAI",
    "Coverage",
    "Curator",
    "Diagnosis",
    "Exact",
    "ExactScores",
    "GateLAI",
    "GateTrace",
    "Ghost",
    "GroupFloor",
    "KeepBelowLoss",
    "KeptOptions",
    "Midpoint",
    "MixtureSampler",
    "MixtureStream",
    "PerSampleNorms",
    "PreconditionedLAI",
    "Report",
    "Scheduled",
    "ScoredReport",
    "Scorer",
    "SelfCheck",
    "SpikeMonitor",
    "SpikeRule",
    "Weigher",
    "check_per_sample_gradients",
    "check_segments",
    "coverage",
    "diagnose",
    "draw",
    "exact_scores",
    "per_sample_inner_products",
    "per_sample_norms",
    "score_dataset",
    "segment_scores",
    "selfcheck",
    "top_samples",
    "trace",
    "trace_gates",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name == "Kept":
        _warn_of_old_name("Kept", "KeptOptions")
        return KeptOptions
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
