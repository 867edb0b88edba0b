"""Derivatives of a batch's losses along directions, proved on the first batch of each kind."""

from dataclasses import dataclass
from typing import Any

import torch

from lai_torch._exact.directional import METHODS, check_owned, precision
from lai_torch._exact.proof import (
    Batch,
    Derivative,
    check_halves,
    find_bounded,
    find_proved,
    list_others,
    resample,
)
from lai_torch._model.batch import tensors
from lai_torch._model.function import Function, Point
from lai_torch._model.walk import modules_of


@dataclass
class _Proved:
    """The way that was proved for batches of a kind, and how many of these there were."""

    method: str
    reason: str | None
    precision: float
    calls: int


class Prover:
    """Derivatives along directions, each way proved on the first batch of its kind, and on the 2nd, 4th, ...

    In every batch each loss is computed beside other samples as well, and must not move.
    """

    def __init__(
        self,
        function: Function,  # what is differentiated
        method: str | None = None,  # the only way to take; None: the first that is proved
        *,
        by_rows: bool = False,  # whether some rows are to run by themselves afterwards
    ) -> None:
        self.function, self.by_rows = function, by_rows
        self.methods = METHODS if method is None else {method: METHODS[method]}
        self._proved: dict[Any, _Proved] = {}

    def __call__(self, direction: Point, batch: Batch) -> Derivative:
        """Return the derivatives of a batch; NaN where a sample's loss or gradient is not finite.

        Raises
        ------
        ValueError
            If samples have no scores of their own: they see one another, their gradients do not add up,
            the loss holds parameters that nobody handed over, or two calls give different losses.
        """
        kind = self._kind(batch)
        proved = self._proved.get(kind)
        if proved is not None:
            proved.calls += 1
            if proved.calls & (proved.calls - 1):  # at calls 2, 4, 8, ... a kind is proved again
                try:
                    scores, losses = self.methods[proved.method](self.function, direction, batch)
                except torch.OutOfMemoryError:
                    raise
                except RuntimeError:
                    pass  # not as it was: prove again
                else:
                    if bool((torch.isfinite(scores) & torch.isfinite(losses)).all()):
                        check_halves(self.function, batch, losses, proved.precision)
                        return Derivative(scores, losses, proved.method, proved.reason, None)
        return self._prove(direction, batch, kind)

    def _prove(self, direction: Point, batch: Batch, kind: Any) -> Derivative:
        """Find the first way that is proved, without the samples that have no finite gradient."""
        with self.function.preserve():  # first: an error of the model itself is raised as it is
            graph = self.function(batch)
            check_owned(self.function, graph)
            losses, eps = graph.detach(), precision(graph)
            del graph
        finite = torch.isfinite(losses)
        while bool(finite.any()):
            given = resample(batch, finite)
            others = list_others(self.function, given, losses, finite, eps, by_rows=self.by_rows)
            found, _ = find_proved(self.function, direction, given, self.methods, others)
            if found is not None:
                calls = getattr(self._proved.get(kind), "calls", 1)
                self._proved[kind] = _Proved(found.method, found.reason, eps, calls)
                scores = torch.where(finite, found.scores, torch.nan)
                return found._replace(scores=scores, losses=losses)
            # an infinite gradient spoils every way: again, without the samples that have one
            finite = find_bounded(self.function, direction, given, finite)
        nothing = torch.full_like(losses, torch.nan)
        return Derivative(nothing, losses, next(iter(self.methods)), None, None)

    def _kind(self, batch: Batch) -> Any:
        """Return what a proof depends on besides values: shapes, parameters, modes and hooks."""
        modules = modules_of(self.function.model, self.function.loss)
        return (
            tuple((tuple(one.shape), one.dtype) for one in tensors(batch)),
            tuple((name, id(one), _hooks(one)) for name, one in self.function.parameters().items()),
            tuple((id(one), one.training, len(one._forward_hooks), _hooks(one)) for one in modules),
        )


def _hooks(holder: Any) -> int:
    return len(holder._backward_hooks or ())
