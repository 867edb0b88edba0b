"""What the appendix on approximation assumes (A1 to A3), measured on a batch."""

from lai_core.assumptions._measured import (
    AssumptionReport,
    activation_bound,
    alignment_excess,
    cosines,
    decay_floor,
    decay_rate,
    measure_assumptions,
    smallest_cosine,
)
from lai_core.assumptions._similarities import (
    Similarities,
    similarities,
)

__all__ = [
    "AssumptionReport",
    "Similarities",
    "activation_bound",
    "alignment_excess",
    "cosines",
    "decay_floor",
    "decay_rate",
    "measure_assumptions",
    "similarities",
    "smallest_cosine",
]
