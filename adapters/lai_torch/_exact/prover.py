"""Derivatives of a batch's losses along directions, proved on the first batch of each kind."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lai_torch._exact.difference import DIFFERENCE, Difference
from lai_torch._exact.directional import METHODS
from lai_torch._exact.graph import check_owned, precision
from lai_torch._exact.proof import Batch, Plain, Proof, Way, standing
from lai_torch._model.batch import tensors
from lai_torch._model.function import Function, Point
from lai_torch._model.precision import OwnAutocast
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of


class Derivative(NamedTuple):
    """Scores and losses `(n,)`, the way they were found, why not by an earlier one, how well it is proved."""

    scores: Tensor
    losses: Tensor
    method: str
    reason: str | None
    residual: float | None


class Prover:
    """Derivatives along directions, each way proved on the first batch of its kind.

    Parameters
    ----------
    function
        What is differentiated.
    method
        The only way to take; None: the first that is proved.
    """

    def __init__(self, function: Function, method: str | None = None) -> None:
        self.function, self.method = function, method
        self.methods = _methods(method)
        self._proved: dict[Any, tuple[str, str | None]] = {}

    def __call__(self, direction: Point, batch: Batch) -> Derivative:
        """Return the derivatives of a batch; NaN where a sample's loss or gradient is not finite.

        Raises
        ------
        ValueError
            If samples have no scores of their own: they see one another, their gradients do not add up,
            the loss holds parameters that nobody handed over, or two calls give different losses.
        """
        if (known := self._proved.get(self._kind(batch))) is not None:
            try:
                scores, losses = self.methods[known[0]](self.function, direction, batch)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, NotImplementedError):
                pass  # not as it was: prove again
            else:
                if bool((torch.isfinite(scores) & torch.isfinite(losses)).all()):
                    return Derivative(scores, losses, *known, None)
        return self._prove(direction, batch)

    def _prove(self, direction: Point, batch: Batch) -> Derivative:
        """Find the first way that is proved, without the samples that have no finite gradient."""
        plain = self._plain(batch)
        self.methods = _methods(self.method)  # a step is chosen anew
        finite = torch.isfinite(plain.losses)
        while bool(finite.any()):
            proof = Proof(self.function, direction, standing(batch, finite), plain, finite)
            found, reasons = proof.first(self.methods)
            if found is not None:
                name, scores, residual = found
                reason = "; ".join(reasons) or None
                self._proved[self._kind(batch)] = name, reason
                scores = torch.where(finite, scores, torch.nan)
                return Derivative(scores, plain.losses, name, reason, residual)
            finite = proof.bounded()
        nothing = torch.full_like(plain.losses, torch.nan)
        return Derivative(nothing, plain.losses, next(iter(self.methods)), None, None)

    def _plain(self, batch: Batch) -> Plain:
        """Run the model as it is, whose errors come up here."""
        with self.function.preserved():
            streams = Streams(modules_of(self.function.model, self.function.loss))
            with OwnAutocast():
                losses = self.function(batch)
            draws = streams.moved()
            check_owned(self.function, losses, batch)
            return Plain(losses.detach(), draws, precision(losses))

    def _kind(self, batch: Batch) -> Any:
        """Return what a proof depends on besides values: shapes, parameters, modes and hooks."""
        modules = [module for each in self.function.modules for module in each.modules()]
        return (
            tuple((tuple(one.shape), one.dtype) for one in tensors(batch)),
            tuple((name, id(one), _hooks(one)) for name, one in self.function.parameters().items()),
            tuple((id(one), one.training, len(one._forward_hooks), _hooks(one)) for one in modules),
        )


def _methods(method: str | None) -> dict[str, Way]:
    """Return the ways to try: those that are exact, or the one that is asked for."""
    if method is None:
        return dict(METHODS)
    return {method: Difference() if method == DIFFERENCE else METHODS[method]}


def _hooks(holder: Any) -> int:
    return len(holder._backward_hooks or ())
