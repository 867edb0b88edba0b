"""What the recorder notes down: a parameter, and one use of it."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from lai_torch._model.sample_axis import SampleAxis
from lai_torch._recording.watching.probes import Probe

READ_BY_LAI = ("dense", "convolution")
"""Kinds of use that LAI has a virtual readout from."""


@dataclass(frozen=True)
class Source:
    """A parameter, or a tensor computed from parameters alone."""

    tensor: Tensor
    names: tuple[str, ...]
    whole: bool

    @property
    def name(self) -> str:
        """What the source is called in messages and records."""
        return self.names[0]


@dataclass(eq=False)
class Use:
    """One use of a parameter on a batch."""

    # `dense`, `convolution`, `embedding`; `direct`, for a copy of the parameter per sample; or
    # `operation`, for any other function, whose output gradient is pulled back sample by sample
    kind: str
    weight: Source  # weight, bias: what is used
    probe: Probe  # where the output gradient arrives; of a direct use, the copies' own gradient
    # what it is used on: the input of a layer, the ids of an embedding, the copies of a direct use; of
    # an operation, its output, on the graph that leads to the leaf in `options`
    activations: Tensor
    bias: Source | None = None
    transposed: bool = False  # whether a dense use is `a W` rather than `a W^T`
    options: dict[str, Any] = field(default_factory=dict)  # what else a convolution or an embedding needs
    batch_axis: int | None = None  # where the samples most likely are
    # derivative of the next layer's input with respect to this layer's output, entry by entry, where
    # that was asked for
    gates: Tensor | None = None
    # how many axes the activations had before their features, where they are means over positions by
    # now, samples first; else None
    averaged_from: int | None = None
    # where the samples are, if an earlier recording of the same call told; else None
    place: SampleAxis | None = None
    version: int = field(init=False)  # how often the activations had been written to when they were read

    def __post_init__(self) -> None:
        self.version = self.activations._version

    def again(self, activations: Tensor, probe: Probe) -> "Use":
        """Return the use that the same call is on another batch, on activations of the same shape."""
        found = object.__new__(Use)  # its fields are this one's: a fifth of the time
        found.__dict__.update(self.__dict__)
        found.activations, found.probe, found.version = activations, probe, activations._version
        return found

    def at(self, place: SampleAxis) -> "Use":
        """Return the same use with the samples at a place that is known."""
        found = self.again(self.activations, self.probe)
        found.place = place
        return found

    @property
    def leading(self) -> tuple[int, ...]:
        """The axes among which the samples are looked for."""
        shape = tuple(self.activations.shape)
        return {"dense": shape[:-1], "convolution": shape[:1]}.get(self.kind, shape)

    def flat(self, gradient: Tensor) -> Tensor:
        """Return an output gradient with one axis of features behind the `leading` ones."""
        if self.kind == "convolution":
            return gradient.flatten(1)
        return gradient.unsqueeze(-1) if self.kind in {"direct", "operation"} else gradient

    @cached_property
    def signature(self) -> tuple[str, str, int]:
        """What later recordings of the same model must share: the kind, the parameter, the axes."""
        axes = len(self.leading) if self.averaged_from is None else self.averaged_from
        return self.kind, self.weight.name, axes

    @property
    def name(self) -> str:
        """The layer's name: that of its weight, without the last word."""
        return self.weight.name.removesuffix(".weight")
