"""The kind of record that only arises from programs, written by public names alone as one's own would be."""

from collections.abc import Mapping
from dataclasses import dataclass

from lai_core.records import LayerTrace, OuterGradient, ParameterGradient, Workspace, with_positions


@dataclass(frozen=True, eq=False, repr=False)
class TransposedTrace(LayerTrace):
    """A use of a shared matrix the other way round: `s = W^T a` where other records have `s = W a`.

    Parameters and errors are those of `LayerTrace`.
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
        turned = OuterGradient(rows, (columns,), groups=self.groups)
        return {**super().parameter_gradients(work), "weight": turned}
