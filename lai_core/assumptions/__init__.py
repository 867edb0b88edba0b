r"""What Appendix B assumes of a network and a batch (A1 to A3), measured layer by layer and pair by pair.

* The similarities and norms that every bound is made of: `similarities`.
* A1, gradient norms decay downwards: `decay_rate`. A2, bounded activations: `activation_bound`. A3,
  gradients never oppose each other: `cosines`, `smallest_cosine`, and its non-expansive variant,
  `alignment_excess`.
* All of them at once, each with its margin: `measure_assumptions`.

Each is a statement about a network *and* a batch; measured, it gives constants with which the bounds of
`lai_core.bounds` may be evaluated. Arrays over layers have the bottom layer first. A `TypeError` names an
argument of a wrong kind, a `ValueError` one whose shape or range does not fit. Arguments are the same
everywhere, where a function says nothing else:

Parameters
----------
beta
    Gradient similarities.
norms, validation_norms, training_norms
    Norms of the output gradients.
cosines
    What `cosines` returned.
"""

from lai_core.assumptions._measured import (
    AssumptionReport,
    activation_bound,
    alignment_excess,
    cosines,
    decay_rate,
    measure_assumptions,
    smallest_cosine,
)
from lai_core.assumptions._similarities import Similarities, similarities

__all__ = [
    "AssumptionReport",
    "Similarities",
    "activation_bound",
    "alignment_excess",
    "cosines",
    "decay_rate",
    "measure_assumptions",
    "similarities",
    "smallest_cosine",
]
