r"""The derivative along a direction from two forward passes: a central difference, with its error estimated.

.. math:: \frac{l_j(\theta + \epsilon d) - l_j(\theta - \epsilon d)}{2 \epsilon}
   = \langle \nabla l_j, d \rangle + \frac{\epsilon^2}{6} l_j''' + O(u |l_j| / \epsilon)

No tape, no tracing, fused kernels stay on. A step that is too long cuts the series off too early, one that is
too short drowns in the rounding u of the losses. Neither :math:`l'''` nor the rounding of a network is known
beforehand, so steps by factors of 4 are tried until two in a row agree best: their difference is the error.
"""

import torch
from torch import Tensor

from lai_torch._exact.directional import Pair
from lai_torch._model.function import Function, Point
from lai_torch._model.preserve import preserved

DIFFERENCE = "difference"
"""What the method is called."""
FACTOR = 4.0
"""Between steps that are tried."""
TRIED = 7
"""How many are tried at most."""
WORSE = 4.0
"""How many times the rounding may weigh that was there when the step was chosen."""


class Difference:
    """Central differences along directions, by a step that is chosen on the first batch.

    Attributes
    ----------
    error
        By how much two neighbouring steps differed, the worst sample, relative to the scores' root mean
        square; None before the first batch.
    """

    def __init__(self) -> None:
        self.error: float | None = None
        self._step: float | None = None  # how far the parameters move, by their norm
        self._noise = 0.0

    def __call__(self, function: Function, direction: Point, batch: tuple[object, object]) -> Pair:
        """Return derivatives, and losses as the mean of both sides: exact to the second order of the step."""
        length = _norm(direction)
        if not length:
            scores, losses = _sides(function, direction, batch, 0.0)
            return torch.zeros_like(scores), losses
        if self._step is not None:
            scores, losses = _sides(function, direction, batch, self._step / length)
            if _noise(scores, losses, self._step / length) <= WORSE * self._noise:
                return scores, losses
        return self._chosen(function, direction, batch, length)

    def told(self) -> str:
        """State the error."""
        return f"neighbouring steps differ by {self.error:.1e} of the scores' root mean square"

    def _chosen(
        self, function: Function, direction: Point, batch: tuple[object, object], length: float
    ) -> Pair:
        """Try steps, and keep the one that agrees best with its neighbour."""
        # the two errors balance where epsilon^3 is about the rounding, for losses that vary at the scale of
        # the parameters themselves
        point = function.point()
        coarsest = max(torch.finfo(one.dtype).eps for one in point.values())
        middle = coarsest ** (1 / 3) * (_norm(point) or 1.0)
        tried: dict[int, Pair] = {}

        def found(place: int) -> Pair:
            if place not in tried:
                tried[place] = _sides(function, direction, batch, middle * FACTOR**place / length)
            return tried[place]

        def apart(place: int) -> float:
            return _apart(found(place)[0], found(place - 1)[0])

        best = min((0, 1), key=apart)
        while len(tried) < TRIED:
            following = best + (1 if best > 0 else -1)
            if apart(following) >= apart(best):
                break
            best = following
        # of the two the one that is nearer to what lies on its other side
        other = {
            place: _apart(found(place)[0], tried[beside][0])
            for place, beside in ((best, best + 1), (best - 1, best - 2))
            if beside in tried
        }
        place = min(other, key=lambda one: other[one]) if other else best
        self.error, self._step = apart(best), middle * FACTOR**place
        scores, losses = found(place)
        self._noise = _noise(scores, losses, self._step / length)
        return scores, losses


def _sides(function: Function, direction: Point, batch: tuple[object, object], step: float) -> Pair:
    """Return the difference quotient and the mean of the losses on both sides."""
    parameters, sides = function.parameters(), []
    held, along = [one.data for one in parameters.values()], [direction[name] for name in parameters]
    start = list(torch._foreach_clone(held)) if held else []
    try:
        for sign in (1.0, -1.0):
            moved = torch._foreach_add(start, along, alpha=sign * step)
            torch._foreach_copy_(held, moved)  # `data`: graphs that saved a parameter never see it there
            del moved
            with preserved(function.model, function.loss, hooks=True), torch.no_grad():
                sides.append(function(batch).detach().clone())
    finally:
        torch._foreach_copy_(held, start)
    above, below = sides
    return (above - below) / (2 * step or 1.0), (above + below) / 2


def _norm(point: Point) -> float:
    # of norms, so that a sum of squares may not overflow
    return float(torch.stack([one.double() for one in torch._foreach_norm(list(point.values()))]).norm())


def _apart(one: Tensor, other: Tensor) -> float:
    """Return the largest difference of two sets of scores over their root mean square."""
    kept = torch.isfinite(one) & torch.isfinite(other)
    if not bool(kept.any()):
        return 0.0
    scale = float(one[kept].double().square().mean().sqrt())
    return float((one[kept] - other[kept]).double().abs().max()) / scale if scale else 0.0


def _noise(scores: Tensor, losses: Tensor, step: float) -> float:
    """Return how much one rounding of the losses weighs in the scores."""
    kept = torch.isfinite(scores) & torch.isfinite(losses)
    if not bool(kept.any()):
        return 0.0
    scale = step * float(scores[kept].double().square().mean().sqrt())
    rounding = torch.finfo(losses.dtype).eps * float(losses[kept].double().abs().mean())
    return rounding / scale if scale else float("inf")
