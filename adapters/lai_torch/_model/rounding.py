"""What one rounding of every parameter does to each sample's loss, measured."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from lai_core._adapters import rounding_bound
from lai_torch._model.sample_axis import differ

DRAWS = 3
"""How many times parameters are moved: by chance, one move may leave a loss where it is."""


def roundings_of(parameters: Iterable[Tensor], precision: float) -> Iterator[None]:
    """Move parameters by `precision` at random, to either side, while the caller looks; put them back."""
    moved = [one for one in parameters if one.is_floating_point()]
    start, generator = [one.detach().clone() for one in moved], torch.Generator("cpu").manual_seed(0)
    try:
        for _ in range(DRAWS):
            for one, held in zip(moved, start, strict=True):
                signs = torch.randint(2, held.shape, generator=generator, device="cpu").to(held) * 2 - 1
                one.data.copy_(held * (1 + precision * signs))
            yield
    finally:
        for one, held in zip(moved, start, strict=True):
            one.data.copy_(held)


def measured_roundings(
    losses: Callable[[], Tensor], parameters: Iterable[Tensor], precision: float
) -> Tensor:
    """Return by how much rounding may move each sample's loss; zeros where two runs do not agree.

    It is measured, for losses near zero do not tell: one of (o - t)^2 is off by 2 |o - t| times what the
    output o is off by, and by the square of that.

    A layer's rounded output is the exact one of parameters that are off by a rounding each (Higham, Accuracy
    and Stability of Numerical Algorithms, section 3.5: the backward error of a product). So the losses at
    parameters that are moved by `precision` at random, to either side, show what one rounding does to each
    loss, and `rounding_bound` how much more all of them may do. Where every draw happens to move a loss by
    little, the root mean square over the samples counts. A logarithm near one, in which a cross-entropy ends,
    is rounded to units of one.

    Parameters
    ----------
    losses
        Runs the model on one batch: `(n,)`, the same random numbers at every call.
    parameters
        What the model reads; they are put back.
    precision
        Distance from 1 to the next number, of the coarsest type that the model computes in.
    """
    own, again = losses().detach(), losses().detach()
    found = torch.zeros_like(own, dtype=torch.float64)
    if differ(again, own, rounding_bound(precision, float(torch.nan_to_num(own).abs().max()))):
        return found  # what changes from call to call shows no rounding
    for _ in roundings_of(parameters, precision):
        found = torch.maximum(found, (losses().detach().double() - own.double()).abs())
    found = torch.where(torch.isfinite(found), found, 0.0)
    typical = found.square().mean().sqrt().clamp(min=torch.finfo(own.dtype).eps)
    return rounding_bound(1.0, 1.0) * torch.maximum(found, typical)
