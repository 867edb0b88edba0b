"""Exact scores that are proved on the batch itself, by the adjoint identity.

A sample's score is `s_j = <grad l_j, d>` along a direction d, with the gradient that a plain reverse pass
gives. Reverse mode is linear in the losses' weights, so for any weights w

    sum_j w_j s_j = <grad sum_j w_j l_j, d>,

and the right side takes one plain reverse pass through the user's own model. Drawn w are orthogonal to a
wrong s with probability zero: a way to compute s that meets the identity is right for every sample.

The identity says nothing of samples that see one another. Hence the losses are compared with those of other
batches, as a trace's are, and the passes on the right are taken on such batches: in two of them a half of the
samples stands, beside copies of these, and one is of another size.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lai_core._adapters import tolerance
from lai_torch._exact.directional import Pair, explain_error, precision
from lai_torch._graph.prove import are_close, check_unmoved, exchange_samples
from lai_torch._model.batch import find_unaligned, halve_samples, row_sources, rows, seed_generator, usable
from lai_torch._model.function import Function, Point, project, vjp

Batch = tuple[Any, Any]
Method = Callable[[Function, Point, Batch], Pair]
TENSOR_FLOAT = 2.0**-11
"""Precision of TF32 products."""


class Side(NamedTuple):
    """Random weights of samples, the plain gradient of their sum along the direction, and its precision."""

    weights: Tensor
    value: float
    size: float
    eps: float


class Derivative(NamedTuple):
    """Scores and losses, `(n,)`, the method, the reason why earlier methods failed, and the residual."""

    scores: Tensor
    losses: Tensor
    method: str
    reason: str | None
    residual: float | None


def draw_side(
    function: Function, direction: Point, batch: Batch, owners: Tensor | None = None, *, powers: bool = False
) -> Side:
    """Compute the VJP of random weights of the losses, of which each is its owner's; -1: it counts for none.

    With powers of two as weights, a pass takes the same roundings as that of one sample with weight 1. No
    weight is below 1, and all are far above where the types allow it: a hook that clips, here or in a later
    batch, shows.
    """
    with function.preserve():
        parameters = function.parameters()
        losses = function(batch)
        eps = precision(losses)
        pair = torch.rand(2, len(losses), generator=seed_generator(), dtype=torch.float64, device="cpu")
        pair = pair.to(losses)
        scale = 2.0 ** (4 * pair[0]).floor() if powers else 1.0 + pair[0]
        if eps != torch.finfo(torch.float16).eps:  # a type that would overflow
            scale = 1024.0 * scale
        weights = torch.where(pair[1] < 0.5, -scale, scale)
        if owners is not None:
            weights = torch.where(owners >= 0, weights, 0.0)
        pieces = vjp(losses, weights, parameters)
        # a sample has the sum of its copies' weights
        if owners is not None:
            whole = weights.new_zeros(int(owners.max()) + 1)
            weights = whole.index_add_(0, owners.clamp(min=0), weights)
        if losses.is_cuda:
            eps = max(eps, TENSOR_FLOAT)
        return Side(weights.detach(), *project(pieces, [direction[name] for name in parameters]), eps)


def _measure_error(scores: Tensor, side: Side) -> tuple[bool, float]:
    """Say whether rounding explains how far scores are from a side's plain gradient, and how far that is.

    A score is itself a sum, of products of the gradient's entries with the direction's. Those of the
    gradient of random signs have on average the size that the samples' have, in squares.
    """
    size = min(len(side.weights), len(scores))
    terms = torch.where(side.weights[:size] != 0, side.weights[:size] * scores[:size], 0.0).double()
    apart, scale = abs(float(terms.sum()) - side.value), float(terms.abs().sum())
    room = tolerance(side.eps, float(terms.norm()), float(side.weights.count_nonzero()), magnitude=side.size)
    return apart <= room, apart / (scale or side.size or 1.0)


def find_proved(
    function: Function,
    direction: Point,
    batch: Batch,
    methods: Mapping[str, Method],
    others: Sequence[tuple[Batch, Tensor | None]],
) -> tuple[Derivative | None, list[str]]:
    """Return the first way that meets the identity on some batches, and why not those before it.

    Each comes with the sample whose loss and gradient each of its places has, -1 of none; None: the batch's
    own. None is returned where a score is not finite in the last way; see `find_bounded`.

    Raises
    ------
    ValueError
        If no way meets the identity.
    """
    sides = [draw_side(function, direction, *other) for other in others]
    reasons: list[str] = []
    unbounded = compared = False
    for name, way in methods.items():
        unbounded = False
        try:
            scores, losses = way(function, direction, batch)
        # memory says nothing about the method
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reasons.append(f"{name}: {explain_error(error)}")
            continue
        if not bool(torch.isfinite(scores).all()):
            reasons.append(f"{name}: not finite for a sample whose loss is")
            unbounded = True
            continue
        errors = [_measure_error(scores, side) for side in sides]
        relative = max(relative for _, relative in errors)
        if all(within for within, _ in errors):
            return Derivative(scores, losses, name, "; ".join(reasons) or None, relative), reasons
        # What is left may be roundings, of which a sum of gradients with such weights takes the same as the
        # gradients of single samples do.
        if not compared:
            sides = [draw_side(function, direction, *other, powers=True) for other in others]
            compared = True
        reasons.append(f"{name}: off by {relative:.1e} from the gradient of a plain reverse pass")
    if unbounded:
        return None, reasons
    msg = (
        "model: expected the gradient of a weighted sum of losses to be the weighted sum of the samples' "
        "gradients, in this batch and beside other samples, and no way to compute them agrees with that: a "
        "hook or a custom backward pass is not linear (it clips or rounds gradients, say), draws at random, "
        "or depends on a sample's place or the others, as an embedding does that scales by frequency "
        f"({'; '.join(reasons)})"
    )
    raise ValueError(msg)


def find_bounded(function: Function, direction: Point, batch: Batch, finite: Tensor) -> Tensor:
    """Say which samples have a finite gradient: in a batch, an infinite slope spoils everyone's."""
    found = finite.clone()
    for j in finite.nonzero().squeeze(1):
        alone = torch.full_like(finite, -1, dtype=torch.long)
        alone[j] = j
        found[j] = isfinite(draw_side(function, direction, resample(batch, alone >= 0), alone).value)
    return found


def list_others(
    function: Function, batch: Batch, losses: Tensor, finite: Tensor, eps: float, *, by_rows: bool
) -> list[tuple[Batch, Tensor]]:
    """Return batches in which samples stand beside others, where their losses do not move; see `find_proved`.

    `by_rows`, nor do they and their gradients where the samples stand elsewhere.

    Raises
    ------
    ValueError
        If a sample's loss moves with the others, with their number, or from call to call.
    """
    with function.preserve():
        again = function(batch).detach()
    if not are_close(again[finite], losses[finite], eps=eps):
        msg = (
            "model: expected the same losses of the same batch, random streams and buffers put back, got "
            "others at the second call: forward changes something else (an attribute, a file, a "
            "counter); keep in buffers what it changes"
        )
        raise ValueError(msg)
    samples = len(losses)
    # A loss may hold weights of this batch's places, unless nobody knows which row is a sample's.
    compared = by_rows or bool(find_unaligned(batch, samples))
    with function.preserve():
        exchange = exchange_samples((function.model, function.loss, usable(batch)), by_rows=compared)
    if exchange is None:
        msg = (
            "training: expected a batch whose rows can be exchanged, to check that samples are independent, "
            "got one that fails when they are; hold one row a sample in every tensor, padded where they "
            "differ in length"
        )
        raise ValueError(msg)
    others = [
        (resample(batch, half), torch.where(half | by_rows, row_sources(half), -1))
        for half in halve_samples(finite)
    ]
    for size in {graph.samples for graph, _ in exchange.others} - {samples}:
        places = torch.arange(size, device=losses.device)
        owners = torch.where(places < samples, places, -1)
        others.append((rows(batch, places.clamp(max=samples - 1), samples), owners))
    return others


def check_halves(function: Function, batch: Batch, losses: Tensor, eps: float) -> None:
    """Raise if a sample's loss moves where one half of the samples makes room for copies of the other."""
    problem = function.model, function.loss, usable(batch)
    for half in halve_samples(torch.ones_like(losses, dtype=torch.bool)):
        with function.preserve():  # with gradients: a model may take some in its forward pass
            moved = function(resample(batch, half)).detach()
        with function.preserve():
            check_unmoved(problem, moved[half], losses, half, eps)


def resample(batch: Batch, part: Tensor) -> Batch:
    """Return a batch in which copies of a part's samples stand for all others."""
    if bool(part.all()):
        return batch
    found: Batch = rows(batch, row_sources(part), len(part))
    return found
