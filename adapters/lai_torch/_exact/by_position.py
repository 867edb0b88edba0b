"""Exact scores of positions: each token's own loss along the validation gradient.

A loss that returns `(n, t)` is a function with n t outputs. One forward-mode pass along the direction gives
the derivative of each, whether or not positions see one another: `s_jt = <grad l_jt, d>`. The adjoint
identity of `proof.py` holds for any weights of the n t losses: drawn ones prove all scores at once.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lai_core._adapters import tolerance
from lai_torch._exact.directional import explain_error, precision
from lai_torch._exact.proof import Batch, Method, resample
from lai_torch._exact.prover import Derivative
from lai_torch._model.batch import Loss, count, seed_generator, usable
from lai_torch._model.function import Function, Point, losses_of, project, vjp


class RowSums(nn.Module):
    """A loss that returns `(n, t)`, as one that returns the samples' sums, `(n,)`."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, outputs: Any, targets: Any) -> Tensor:
        """Return the sums over positions."""
        return check_positions(self.loss(outputs, targets)).sum(1)


class Positions(Function):
    """The losses of a batch's positions as one vector, `(n t,)`, with the parameters of `RowSums`."""

    loss: RowSums

    def __call__(self, batch: Batch) -> Tensor:
        """Return the losses of sample after sample."""
        losses: Tensor = losses_of(self.model, self.loss.loss, usable(batch))
        return losses.flatten()


def check_positions(losses: Any) -> Tensor:
    """Raise unless a loss gives one number for each position of each sample."""
    if not isinstance(losses, Tensor) or losses.ndim != 2:
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        msg = f"loss: expected one number a position, shape (n, t), where per_position=True, got {got}"
        raise ValueError(msg)
    return losses


def score_positions(
    summed: Function, direction: Point, batch: Batch, found: Derivative, methods: Mapping[str, Method]
) -> Derivative:
    """Score the positions of a batch, whose samples' scores were `found`, by the same method or a later one.

    Raises
    ------
    ValueError
        If no method meets the adjoint identity.
    """
    function, samples = Positions(summed.model, summed.loss), count(*batch)
    finite = torch.isfinite(found.scores)
    # the shape is not known without a pass
    if not bool(finite.any()):
        with function.preserve(), torch.no_grad():
            return found._replace(scores=torch.full_like(function(batch), torch.nan).view(samples, -1))
    usual, reasons = resample(batch, finite), [found.reason] if found.reason else []
    side = _weight_losses(function, direction, usual)
    known = list(methods).index(found.method) if found.method in methods else 0
    for name, method in list(methods.items())[known:]:
        try:
            scores, losses = method(function, direction, usual)
        # memory says nothing about the method
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reasons.append(f"{name}: {explain_error(error)}")
            continue
        terms = (side.weights * scores).double()
        apart, squares = abs(float(terms.sum()) - side.value), float(side.weights.double().square().sum())
        # the adjoint identity: scores weighted at random add up to what a reverse pass finds
        if apart <= tolerance(side.eps, float(terms.norm()), squares, magnitude=side.size):
            table, losses = (
                torch.where(finite[:, None], one.view(samples, -1), torch.nan) for one in (scores, losses)
            )
            residual = apart / (float(terms.abs().sum()) or side.size or 1.0)
            return Derivative(table, losses, name, "; ".join(reasons) or None, residual)
        reasons.append(f"{name}: off by {apart:.1e} from the gradient of a plain reverse pass")
    msg = f"model: no way to score positions agrees with the gradient of a plain pass ({'; '.join(reasons)})"
    raise ValueError(msg)


class _Side(NamedTuple):
    """Drawn weights `(n t,)`, and the plain gradient of the weighted losses along the direction."""

    weights: Tensor
    value: float
    size: float
    eps: float


def _weight_losses(function: Function, direction: Point, batch: Batch) -> _Side:
    with function.preserve():
        parameters = function.parameters()
        losses = function(batch)
        pair = torch.rand(2, len(losses), generator=seed_generator(), dtype=torch.float64, device="cpu").to(
            losses
        )
        weights = (0.5 + pair[0]) * torch.where(pair[1] < 0.5, -1.0, 1.0)
        pieces = vjp(losses, weights, parameters)
        return _Side(weights, *project(pieces, [direction[name] for name in parameters]), precision(losses))
