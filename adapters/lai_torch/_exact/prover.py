"""Derivatives of a batch's losses along directions, proved on the first batch of each kind."""

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lai_torch._exact.directional import METHODS, check_owned, precision
from lai_torch._exact.proof import Batch, Plain, Proof, resampled
from lai_torch._model.batch import tensors
from lai_torch._model.function import Function, Point
from lai_torch._model.mixing import Mixing
from lai_torch._model.precision import OwnAutocast
from lai_torch._model.signatures import Signatures
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of, named_buffers


class Derivative(NamedTuple):
    """Scores and losses, `(n,)`, the method, the reason why earlier methods failed, and the residual."""

    scores: Tensor
    losses: Tensor
    method: str
    reason: str | None
    residual: float | None


class Prover:
    """Derivatives along directions, each way proved on the first batch of its kind."""

    def __init__(
        self,
        function: Function,  # what is differentiated
        method: str | None = None,  # the only way to take; None: the first that is proved
        *,
        # whether batches follow the first one, so that it matters what its proof says of them
        lasting: bool = False,
    ) -> None:
        self.function, self.lasting = function, lasting
        self.methods = dict(METHODS) if method is None else {method: METHODS[method]}
        self._proved: dict[Any, tuple[str, str | None]] = {}
        self._kinds: dict[Any, frozenset[str]] = {}
        self._mixing: dict[Any, str | None] = {}

    def __call__(self, direction: Point, batch: Batch) -> Derivative:
        """Return the derivatives of a batch; NaN where a sample's loss or gradient is not finite.

        Raises
        ------
        ValueError
            If samples have no scores of their own: they see one another, their gradients do not add up,
            the loss holds parameters that nobody handed over, or two calls give different losses.
        """
        kind = self._kind(batch)
        if (known := self._proved.get(kind)) is not None:
            try:
                with self.function.watched(Signatures()) as calls:
                    scores, losses = self.methods[known[0]](self.function, direction, batch)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, NotImplementedError):
                pass  # not as it was: prove again
            else:
                finite = bool((torch.isfinite(scores) & torch.isfinite(losses)).all())
                own = set(map(id, self.function.parameters().values()))
                if finite and calls.found() <= self._kinds[kind] and calls.trained <= own:
                    self._check_apart(kind, batch, losses)
                    return Derivative(scores, losses, *known, None)
        return self._prove(direction, batch)

    def _check_apart(self, kind: Any, batch: Batch, losses: Tensor) -> None:
        """Raise if samples of a batch see one another, where the model's operations leave that open."""
        if self._mixing[kind] is not None:
            everyone = torch.ones_like(losses, dtype=torch.bool)
            plain = Plain(losses, draws=False, precision=precision(losses))
            Proof(self.function, {}, batch, plain, everyone).compare_halves()

    def _mixed(self, batch: Batch, samples: int) -> str | None:
        """Return the first operation that mixes samples; None where nobody will ask."""
        if samples < 2 or not self.lasting:
            return None
        parameters, model = self.function.parameters().values(), self.function.model
        watch = Mixing(batch, samples, parameters, named_buffers(model).values())
        with self.function.preserved(), warnings.catch_warnings(), self.function.watched(watch):
            warnings.simplefilter("ignore")
            self.function(batch)
        return watch.found

    def _prove(self, direction: Point, batch: Batch) -> Derivative:
        """Find the first way that is proved, without the samples that have no finite gradient."""
        kind = self._kind(batch)
        with self.function.watched(Signatures()) as watch:
            plain = self._plain(batch)
        calls = watch.found()
        finite = torch.isfinite(plain.losses)
        while bool(finite.any()):
            proof = Proof(self.function, direction, resampled(batch, finite), plain, finite)
            found, reasons = proof.first(self.methods)
            if found is not None:
                name, scores, residual = found
                reason = "; ".join(reasons) or None
                self._proved[kind], self._kinds[kind] = (name, reason), self._kinds.get(kind, calls) | calls
                self._mixing[kind] = self._mixed(batch, len(finite))
                scores = torch.where(finite, scores, torch.nan)
                return Derivative(scores, plain.losses, name, reason, residual)
            finite = proof.bounded()
        nothing = torch.full_like(plain.losses, torch.nan)
        return Derivative(nothing, plain.losses, next(iter(self.methods)), None, None)

    def _plain(self, batch: Batch) -> Plain:
        """Run the model once without changes, so that its own errors are raised as they are."""
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


def _hooks(holder: Any) -> int:
    return len(holder._backward_hooks or ())
