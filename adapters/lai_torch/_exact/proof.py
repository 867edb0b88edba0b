"""Exact scores that are proved on the batch itself, by the adjoint identity.

A sample's score is `s_j = <grad l_j, d>` along a direction d, with the gradient that a plain reverse pass
gives. Reverse mode is linear in the losses' weights, so for any weights w

    sum_j w_j s_j = <grad sum_j w_j l_j, d>,

and the right side takes one plain reverse pass through the user's own model. Drawn w are orthogonal to a
wrong s with probability zero: a way to compute s that meets the identity is right for every sample.

The identity says nothing of samples that see one another. Hence the passes on the right are taken on
batches of the same shape in which only a part of the samples stands, and copies of these fill the other
places: nothing of a sample may move then, neither its loss nor its share of the gradient.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lai_core._adapters import rounding_bound, tolerance
from lai_torch._exact.directional import Pair, explain_error
from lai_torch._graph.prove import are_close, exchange_samples
from lai_torch._model.batch import bisections, find_unaligned, row_sources, rows, seed_generator, usable
from lai_torch._model.function import Function, Point, project, vjp
from lai_torch._model.precision import differ, measure_roundings

Batch = tuple[Any, Any]
Method = Callable[[Function, Point, Batch], Pair]
TENSOR_FLOAT = 2.0**-11
"""Precision of TF32 products."""


class Plain(NamedTuple):
    """What one forward pass tells: losses, whether it draws random numbers, its coarsest precision."""

    losses: Tensor
    draws: bool
    precision: float


class _Side(NamedTuple):
    """A part of the samples: random weights, zero elsewhere, and the plain gradient along the direction."""

    weights: Tensor
    value: float
    size: float


class _Error(NamedTuple):
    """Whether scores agree with a side within rounding, and how far they are from it, relatively."""

    within: bool
    relative: float


class Proof:
    """The identity on one batch, in which every sample but the `finite` ones is a copy of one of these."""

    def __init__(
        self, function: Function, direction: Point, batch: Batch, plain: Plain, finite: Tensor
    ) -> None:
        self.function, self.direction, self.batch = function, direction, batch
        self.plain, self.finite = plain, finite
        coarse = plain.losses.is_cuda and plain.precision < TENSOR_FLOAT
        self.eps = TENSOR_FLOAT if coarse else plain.precision
        half = torch.finfo(torch.float16).eps  # a type that would overflow
        self.enlarged = 1.0 if plain.precision == half else 1024.0
        self._roundings: Tensor | None = None

    def first(self, methods: Mapping[str, Method]) -> tuple[tuple[str, Tensor, float] | None, list[str]]:
        """Return the first way that is proved, its scores and its residual, and why not those before it.

        None is returned where a sample's score is not finite in the last way; see `find_bounded`.

        Raises
        ------
        ValueError
            If no way meets the identity, or one does on the batch and not on its parts.
        """
        if not are_close(self._losses()[self.finite], self.plain.losses[self.finite], eps=self.eps):
            msg = (
                "model: expected the same losses of the same batch, random streams and buffers put back, got "
                "others at the second call: forward changes something else (an attribute, a file, a "
                "counter); keep in buffers what it changes"
            )
            raise ValueError(msg)
        # A loss may hold weights of this batch's places, unless nobody knows which row is a sample's.
        by_rows = bool(find_unaligned(self.batch, len(self.finite)))
        with self.function.preserve():
            problem = self.function.model, self.function.loss, usable(self.batch)
            if exchange_samples(problem, by_rows=by_rows) is None:
                raise immovable()
        halves = bisections(self.finite)[0]
        sides, longer = [self._side(part) for part in halves], self._longer()
        reasons: list[str] = []
        unbounded = compared = False
        for name, way in methods.items():
            unbounded = False
            try:
                scores, _ = way(self.function, self.direction, self.batch)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                reasons.append(f"{name}: {explain_error(error)}")
                continue
            if not bool(torch.isfinite(scores[self.finite]).all()):
                reasons.append(f"{name}: not finite for a sample whose loss is")
                unbounded = True
                continue
            errors = [self._errors(scores, side) for side in sides]
            if all(error.within for error in errors):
                if longer is not None and not self._errors(scores, longer).within:
                    self._check_size(longer)
                return (name, scores, max(error.relative for error in errors)), reasons
            if not compared:
                self._check_apart(halves, sides)
                # The samples are apart: what is left may be roundings, of which a sum of gradients with such
                # weights takes the same as the gradients of single samples do.
                sides, compared = [self._side(part, powers=True) for part in halves], True
            worst = max(error.relative for error in errors)
            reasons.append(f"{name}: off by {worst:.1e} from the gradient of a plain reverse pass")
        if unbounded:
            return None, reasons
        msg = (
            "model: expected the gradient of a weighted sum of losses to be the weighted sum of the samples' "
            "gradients, and no way to compute them agrees with that: a hook or a custom backward pass is not "
            f"linear (it clips or rounds gradients, say), or draws at random ({'; '.join(reasons)})"
        )
        raise ValueError(msg)

    def find_bounded(self) -> Tensor:
        """Say which samples have a finite gradient: in a batch, an infinite slope spoils everyone's."""
        found = self.finite.clone()
        for j in self.finite.nonzero().squeeze(1):
            alone = torch.zeros_like(self.finite)
            alone[j] = True
            found[j] = isfinite(self._side(alone).value)
        return found

    def compare_halves(self) -> None:
        """Raise if a sample's loss moves where one half of the samples makes room for copies of the other."""
        for part in bisections(self.finite)[0]:
            with torch.no_grad():
                self._compare(self._losses(part), part)

    def _check_apart(self, parts: list[Tensor], sides: list[_Side]) -> None:
        """Raise if a part's gradient depends on the other samples of the batch."""
        for part, side in zip(parts, sides, strict=True):
            # every row is computed as it was, by the same kernels at its place: sums alone are rounded anew
            within = rounding_bound(self.eps, side.size)
            if not abs(self._side(part, beside=True).value - side.value) <= within:
                raise build_coupling_error()

    def _check_size(self, longer: _Side) -> None:
        """Raise if the batch's gradient is another one in a batch with a sample more."""
        own = self._side(self.finite)
        within = tolerance(self.eps, own.size, float(own.weights.count_nonzero()))
        if not abs(own.value - longer.value) <= within:
            raise build_coupling_error()

    def _longer(self) -> _Side | None:
        """Pull random weights back on a batch with a sample more; None where that cannot be compared."""
        if self.plain.draws:  # noise goes by place and shape
            return None
        try:
            return self._side(self.finite, more=1)
        except Exception:  # whatever it is, it is about the size: the batch itself went through
            return None

    def _side(self, part: Tensor, *, more: int = 0, beside: bool = False, powers: bool = False) -> _Side:
        """Compute the VJP of random weights of a part, on a batch of copies of that part.

        With `beside`, on the batch itself, where the other losses have weight zero. With powers of two as
        weights, a pass takes the same roundings as that of one sample with weight 1. No weight is below 1,
        and all are far above where the types allow it: a hook that clips, here or in a later batch, shows.
        """
        pair = torch.rand(2, len(part), generator=seed_generator(), dtype=torch.float64, device="cpu")
        pair = pair.to(self.plain.losses)
        scale = 2.0 ** (4 * pair[0]).floor() if powers else 1.0 + pair[0]
        weights = torch.where(part, self.enlarged * scale * torch.where(pair[1] < 0.5, -1.0, 1.0), 0.0)
        with self.function.preserve():
            parameters = self.function.parameters()
            losses = self.function(self.batch if beside else resample(self.batch, part, more))
            spread = torch.cat([weights, weights.new_zeros(more)])
            pieces = vjp(losses, spread.to(losses), parameters)
        self._compare(losses[: len(part)], part)
        return _Side(weights, *project(pieces, [self.direction[name] for name in parameters]))

    def _errors(self, scores: Tensor, side: _Side) -> _Error:
        """Return how far scores are from a side's plain gradient, and whether rounding explains that.

        A score is itself a sum, of products of the gradient's entries with the direction's. Those of the
        gradient of random signs have on average the size that the samples' have, in squares.
        """
        terms = torch.where(side.weights != 0, side.weights * scores, 0.0).double()
        apart, scale = abs(float(terms.sum()) - side.value), float(terms.abs().sum())
        count = float(side.weights.count_nonzero())
        room = tolerance(self.eps, float(terms.norm()), count, magnitude=side.size)
        return _Error(apart <= room, apart / (scale or side.size or 1.0))

    def _compare(self, losses: Tensor, part: Tensor) -> None:
        """Raise if a part's losses are not those of the batch."""
        if not self._near(losses.detach()[part], self.plain.losses[part], part):
            raise build_coupling_error()

    def _near(self, losses: Tensor, expected: Tensor, index: Tensor) -> bool:
        """Whether the losses of the samples `index` are those expected, but for rounding."""
        losses_of_finite = self.plain.losses[self.finite].double()
        within = rounding_bound(self.eps, float(losses_of_finite.square().mean().sqrt()))
        if not differ(losses, expected, within):
            return True
        if self._roundings is None:
            parameters = self.function.parameters().values()
            self._roundings = measure_roundings(self._losses, parameters, self.eps)
        return not differ(losses, expected, self._roundings.to(losses)[index])

    def _losses(self, part: Tensor | None = None) -> Tensor:
        """Return the losses; with a `part`, copies of its samples replace all others."""
        with self.function.preserve(), torch.enable_grad():  # a model may take gradients in its forward pass
            losses: Tensor = self.function(self.batch if part is None else resample(self.batch, part))
        return losses.detach()


def resample(batch: Batch, part: Tensor, more: int = 0) -> Batch:
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


def build_coupling_error() -> ValueError:
    """Build the error of samples that have no gradients of their own."""
    return ValueError(
        "model: expected every sample's loss and gradient to be its own, got ones that move with the other "
        "samples of the batch, or their number: normalise by running statistics (model.eval(), not BatchNorm "
        "in training mode), let nothing in the model or the loss average, compare or attend across the first "
        "axis, nor an embedding scale its gradient by frequency, and score at the level at which samples are "
        "independent (pairs, graphs), one row for each"
    )
