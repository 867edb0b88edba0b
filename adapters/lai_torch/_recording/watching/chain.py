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
from lai_torch._model.sample_axis import differ, powers_of_two
from lai_torch._recording.watching.probes import Ends
from lai_torch._recording.watching.uses import Use


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
