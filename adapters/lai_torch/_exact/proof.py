"""Exact scores that are proved on the batch itself, by the adjoint identity.

A sample's score is `s_j = <grad l_j, d>` along a direction d, with the gradient that a plain reverse pass
gives. Reverse mode is linear in the losses' weights, so for any weights w

    sum_j w_j s_j = <grad sum_j w_j l_j, d>,

and the right side takes one plain reverse pass through the user's own model. A way to compute s whose errors
have nothing to do with the drawn w, and that meets the identity, is right for every sample.

The identity says nothing of samples that see one another. Hence the same scores have to meet it on batches of
the same shape in which only a part of the samples stands, and copies of these fill the other places, and on
one that is longer: nothing of a sample may move then, neither its loss nor its share of the gradient.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from lai_core._adapters import rounding_bound, tolerance
from lai_torch._exact.directional import Pair, precision, why
from lai_torch._graph.prove import are_close, exchange_samples
from lai_torch._model.batch import bisections, drawn, row_sources, rows, unaligned, usable
from lai_torch._model.function import Function, Point, along, vjp
from lai_torch._model.precision import differ, measured_roundings
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of

Batch = tuple[Any, Any]
Method = Callable[[Function, Point, Batch], Pair]
TENSOR_FLOAT = 2.0**-11
"""Precision of TF32 products."""


class Side(NamedTuple):
    """The right side of the identity: weights of the losses, and their plain gradient along the direction."""

    weights: Tensor
    value: float
    # the sum of the absolute values that `value` is the sum of
    size: float
    eps: float

    def compare(self, scores: Tensor) -> tuple[bool, float]:
        """Return whether rounding explains how far scores are from the identity, and the relative distance.

        A score is itself a sum, of products of the gradient's entries with the direction's. Those of the
        gradient of random signs have on average the size that the samples' have, in squares.
        """
        terms = torch.where(self.weights != 0, self.weights * scores, 0.0).double()
        apart, scale = abs(float(terms.sum()) - self.value), float(terms.abs().sum())
        count = float(self.weights.count_nonzero())
        within = tolerance(self.eps, float(terms.norm()), count, magnitude=self.size)
        return apart <= within, apart / (scale or self.size or 1.0)


def weigh(
    function: Function,
    direction: Point,
    batch: Batch,
    part: Tensor | None = None,
    *,
    scale: float = 1.0,
    eps: float | None = None,
) -> Side:
    """Take the plain gradient of the losses of a part along the direction, weighted at random.

    Weights are `scale` times powers of two: a pass with them takes the roundings of single samples' passes.
    """
    with function.preserved():
        parameters = function.parameters()
        losses = function(batch)
        many = len(losses if part is None else part)
        pair = torch.rand(2, many, generator=drawn(), dtype=torch.float64, device="cpu").to(losses)
        weights = scale * 2.0 ** (4 * pair[0]).floor() * torch.where(pair[1] < 0.5, -1.0, 1.0)
        if part is not None:
            weights = torch.where(part, weights, 0.0)
        eps = precision(losses) if eps is None else eps
        spread = functional.pad(weights, (0, len(losses) - many))
        pieces = vjp(losses, spread, parameters)
        return Side(weights, *along(pieces, [direction[name] for name in parameters]), eps)


class Proof:
    """The identity on one batch, in which every sample but the `finite` ones is a copy of one of these."""

    def __init__(
        self,
        function: Function,
        direction: Point,
        batch: Batch,
        plain: Tensor,  # the losses of a pass without changes
        finite: Tensor,
        coarsest: float,  # precision of the coarsest type that the model computes in
    ) -> None:
        self.function, self.direction, self.batch = function, direction, batch
        self.plain, self.finite = plain, finite
        self.eps = TENSOR_FLOAT if plain.is_cuda and coarsest < TENSOR_FLOAT else coarsest
        # Far above where the types allow it: a hook that clips, here or in a later batch, shows.
        self.enlarged = 1024.0
        if coarsest == torch.finfo(torch.float16).eps:  # a type that would overflow
            self.enlarged = 1.0

    def first(self, methods: Mapping[str, Method]) -> tuple[tuple[str, Tensor, float] | None, list[str]]:
        """Return the first way that is proved, its scores and its residual, and why not those before it.

        None is returned where a sample's score is not finite in the last way; see `bounded`.

        Raises
        ------
        ValueError
            If no way meets the identity, or one does and samples are coupled.
        """
        with self.function.preserved(), torch.no_grad():
            streams = Streams(modules_of(self.function.model, self.function.loss))
            again = self.function(self.batch)
            draws = streams.moved()
        if not are_close(again[self.finite], self.plain[self.finite], eps=self.eps):
            msg = (
                "model: expected the same losses of the same batch, random streams and buffers put back, got "
                "others at the second call: forward changes something else (an attribute, a file, a "
                "counter); keep in buffers what it changes"
            )
            raise ValueError(msg)
        # A loss may hold weights of this batch's places, unless nobody knows which row is a sample's.
        by_rows = bool(unaligned(self.batch, len(self.finite)))
        with self.function.preserved():
            problem = self.function.model, self.function.loss, usable(self.batch)
            if exchange_samples(problem, by_rows=by_rows) is None:
                raise immovable()
        own, *others = map(self._side, (self.finite, *bisections(self.finite)[0]))
        if not draws:  # noise goes by place and shape
            with suppress(Exception):  # whatever it is, it is about the size: the batch itself went through
                others.append(self._side(self.finite, more=1))
        reasons: list[str] = []
        unbounded = False
        for name, way in methods.items():
            unbounded = False
            try:
                scores, _ = way(self.function, self.direction, self.batch)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, NotImplementedError) as error:
                reasons.append(f"{name}: {why(error)}")
                continue
            if not bool(torch.isfinite(scores[self.finite]).all()):
                reasons.append(f"{name}: not finite for a sample whose loss is")
                unbounded = True
                continue
            within, apart = own.compare(scores)
            if within:
                if not all(side.compare(scores)[0] for side in others):
                    raise coupled()
                return (name, scores, apart), reasons
            reasons.append(f"{name}: off by {apart:.1e} from the gradient of a plain reverse pass")
        if unbounded:
            return None, reasons
        msg = (
            "model: expected the gradient of a weighted sum of losses to be the weighted sum of the samples' "
            "gradients, and no way to compute them agrees with that: a hook or a custom backward pass is not "
            f"linear (it clips or rounds gradients, say), or draws at random ({'; '.join(reasons)})"
        )
        raise ValueError(msg)

    def bounded(self) -> Tensor:
        """Say which samples have a finite gradient: in a batch, an infinite slope spoils everyone's."""
        found = self.finite.clone()
        for j in self.finite.nonzero().squeeze(1):
            alone = torch.zeros_like(self.finite)
            alone[j] = True
            found[j] = isfinite(self._side(alone).value)
        return found

    def compare_halves(self) -> None:
        """Raise if a sample's loss moves where one half of the samples makes room for copies of the other."""
        within = rounding_bound(self.eps, float(self.plain[self.finite].double().square().mean().sqrt()))
        for part in bisections(self.finite)[0]:
            losses, expected = self._losses(part)[part], self.plain[part]
            if not differ(losses, expected, within):
                continue
            parameters = self.function.parameters().values()
            roundings = measured_roundings(self._losses, parameters, self.eps)
            if differ(losses, expected, roundings.to(losses)[part]):
                raise coupled()

    def _side(self, part: Tensor, more: int = 0) -> Side:
        """Weigh the losses of a part at random, on a batch of copies of that part, and `more` at its end."""
        batch = resampled(self.batch, part, more)
        return weigh(self.function, self.direction, batch, part, scale=self.enlarged, eps=self.eps)

    def _losses(self, part: Tensor | None = None) -> Tensor:
        """Return the losses; with a `part`, copies of its samples replace all others."""
        with self.function.preserved(), torch.no_grad():
            losses: Tensor = self.function(self.batch if part is None else resampled(self.batch, part))
        return losses


def resampled(batch: Batch, part: Tensor, more: int = 0) -> Batch:
    """Return a batch in which copies of a part's samples stand for all others, and at the end for `more`."""
    if not more and bool(part.all()):
        return batch
    found: Batch = rows(batch, row_sources(part, more), len(part))
    return found


def immovable() -> ValueError:
    """Build the error of a batch whose rows cannot be exchanged."""
    return ValueError(
        "training: expected a batch whose rows can be exchanged, to check that samples are independent, got "
        "one that fails when they are; hold one row a sample in every tensor, padded where they differ in "
        "length"
    )


def coupled() -> ValueError:
    """Build the error of samples that have no gradients of their own."""
    return ValueError(
        "model: expected every sample's loss and gradient to be its own, got ones that move with the other "
        "samples of the batch, or their number: normalise by running statistics (model.eval(), not BatchNorm "
        "in training mode), let nothing in the model or the loss average, compare or attend across the first "
        "axis, nor an embedding scale its gradient by frequency, and score at the level at which samples are "
        "independent (pairs, graphs), one row for each"
    )
