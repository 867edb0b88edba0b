"""What the recorder notes down: a parameter, a use of it, a probe on its output, and the gates of a chain.

The input of layer l + 1 is a function of the output s of layer l. Where that function works entry by
entry, its Jacobian is the diagonal of the gates phi'(s), which one product with ones reads off. A
second product, with powers of two, is then those powers times the gates, bit for bit in every type:
a float times a power of two is not rounded. Two entries that mix, by however little, show wherever
their powers differ.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lai_core._adapters import not_a_chain
from lai_torch._model.sample_axis import SampleAxis, differ, powers_of_two

HIDDEN = "a function that cannot be watched"


class Probe:
    """Where one output's gradients are received.

    Attributes
    ----------
    gradient
        The gradient of the summed losses with respect to the output; None if none arrived.
    second
        Likewise of the losses weighted sample by sample.
    into
        Which of the two the gradients that arrive are; None: neither.
    """

    def __init__(self) -> None:
        self.gradient: Tensor | None = None
        self.second: Tensor | None = None
        self.into: str | None = "gradient"

    def receive(self, gradient: Tensor) -> None:
        """Keep the gradient."""
        if self.into is not None:
            setattr(self, self.into, gradient.detach())


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, leaf: Tensor, probe: Probe) -> Tensor:
        ctx.probe = probe
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        ctx.probe.receive(gradients[0])
        return gradients[0], None, None


def attach(output: Tensor, leaf: Tensor) -> tuple[Tensor, Probe]:
    """Attach a probe to a new `output` in place, so that a later in-place activation does not hide it.

    `leaf` is a leaf that requires a gradient: differentiating with respect to it makes every
    gradient arrive at its probe, without one for any parameter.
    """
    if output._is_view():
        output = torch.ops.aten._unsafe_view.default(output, output.shape)
    probe = Probe()
    return _Read.apply(output, leaf, probe), probe


class Ends:
    """What a loss reaches without passing a probe.

    Attributes
    ----------
    probes
        The probes themselves: those of the final layers.
    leaves
        Leaves of the graph by their identity.
    """

    def __init__(self, loss: Tensor) -> None:
        self.probes: list[Probe] = []
        self.leaves: dict[int, Tensor] = {}
        for node in _walk(loss.grad_fn):
            if (probe := getattr(node, "probe", None)) is not None and probe not in self.probes:
                self.probes.append(probe)
            if (leaf := getattr(node, "variable", None)) is not None:
                self.leaves[id(leaf)] = leaf


def leaves(loss: Tensor) -> list[Tensor]:
    """Return the leaves that `loss` is computed from."""
    return [node.variable for node in _walk(loss.grad_fn, past_probes=True) if hasattr(node, "variable")]


def _walk(start: Any, *, past_probes: bool = False) -> Iterator[Any]:
    """Yield the nodes of an autograd graph, going past one that has a probe or not."""
    pending, seen = [start], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if past_probes or getattr(node, "probe", None) is None:
            pending.extend(before for before, _ in node.next_functions)


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


def gates_between(
    before: Use, inputs: Tensor, probe_leaves: Sequence[Tensor], name: str, dtypes: set[torch.dtype]
) -> Tensor:
    """Return the gates between the layer `before` and the layer `name`, `(n, d)`.

    `dtypes` are the types that the model computes in.

    Raises
    ------
    ValueError
        If `inputs` is not the output of the layer before, put through a function entry by entry.
    """
    if not inputs.requires_grad or Ends(inputs).probes != [before.probe]:
        raise not_a_chain(name, f"does not come from the output of layer {before.name!r} alone")
    powers = powers_of_two(inputs, dtypes)
    underflow = max(torch.finfo(dtype).tiny for dtype in dtypes)
    ones, scaled = (
        _vjp(before, inputs, factor, probe_leaves) for factor in (torch.ones_like(inputs), powers)
    )
    before.probe.gradient = None
    if ones.shape != inputs.shape or differ(scaled, powers * ones, underflow * powers):
        raise not_a_chain(name, f"mixes entries of the output of layer {before.name!r}")
    return ones


def check_rows(inputs: Tensor, samples: int, name: str) -> None:
    """Raise unless a layer's input has one row per sample."""
    if tuple(inputs.shape[:-1]) != (samples,):
        raise not_a_chain(name, f"has shape {tuple(inputs.shape)}, not ({samples}, d)")


def refused(name: str) -> ValueError:
    """Build the error of a layer that is no matrix."""
    return not_a_chain(name, "goes into a convolution")


def _vjp(before: Use, inputs: Tensor, factor: Tensor, probe_leaves: Sequence[Tensor]) -> Tensor:
    """Return the product of `factor` and the Jacobian, which arrives at the probe of the layer before."""
    before.probe.gradient = None
    torch.autograd.grad(inputs, list(probe_leaves), factor, retain_graph=True, allow_unused=True)
    found = before.probe.gradient
    return torch.zeros_like(inputs) if found is None else found
