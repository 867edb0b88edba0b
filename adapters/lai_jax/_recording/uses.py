"""One use of one weight by the program."""

from dataclasses import dataclass

from lai_jax._program.program import Site
from lai_jax._program.views import View

Iteration = tuple[int, ...]
"""Which pass through each of the loops around an operation."""


@dataclass(frozen=True)
class Use:
    """One use of one weight: a record of the trace.

    Parameters
    ----------
    site
        Where.
    iteration
        Of the loops around it; None where the iterations are positions.
    name
        What the record is called.
    key
        Name of the matrix if several uses share it.
    transposed
        Whether it is used the other way round than the shared matrix.
    bias
        Whether its bias belongs to it.
    built
        Whether the weight's gradient is not made of this record's factors.
    """

    site: Site
    iteration: Iteration | None
    name: str
    key: str | None = None
    transposed: bool = False
    bias: bool = False
    built: bool = False

    def view(self, operand: View | None) -> View | None:
        """Return what this iteration sees of an operand of the same loops."""
        return None if operand is None else operand.at(self.iteration or (0,) * len(operand.loops))
