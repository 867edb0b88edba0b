"""Where the samples are in a tensor of a model's inside, and the tensor with them in front.

A batch of n samples usually lies on axis 0, inside attention on axis 1, and where positions are
merged with it an axis has length n m, samples outermost or innermost. Shapes alone may leave
several readings; gradients decide (see `proven`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Axis `axis` holds the samples, merged with `inner` positions where that is not 1."""

    axis: int
    inner: int = 1
    outermost: bool = True


def candidates(leading: Sequence[int], samples: int, hint: int | None = None) -> list[Layout]:
    """Return the layouts that an array's axes before its features allow, the likeliest first."""
    exact = [Layout(axis) for axis, length in enumerate(leading) if length == samples]
    if hint is not None:
        exact.sort(key=lambda layout: layout.axis != hint)
    if exact:
        return exact
    return [
        Layout(axis, length // samples, outermost)
        for axis, length in enumerate(leading)
        if length % samples == 0
        for outermost in (True, False)
    ]


def chosen(layouts: Sequence[Layout], known: Layout | None) -> Layout | None:
    """Return the only layout, or the one that is `known` of another batch of the same model; else None."""
    if len(layouts) == 1:
        return layouts[0]
    if known is None:
        return None
    alike = [one for one in layouts if (one.axis, one.outermost) == (known.axis, known.outermost)]
    return alike[0] if alike else None


def by_sample(tensor: Tensor, layout: Layout, samples: int) -> Tensor:
    """Return `tensor` (axes, then features) as `(n, d)`, or `(n, t, d)` where it has positions."""
    if layout.inner == 1:
        front = tensor.movedim(layout.axis, 0)
        return front if tensor.ndim == 2 else front.reshape(samples, -1, tensor.shape[-1])
    sizes = (samples, layout.inner) if layout.outermost else (layout.inner, samples)
    split = tensor.unflatten(layout.axis, sizes)
    front = split.movedim(layout.axis + (not layout.outermost), 0)
    return front.reshape(samples, -1, tensor.shape[-1])


def distinct_weights(samples: int, like: Tensor) -> Tensor:
    """Return one weight in [1/2, 3/2) per sample, all different: multiples of the golden ratio."""
    steps = torch.arange(1, samples + 1, dtype=torch.float64) * 0.6180339887498949
    return (0.5 + steps.frac()).to(like)


def proven(
    gradient: Tensor,
    weighted: Tensor,
    layouts: Sequence[Layout],
    weights: Tensor,
    *,
    precision: float,
    largest: float,
) -> Layout | None:
    r"""Return the layout under which no row feeds another sample's loss, None if there is none.

    `gradient` is that of :math:`\sum_i l_i`, `weighted` that of :math:`\sum_i w_i l_i` with distinct
    weights. A row belongs to sample i alone exactly if its second gradient is `w_i` times its first:
    otherwise some other loss depends on it (for almost all weights). `precision` is that of the coarsest
    type the model computes in; half its digits must agree, but for what is rounding beside the
    `largest` gradient of all layers. A leak between two samples alone whose weights are that close, as
    some are among a thousand samples in float32, is not seen: prove models on small batches.
    """
    samples = weights.shape[0]
    for layout in layouts:
        first, second = (by_sample(side, layout, samples) for side in (gradient, weighted))
        expected = first * weights.to(first).reshape(-1, *[1] * (first.ndim - 1))
        if _close(second, expected, precision**0.5, 100.0 * precision * largest):
            return layout
    return None


def _close(left: Tensor, right: Tensor, relative: float, absolute: float) -> bool:
    """Whether two gradients agree; samples that are not finite say nothing."""
    return magnitude(left - right) <= relative * magnitude(right) + absolute


def magnitude(values: Tensor) -> float:
    """Return the largest finite absolute value."""
    return float(torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).abs().max())
