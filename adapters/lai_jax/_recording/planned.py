"""One record of a trace before it holds any number."""

from dataclasses import dataclass

from lai_jax._program.program import Use
from lai_jax._program.views import View

Iteration = tuple[int, ...]
"""Which pass through each of the loops around an operation."""


@dataclass(frozen=True)
class PlannedRecord:
    """One record of a trace: a use of a weight, in one iteration of the loops around it."""

    use: Use  # where
    iteration: Iteration | None  # of the loops around it; None where the iterations are positions
    name: str  # what the record is called
    key: str | None = None  # name of the matrix if several records share it
    transposed: bool = False  # whether it is used the other way round than the shared matrix
    biased: bool = False  # whether a bias is added to it
    bias: Use | None = None  # the use of that bias, if its gradient is told by this record
    materialised: bool = False  # whether the weight's gradient is not made of this record's factors

    @property
    def seen_by_lai_alone(self) -> bool:
        """Whether Ghost learns nothing from it: the weight is frozen, or its gradient is materialised."""
        return self.materialised or self.use.frozen

    def view(self, operand: View | None) -> View | None:
        """Return what this iteration sees of an operand; None where the positions see other parts each."""
        if operand is None or (self.iteration is None and any(operand.loops)):
            return None
        return operand.at(self.iteration or (0,) * len(operand.loops))
