"""The record of a convolution: Ghost unfolds patches one offset at a time, LAI reads the raw map."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lai_core._engine.axes import Axes
from lai_core._engine.checks import check_count
from lai_core._engine.factors import sum_positions
from lai_core._engine.gradients import ParameterGradient, VectorGradient, Workspace
from lai_core._engine.namespace import Array, Namespace, namespace_of
from lai_core.records._maps import Geometry as Geometry
from lai_core.records._maps import KernelGradient, Padded, Patch, lay_by_position
from lai_core.records.base import Record
from lai_core.records.dense import LayerTrace


@dataclass(frozen=True, eq=False, repr=False)
class ConvolutionTrace(Record):
    r"""One use of one convolution kernel on one batch: its input map and the gradient of its output map.

    Implements :eq:`convolution-gradient`: a convolution is a matrix used at every output position on a
    patch of the input, so its inner product is :math:`\sum_{t,t'} \langle p_{zt}, p_{jt'}\rangle
    \langle g_{zt}, g_{jt'}\rangle` within each group. Patches are never held: the kernel's offsets
    are blocks of columns, each a strided slice of the input.

    Parameters
    ----------
    activations
        Input map `(n, channels, *space)`, one to three axes of space.
    output_gradients
        Gradient of each sample's own loss with respect to the output map `(n, d_out, *out_space)`.
        None where only LAI is wanted.
    kernel
        Lengths of the kernel, one per axis of space.
    stride, dilation
        One number per axis of space.
    padding
        Zeros before and after each axis of space.
    groups
        Groups of channels that do not mix.
    bias, weight, name
        As in `LayerTrace`.
    """

    array_fields: ClassVar[Mapping[str, Axes]] = {
        "activations": Axes(("n d *space",)),
        "output_gradients": Axes(("n d *space",)),
    }

    activations: Array
    output_gradients: Array | None = None
    kernel: Sequence[int] = ()
    stride: Sequence[int] | None = None
    padding: Sequence[tuple[int, int]] | None = None
    dilation: Sequence[int] | None = None
    groups: int = 1
    bias: bool = False
    weight: Hashable = None
    name: str = ""

    def __post_init__(self) -> None:
        """Fill in the defaults, as tuples: two equal convolutions then have equal fields."""
        given = self.kernel, self.stride, self.padding, self.dilation
        try:
            axes = len(self.kernel)
            filled = {
                "kernel": tuple(self.kernel),
                "stride": (1,) * axes if self.stride is None else tuple(self.stride),
                "padding": ((0, 0),) * axes if self.padding is None else tuple(map(tuple, self.padding)),
                "dilation": (1,) * axes if self.dilation is None else tuple(self.dilation),
            }
        except TypeError as error:
            msg = (
                "kernel, stride, padding, dilation: expected one entry per axis of space, of padding a pair, "
                f"got {given}"
            )
            raise TypeError(msg) from error
        for name, values in filled.items():
            object.__setattr__(self, name, values)

    @property
    def geometry(self) -> "Geometry":
        """The convolution's shape."""
        given: Any = (self.kernel, self.stride, self.padding, self.dilation)
        return Geometry(*given)

    def check(self, where: str, xp: Namespace) -> None:
        """Raise unless the arrays fit each other and the kernel."""
        axes = len(self.kernel)
        super().check(where, xp)
        for field, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            given = getattr(self, field)
            if len(given) != axes or (field == "padding" and any(len(pair) != 2 for pair in given)):
                entry = "pair" if field == "padding" else "entry"
                msg = f"{where}.{field}: expected one {entry} per axis of space ({axes}), got {given}"
                raise ValueError(msg)
            for number in sum(given, ()) if field == "padding" else given:
                check_count(f"{where}.{field}", number, least)
        for field, array in self.arrays().items():
            if array.ndim != axes + 2:
                msg = (
                    f"{where}.{field}: expected one axis of space per kernel length {self.kernel}, "
                    f"got shape {tuple(array.shape)}"
                )
                raise ValueError(msg)
            if not isinstance(self.groups, int) or self.groups < 1 or array.shape[1] % self.groups:
                msg = (
                    f"{where}.groups: expected a positive divisor of the channels of {field} "
                    f"({array.shape[1]}), got {self.groups!r}"
                )
                raise ValueError(msg)
        if self.output_gradients is None:
            return
        expected = (self.samples(), *self.geometry.output(self.activations.shape[2:]))
        got = (self.output_gradients.shape[0], *self.output_gradients.shape[2:])
        if expected != got:
            msg = (
                f"{where}.output_gradients: expected samples and space {expected} as the kernel makes of the "
                f"activations {tuple(self.activations.shape)}, got {got}"
            )
            raise ValueError(msg)

    @property
    def matrix_shape(self) -> tuple[int, ...] | None:
        """Groups, outputs and inputs of a group, then the kernel's lengths; None without output gradients."""
        if self.output_gradients is None:
            return None
        sides = (self.output_gradients, self.activations)
        return (self.groups, *(int(side.shape[1]) // self.groups for side in sides), *self.kernel)

    def parameter_gradients(self, work: Workspace) -> Mapping[str, ParameterGradient]:
        """Return the per-sample gradients of the kernel and, where there is one, of the bias."""
        rows = lay_by_position(work.xp, self.output_gradients)
        weight = KernelGradient(
            rows,
            self._patches(work.xp),
            groups=self.groups,
            maps=self.activations,
            outputs=self.output_gradients,
            geometry=self.geometry,
        )
        return {
            "weight": weight,
            **({"bias": VectorGradient(sum_positions(work, rows))} if self.bias else {}),
        }

    def _patches(self, xp: Namespace) -> tuple[Any, ...]:
        """Return one block of columns per offset of the kernel."""
        # y(p) = sum_o W_o x(stride p + dilation o): for each offset o of the kernel a matrix W_o meets one
        # window of the padded input, so that its gradient is sum_p g(p) x(stride p + dilation o)^T.
        geometry = self.geometry
        padded = Padded(xp, self.activations, geometry.padding)
        space = geometry.output(self.activations.shape[2:])
        return tuple(Patch(padded, window) for window in geometry.windows(space))

    def readout_input(self, xp: Namespace) -> Array | None:
        """Return the input map, `(n, positions, channels)`: the readout sees pixels, not patches."""
        return lay_by_position(xp, self.activations)

    @property
    def has_readout_bias(self) -> bool:
        """Whether LAI's virtual readout from this layer has a bias: where the layer has one."""
        return bool(self.bias)

    @property
    def has_output_rows(self) -> bool:
        """Return False: the output gradients are maps, channels before space."""
        return False

    def unfolded(self) -> LayerTrace:
        """Return the record as what it is: a matrix on every patch.

        LAI and its variants read the output gradients of a trace's last record as `(n, t, d)`: this is
        how a convolution stands last. Ghost and LLI are the same of both, but the patches are held.

        Returns
        -------
        LayerTrace
            Activations `(n, positions, channels * offsets)`, a channel's offsets side by side, as in
            the flattened kernel; output gradients `(n, positions, d_out)`.

        Examples
        --------
        >>> import numpy as np
        >>> import lai_core as lai
        >>> layer = lai.ConvolutionTrace(np.ones((2, 3, 8)), np.ones((2, 4, 6)), kernel=(3,)).unfolded()
        >>> layer.activations.shape, layer.output_gradients.shape
        ((2, 6, 9), (2, 6, 4))
        """
        xp = namespace_of(self.arrays())
        self.check("layer", xp)
        patches = xp.stack([patch[:, ...] for patch in self._patches(xp)], axis=-1)
        gradients = self.output_gradients
        return LayerTrace(
            xp.reshape(patches, (*patches.shape[:2], -1)),
            None if gradients is None else lay_by_position(xp, gradients),
            bias=self.bias,
            weight=self.weight,
            groups=self.groups,
            name=self.name,
        )
