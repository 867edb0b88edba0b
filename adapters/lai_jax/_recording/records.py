"""Kinds of record that only arise from programs."""

from collections.abc import Mapping
from dataclasses import dataclass

from lai_core import LayerTrace, ReadoutTrace
from lai_core._engine.gradients import ParameterGradient, Workspace
from lai_core._engine.namespace import Namespace
from lai_core._engine.outer import OuterGradient
from lai_core._engine.positions import with_positions


@dataclass(frozen=True, eq=False)
class TransposedTrace(LayerTrace):
    """A use of a shared matrix the other way round: `s = W^T a` where other records have `s = W a`.

    Parameters and errors are those of `LayerTrace`; there is no bias.
    """

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Shape of W: groups, and the outputs and inputs of the records that use it straight."""
        shape = super().matrix_shape
        return None if shape is None else (shape[0], shape[2], shape[1])

    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of W: activations as rows, output gradients as columns."""
        rows, columns = (
            with_positions(work.xp, array) for array in (self.activations, self.output_gradients)
        )
        return {"weight": OuterGradient(rows, (columns,), groups=self.groups)}


@dataclass(frozen=True, eq=False)
class MapTrace(ReadoutTrace):
    """A convolution as LAI alone sees it: input and output maps, whose numbers of positions may differ.

    Parameters and errors are those of `LayerTrace`.
    """

    def check(self, where: str, xp: Namespace) -> None:
        """Raise unless the arrays fit each other, positions aside."""
        for field, array in self.arrays().items():
            LayerTrace(array, name=self.name).check(f"{where}.{field}", xp)
