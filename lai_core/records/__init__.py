"""What was recorded of a batch: one record for each use of a parameter, and the trace that holds them.

Everything that a kind of record of one's own takes is here: derive a frozen dataclass from `Record`, or from
a kind that is nearly it, declare its arrays (`Axes`) and return its `ParameterGradient`, mostly an
`OuterGradient` (a matrix, from two factors) or a `VectorGradient` (anything else, as it is).
"""

from lai_core._engine.axes import Axes
from lai_core._engine.factors import sum_positions, with_positions
from lai_core._engine.gradients import ParameterGradient, VectorGradient, Workspace
from lai_core._engine.outer import OuterGradient
from lai_core.records.base import Record, Trace
from lai_core.records.convolution import ConvolutionTrace
from lai_core.records.dense import ExpertTrace, LayerTrace, ReadoutTrace
from lai_core.records.embedding import EmbeddingTrace, GainTrace

__all__ = [
    "Axes",
    "ConvolutionTrace",
    "EmbeddingTrace",
    "ExpertTrace",
    "GainTrace",
    "LayerTrace",
    "OuterGradient",
    "ParameterGradient",
    "ReadoutTrace",
    "Record",
    "Trace",
    "VectorGradient",
    "Workspace",
    "sum_positions",
    "with_positions",
]
