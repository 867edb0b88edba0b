"""Chains of layers with elementwise functions between them: each layer's gates, read off the graph.

The input of layer l + 1 is a function of the output s of layer l. Where that function works entry by
entry, its Jacobian is the diagonal of the gates phi'(s), which one product with ones reads off; a
product with weights that are all different then gives those weights times the gates, and for almost
all weights no other Jacobian does.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lai_torch._layout import distinct_weights, magnitude
from lai_torch._tap import nearest
from lai_torch._uses import Use


def gates_between(before: Use, inputs: Tensor, anchors: Sequence[Tensor], name: str) -> Tensor:
    """Return the gates between the layer `before` and the layer `name`, `(n, d)`.

    Raises
    ------
    ValueError
        If `inputs` is not the output of the layer before, put through a function entry by entry.
    """
    if not inputs.requires_grad or nearest(inputs) != [before.tap]:
        raise _no_chain(name, f"does not come from the output of layer {before.name!r} alone")
    weights = distinct_weights(inputs.numel(), inputs).reshape(inputs.shape)
    ones, weighted = (
        _pulled(before, inputs, factor, anchors) for factor in (torch.ones_like(inputs), weights)
    )
    before.tap.gradient = None
    within = torch.finfo(inputs.dtype).eps ** 0.5 * magnitude(ones)
    if ones.shape != inputs.shape or magnitude(weighted - weights * ones) > within:
        raise _no_chain(name, f"mixes entries of the output of layer {before.name!r}")
    return ones


def check_rows(inputs: Tensor, samples: int, name: str) -> None:
    """Raise unless a layer's input has one row per sample.

    Raises
    ------
    ValueError
        If it has another shape.
    """
    if tuple(inputs.shape[:-1]) != (samples,):
        raise _no_chain(name, f"has shape {tuple(inputs.shape)}, not ({samples}, d)")


def refused(name: str) -> ValueError:
    """Build the error of a layer that is no matrix."""
    return _no_chain(name, "goes into a convolution")


def _pulled(before: Use, inputs: Tensor, factor: Tensor, anchors: Sequence[Tensor]) -> Tensor:
    """Return the product of `factor` and the Jacobian, which arrives at the tap of the layer before."""
    before.tap.gradient = None
    torch.autograd.grad(inputs, list(anchors), factor, retain_graph=True, allow_unused=True)
    found = before.tap.gradient
    return torch.zeros_like(inputs) if found is None else found


def _no_chain(name: str, what: str) -> ValueError:
    return ValueError(
        f"layer {name!r}: gate-corrected LAI expects linear layers on (n, d), one after the other with "
        f"elementwise functions between them; its input {what}; use estimator='lai', or 'ghost'"
    )
