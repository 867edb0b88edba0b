"""The dense kind of record: one use of one weight matrix, `s = W a (+ b)`."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from lai_core._engine.axes import Axes
from lai_core._engine.factors import sum_positions, with_positions
from lai_core._engine.gradients import ParameterGradient, VectorGradient, Workspace
from lai_core._engine.namespace import Array, Namespace
from lai_core._engine.outer import OuterGradient
from lai_core.records.base import Record


@dataclass(frozen=True, eq=False, repr=False)
class LayerTrace(Record):
    """One use of one weight matrix on one batch: its input and the gradient of its output.

    Arrays are not copied and not looked at until they are scored, so that a record passes through
    pytree utilities and compilers.

    Parameters
    ----------
    activations
        The layer's input a^(l-1): `(n, d_in)`, or `(n, t, d_in)` where the matrix is used at t
        positions of each sample.
    output_gradients
        Gradient g^(l) of each sample's own, unnormalised loss with respect to the layer's
        pre-activation output s^(l): `(n, d_out)` or `(n, t, d_out)`. LAI and LLI need it of the last
        layer alone, Ghost of every layer.
    bias
        Whether the layer has a trainable bias, whose exact contribution is then included.
    weight
        Key of the weight matrix. Records with equal keys share one matrix and, where they have a
        bias, one bias: Ghost then has all cross terms. None: a matrix of the record's own.
    groups
        The matrix is block-diagonal with this many equal blocks over contiguous channels.
    name
        What the layer is called in messages.
    valid
        Which positions count for LAI, `(n, t)`, booleans (see `mask_positions`). None: all.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> layer = lai.LayerTrace(np.ones((8, 5, 3)), np.ones((8, 5, 2)), bias=True, name="head")
    >>> layer.groups
    1
    """

    array_fields: ClassVar[Mapping[str, Axes]] = {
        "activations": Axes(),
        "output_gradients": Axes(),
        "valid": Axes(("n t",), "bool"),
    }

    activations: Array
    output_gradients: Array | None = None
    bias: bool = False
    weight: Hashable = None
    groups: int = 1
    name: str = ""
    valid: Array | None = None

    def check(self, where: str, xp: Namespace) -> None:
        """Raise unless the arrays fit each other."""
        super().check(where, xp)
        self._check_valid(where)
        for field, array in self.arrays().items():
            if field == "valid":
                continue
            if self.groups.__class__ is not int or self.groups < 1 or array.shape[-1] % self.groups:
                msg = (
                    f"{where}.groups: expected a Python int, a positive divisor of the width of {field} "
                    f"({array.shape[-1]}), got {self.groups!r}"
                )
                raise ValueError(msg)
        if self.output_gradients is None:
            return
        expected, got = tuple(self.activations.shape[:-1]), tuple(self.output_gradients.shape[:-1])
        if expected != got:
            axes = "(n, t)" if len(expected) == 2 else "(n,)"
            msg = (
                f"{where}.output_gradients: expected the samples and positions of the activations, "
                f"{axes} = {expected}, got {got}"
            )
            raise ValueError(msg)

    def _check_valid(self, where: str) -> None:
        """Raise unless the mask is of the samples and positions of the activations."""
        expected = tuple(self.activations.shape[:-1])
        if self.valid is not None and tuple(self.valid.shape) != expected:
            msg = (
                f"{where}.valid: expected the samples and positions of the activations, {expected}, got "
                f"{tuple(self.valid.shape)}"
            )
            raise ValueError(msg)

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Shape of the matrix: groups, outputs and inputs of a group; None without output gradients."""
        if self.output_gradients is None:
            return None
        sides = (self.output_gradients, self.activations)
        return (self.groups, *(int(side.shape[-1]) // self.groups for side in sides))

    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of the weight and, where there is one, of the bias."""
        rows, columns = (
            with_positions(work.xp, array) for array in (self.output_gradients, self.activations)
        )
        weight = OuterGradient(rows, (columns,), groups=self.groups)
        if not self.bias:
            return {"weight": weight}
        return {"weight": weight, "bias": VectorGradient(sum_positions(work, self.output_gradients))}

    def readout_input(self, xp: Namespace) -> Array | None:
        """Return the activations: LAI's virtual readout sees the layer's whole input."""
        return self.activations

    @property
    def readout_positions(self) -> Array | None:
        """Which positions of the activations count."""
        return self.valid

    def masked(self, valid: Array) -> "LayerTrace":
        """Return the record with the positions that count, where it has as many."""
        read = self.has_token_positions and self.activations.ndim == 3
        return replace(self, valid=valid) if read and self.activations.shape[:2] == valid.shape else self

    @property
    def has_readout_bias(self) -> bool:
        """Whether LAI's virtual readout from this layer has a bias: where the layer has one."""
        return bool(self.bias)


@dataclass(frozen=True, eq=False, repr=False)
class ReadoutTrace(LayerTrace):
    """A layer as LAI alone sees it: its own matrix is frozen, or recorded elsewhere, so Ghost skips it.

    Parameters are those of `LayerTrace`; the outputs may have other positions than the inputs (a
    frozen convolution).

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> frozen = lai.ReadoutTrace(np.ones((2, 3)), np.ones((2, 4)))
    >>> head = lai.LayerTrace(np.ones((2, 4)), np.ones((2, 1)))
    >>> trace = lai.Trace([frozen, head])
    >>> float(lai.ghost_kernel(trace, trace)[0, 0]), float(lai.lai_kernel(trace, trace)[0, 0])
    (4.0, 7.0)
    """

    def check(self, where: str, xp: Namespace) -> None:
        """Raise unless the arrays are as declared; their positions may differ."""
        Record.check(self, where, xp)
        self._check_valid(where)

    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return no gradients: Ghost sees no parameter here."""
        return {}


@dataclass(frozen=True, eq=False, repr=False)
class ExpertTrace(LayerTrace):
    """A matrix on the rows that are routed to it, as Ghost alone sees it: LAI has no readout from them.

    Parameters are those of `LayerTrace`; positions are a sample's rows, filled up with zeros to the
    number that the sample with the most has. So the two sides may have different ones.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> expert = lai.ExpertTrace(np.ones((2, 3, 4)), np.array([[[1.0]] * 3, [[1.0], [0.0], [0.0]]]))
    >>> head = lai.LayerTrace(np.ones((2, 4)), np.zeros((2, 1)))
    >>> trace = lai.Trace([expert, head])
    >>> lai.ghost_kernel(trace, trace)  # 3 * 3, 3 * 1 and 1 * 1 pairs of rows, of 4 each
    array([[36., 12.],
           [12.,  4.]])
    """

    def readout_input(self, xp: Namespace) -> Array | None:
        """Return nothing: LAI does not see the rows."""
        return None

    @property
    def has_token_positions(self) -> bool:
        """Whether its positions are the sample's: they are rows, in the order of routing."""
        return False
