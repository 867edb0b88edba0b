"""Layer templates: on a pass that matches its plan, only the inputs of layers are read.

What a rule does with a layer's call is always the same where function, parameters, options and the input's
shape are: it runs the function, and keeps the input or its mean over positions. So a template runs the
function and keeps that, nothing else. It is made only where this gives, to the last bit, what the rule gave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lai_torch._model.sample_axis import SampleAxis, candidates, fitting
from lai_torch._model.valid import Positions, masked_mean
from lai_torch._recording.watching.probes import Probe
from lai_torch._recording.watching.uses import Use


@dataclass(frozen=True)
class Template:
    """A layer before the last one."""

    place: int  # where among the arguments the input is
    shape: torch.Size  # shape, dtype: the input's
    dtype: torch.dtype
    # the other tensors among the arguments, the layer's parameters, and where they are
    own: tuple[tuple[int, Tensor], ...]
    arguments: int  # how many arguments there are
    use: Use  # what was recorded, without activations
    # where the samples are in the input, for the mean over positions; None: the input is kept whole, or
    # its mean over space
    sample_axis: SampleAxis | None
    averaged: bool  # whether a mean is kept

    def fits(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Say whether a call of the same function is this layer's, on an input of the same form."""
        if kwargs or len(args) != self.arguments:
            return False
        for index, tensor in self.own:  # other tensors than these and the input are not the plan's call
            if args[index] is not tensor:
                return False
        inputs = args[self.place]
        return (
            isinstance(inputs, Tensor)
            and inputs.shape == self.shape
            and inputs.dtype == self.dtype
            and not torch.is_autocast_enabled(inputs.device.type)
        )

    def made(self, args: Sequence[Any], valid: Positions) -> Use:
        """Return the use that such a call is."""
        inputs = args[self.place]
        kept = self.kept(inputs, valid)
        return self.use.again(kept.detach() if kept is inputs else kept, Probe())

    def kept(self, inputs: Tensor, valid: Positions) -> Tensor:
        """Return what is kept of an input."""
        if not self.averaged:
            return inputs
        if self.sample_axis is None:
            return inputs.mean(tuple(range(2, inputs.ndim)), keepdim=True)
        return masked_mean(self.sample_axis.in_front(inputs), valid)


def template(
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    use: Use,
    out: Tensor,
    known: SampleAxis | None,
    samples: int,
    valid: Positions,
) -> Template | None:
    """Return the template of a layer's call; None where the function alone does not do what its rule did.

    `known` is where the samples were at this layer in an earlier recording.
    """
    places = [index for index, one in enumerate(args) if isinstance(one, Tensor) and not _is_own(one, use)]
    if len(places) != 1 or use.kind not in {"dense", "convolution"} or not use.weight.whole:
        return None
    inputs = args[places[0]]
    averaged = tuple(use.activations.shape) != tuple(inputs.shape)
    sample_axis = None
    if known is not None and use.kind == "dense":
        sample_axis = fitting(known, candidates(inputs.shape[:-1], samples, use.batch_axis))
    given = [(index, one) for index, one in enumerate(args) if isinstance(one, Tensor)]
    own = tuple((index, one) for index, one in given if _is_own(one, use))
    if len(own) != 1 + (use.bias is not None):
        return None
    blank = use.again(use.activations.new_empty(0), Probe())
    blank.signature = use.signature  # that of an input of this shape
    found = Template(places[0], inputs.shape, inputs.dtype, own, len(args), blank, sample_axis, averaged)
    if not found.fits(args, kwargs) or (averaged and use.kind == "dense" and sample_axis is None):
        return None
    same = torch.equal(found.kept(inputs.detach(), valid), use.activations)
    return found if same and torch.equal(func(*args), out) else None


def _is_own(tensor: Tensor, use: Use) -> bool:
    return tensor is use.weight.tensor or (use.bias is not None and tensor is use.bias.tensor)
