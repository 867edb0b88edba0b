"""Chains of layers with elementwise functions between them: each layer's gates, read off the graph.

The input of layer l + 1 is a function of the output s of layer l. Where that function works entry by
entry, its Jacobian is the diagonal of the gates phi'(s), which one product with ones reads off. A
second product, with powers of two, is then those powers times the gates, bit for bit in every type:
a float times a power of two is not rounded. Two entries that mix, by however little, show wherever
their powers differ.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lai_core._adapters import not_a_chain
from lai_torch._recording.watching.probes import nearest
from lai_torch._recording.watching.sample_axis import differ, powers_of_two
from lai_torch._recording.watching.uses import Use


def gates_between(
    before: Use, inputs: Tensor, anchors: Sequence[Tensor], name: str, kinds: set[torch.dtype]
) -> Tensor:
    """Return the gates between the layer `before` and the layer `name`, `(n, d)`.

    `kinds` are the types that the model computes in.

    Raises
    ------
    ValueError
        If `inputs` is not the output of the layer before, put through a function entry by entry.
    """
    if not inputs.requires_grad or nearest(inputs) != [before.tap]:
        raise not_a_chain(name, f"does not come from the output of layer {before.name!r} alone")
    powers = powers_of_two(inputs, kinds)
    underflow = max(torch.finfo(kind).tiny for kind in kinds)
    ones, scaled = (_pulled(before, inputs, factor, anchors) for factor in (torch.ones_like(inputs), powers))
    before.tap.gradient = None
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


def _pulled(before: Use, inputs: Tensor, factor: Tensor, anchors: Sequence[Tensor]) -> Tensor:
    """Return the product of `factor` and the Jacobian, which arrives at the tap of the layer before."""
    before.tap.gradient = None
    torch.autograd.grad(inputs, list(anchors), factor, retain_graph=True, allow_unused=True)
    found = before.tap.gradient
    return torch.zeros_like(inputs) if found is None else found
