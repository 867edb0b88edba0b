"""Options of a curator: estimators, passes and policies, each a dataclass."""

from lai_torch.options.estimators import (
    LAI,
    LLI,
    CalibratedLAI,
    Estimator,
    EstimatorName,
    Exact,
    GateLAI,
    Ghost,
    Midpoint,
    PreconditionedLAI,
    with_defaults,
)
from lai_torch.options.passes import KeptOptions
from lai_torch.options.policies import (
    GroupFloor,
    KeepBelowLoss,
    Scheduled,
    draw,
)
from lai_torch.options.protocols import Policy

__all__ = [
    "LAI",
    "LLI",
    "CalibratedLAI",
    "Estimator",
    "EstimatorName",
    "Exact",
    "GateLAI",
    "Ghost",
    "GroupFloor",
    "KeepBelowLoss",
    "KeptOptions",
    "Midpoint",
    "Policy",
    "PreconditionedLAI",
    "Scheduled",
    "draw",
    "with_defaults",
]
