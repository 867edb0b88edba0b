"""A probe on a layer's output: reads the gradient that arrives there, changes nothing."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


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
