"""Scores of the documents of packed rows, or of other segments of samples."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import (
    check_batch,
    check_choice,
    check_segment_numbers,
    find_places,
    rounding_bound,
    sum_by_segment,
    yield_replacements,
)
from lai_torch._exact.by_position import RowSums, check_positions
from lai_torch._graph.places import Scale
from lai_torch._graph.saved import Saved
from lai_torch._graph.walk import walk
from lai_torch._model.batch import Loss, map_tensors, tensors
from lai_torch._model.function import losses_of
from lai_torch._model.precision import zeros_filled
from lai_torch._model.preserve import preserve, run_alone
from lai_torch.exact import exact_scores
from lai_torch.trace import trace


def segment_scores(
    model: nn.Module,
    loss: Loss,
    validation: Any,
    training: Any,
    segments: Tensor,
    count: int,
    *,
    estimator: str = "lai",
    positions: str = "tokens",
) -> Tensor:
    """Score the segments of a batch: documents of packed rows, turns of conversations.

    `lai`, `lli` and `ghost` score a segment as a sample of its own, which it is where no segment sees
    another: `check_segments` shows that on the batch. `exact` scores the losses of a segment's own positions,
    whatever they read; of segments that see none another these are Ghost's scores, too.

    Parameters
    ----------
    model
        The model, in the mode in which it is meant.
    loss
        `loss(outputs, targets) -> (n, t)`: one unnormalised number a position.
    validation, training
        `(inputs, targets)` each.
    segments
        `(n, t)`, integers: the segment of every position, in `[0, count)` over the whole batch. A segment may
        lie in several pieces. A position with another number, such as -1, belongs to none.
    count
        Number of segments.
    estimator
        `lai`, `lli`, `ghost` or `exact`.
    positions
        What LAI's product means: `tokens` or `mean`.

    Returns
    -------
    Tensor
        `(count,)`. Positive helps: the decrease of the summed validation loss per unit learning rate per
        unit weight of the segment's summed loss, on the parameters that the estimator sees.

    Raises
    ------
    ValueError
        If segments see one another; as `trace` and `exact_scores` otherwise.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Linear(2, 3)
    >>> loss = lambda o, y: torch.nn.functional.cross_entropy(o.transpose(1, 2), y, reduction="none")
    >>> batch = torch.randn(1, 4, 2), torch.randint(3, (1, 4))
    >>> lai_torch.segment_scores(model, loss, batch, batch, torch.tensor([[0, 0, 1, 1]]), 2).shape
    torch.Size([2])
    """
    check_choice("estimator", estimator, ("lai", "lli", "ghost", "exact"))
    for role, batch in (("validation", validation), ("training", training)):
        check_batch(role, batch)
    check_segment_numbers(segments, segments.shape, count)
    segments = segments.long()
    # positions of no segment, such as padding
    segments = torch.where((segments >= 0) & (segments < count), segments, -1)
    # a position's gradient is that of its own segment where segments do not see one another
    if estimator != "exact":
        check_segments(model, loss, training, segments)
    # of segments that are apart, what lands in one is the gradient of its own losses
    if estimator in {"exact", "ghost"}:
        scores = exact_scores(model, loss, validation, training, per_position=True)
        return sum_by_segment(scores, segments, count)
    summed = RowSums(loss)
    known, scored = (trace(model, summed, *batch) for batch in (validation, training))
    summary = lai.summarize(known, estimator, positions=positions)
    return lai.segment_scores(summary, scored, segments, count, estimator, positions=positions)


@run_alone
def check_segments(model: nn.Module, loss: Loss, training: Any, segments: Tensor) -> None:
    """Raise if segments of a batch see one another, in the mode in which the model is.

    Inputs of shape `(n, t, ...)` say where segments lie if they count places or are constant within each
    segment, as position ids, masks of ones and sequence ids are. All others are contents.

    Parameters
    ----------
    model, loss, training, segments
        As for `segment_scores`. A position with a negative number belongs to no segment.

    Raises
    ------
    ValueError
        If a segment's losses depend on the contents or the targets of other positions.
    """

    def losses(batch: Any) -> Tensor:
        with preserve(model, loss):
            return check_positions(losses_of(model, loss, batch))

    message = (
        "segments: expected ones that do not see one another, got losses of segment {} that move with "
        "another segment's contents; have the model separate them (position_ids, an attention mask), or "
        "score by 'exact', which needs none"
    )
    parameters = list(model.parameters())
    with zeros_filled(parameters):
        check_apart(losses, training, segments, parameters, message)


def check_apart(
    losses: Callable[[Any], Tensor],
    batch: Any,
    segments: Tensor,
    parameters: Iterable[Tensor],
    message: str,
) -> None:
    """Raise if a segment's losses move with what is at other positions.

    Gradients show it of all that is differentiable (`_check_gradients`). What carries no gradient is shown by
    losses of segments that stay while others have other contents and targets. A row's products are the same
    numbers beside other rows, so that nothing but rounding is allowed: that of the losses, or, with a
    warning, that of the parameters (experts add up another number of rows).

    Parameters
    ----------
    losses
        From a batch to `(n, t)`.
    batch
        `(inputs, targets)`; targets move with their segment's contents.
    segments
        As for `check_segments`.
    parameters
        Of the model.
    message
        What to say of a segment, whose number takes the place of `{}`.

    Raises
    ------
    ValueError
        If a loss moves; if no input has an entry for each position.
    """
    inputs = _find_contents(batch[0], segments)
    usual = _check_gradients(losses, batch, inputs, segments, message)
    if not inputs and len(segments.unique()) > 1:
        shape = f"({segments.shape[0]}, {segments.shape[1]}, ...)"
        msg = (
            f"inputs: expected an array of contents, of shape {shape}, to show that segments do not see one "
            "another, got none that differs between segments; score by 'exact'"
        )
        raise ValueError(msg)
    # by side, for a mask among the targets may say where segments lie among the inputs
    sides = inputs, [one for one in tensors(batch[1]) if one.shape[:2] == segments.shape]
    finite = torch.isfinite(usual)
    largest = float(torch.where(finite, usual.abs(), 0.0).amax())
    kinds = {usual.dtype, *(one.dtype for one in parameters if one.is_floating_point())}
    own, coarsest = (
        rounding_bound(eps, largest)
        for eps in (torch.finfo(usual.dtype).eps, max(torch.finfo(kind).eps for kind in kinds))
    )
    moves = 0.0
    for moved, index in yield_replacements(segments):

        def change(tree: Any, own: list[Tensor], index: Tensor = index) -> Any:
            names = set(map(id, own))
            return map_tensors(
                tree, lambda one: one.flatten(0, 1)[index].view(one.shape) if id(one) in names else one
            )

        with torch.no_grad():
            found = losses(tuple(map(change, batch, sides))).detach()
        apart = (found - usual).abs().nan_to_num(torch.inf)
        apart = torch.where(finite & ~moved & (segments >= 0), apart, 0.0)
        moves = max(moves, float(apart.amax()))
        if moves > coarsest:
            raise ValueError(message.format(int(segments.flatten()[apart.argmax()])))
    if moves > own:
        warnings.warn(
            f"segments: a loss of up to {largest:.3g} moved by {moves:.2g} with another segment's contents, "
            "which may be rounding in the parameters' type; check that the model separates segments",
            UserWarning,
            stacklevel=2,
        )


def _check_gradients(
    losses: Callable[[Any], Tensor],
    batch: Any,
    contents: list[Tensor],
    segments: Tensor,
    message: str,
) -> Tensor:
    """Return the losses of a batch; raise if the gradient at other positions' contents is not zero."""
    # With weight 2^k for the losses of segment k, the gradient at its contents, real ones or their embedding,
    # is scaled by exactly 2^k unless the losses of another segment depend on them.
    real = {id(one): one.detach().requires_grad_() for one in contents if one.is_floating_point()}
    with torch.enable_grad():
        # a copy, for a model may write to what is no leaf alone
        usual = losses((map_tensors(batch[0], lambda one: real.get(id(one), one).clone()), batch[1]))
    check_segment_numbers(segments, usual.shape, 1)
    if not usual.requires_grad:
        return usual
    graph, saved = walk(usual), Saved()
    ids = [one.flatten() for one in contents if one.numel() == segments.numel() and id(one) not in real]
    entries: list[Any] = list(real.values())
    for node, name in enumerate(graph.names):
        if name != "EmbeddingBackward0":
            continue
        index = saved(graph.nodes[node], "indices")
        if index is not None and any(torch.equal(index.flatten(), one.to(index)) for one in ids):
            entries.append(graph.gradient_edge((node, 0)))

    def gradients(weights: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(usual, entries, weights.to(usual), retain_graph=True, allow_unused=True)
        return [one.detach().reshape(segments.numel(), -1) for one in found if one is not None]

    if entries:
        _check_scaled(gradients, segments, message)
    return usual.detach()


def _check_scaled(gradients: Callable[[Tensor], list[Tensor]], segments: Tensor, message: str) -> None:
    """Raise unless powers of two that weigh segments scale the gradients at their own positions alone."""
    names, number = segments.unique(return_inverse=True)
    kept = (segments >= 0).double()
    scale = Scale.choose_scale({one.dtype for one in gradients(kept)})
    plain = gradients(kept * 2.0**scale.shift)
    for code in scale.codes(len(names), segments.device).flatten(0, 1):
        factors = torch.exp2(code[number].double()) * kept
        for one, other in zip(plain, gradients(factors * 2.0**scale.shift), strict=True):
            power = factors.to(one.dtype).view(-1, 1)
            apart = (other - one * power).abs()
            same = (other == one * power) | (one.isnan() & other.isnan())
            if scale.within:
                same |= apart <= scale.within * power * one.abs().nan_to_num(0.0, 0.0, 0.0).amax()
            if not bool(same.all()):
                readers = (
                    name
                    for name in names[names >= 0].tolist()
                    for one in gradients((segments == name).double())
                    if bool(one[(segments != name).flatten()].any())
                )
                raise ValueError(message.format(next(readers, int(names[-1]))))


def _find_contents(inputs: Any, segments: Tensor) -> list[Tensor]:
    """Return the inputs that are contents of positions, by their values."""
    # What counts from a segment's first position on, or is constant in each segment, says where segments lie.
    # Where that is so of every input, contents are those by which places of segments differ.
    place, first, _ = find_places(segments)
    own = (segments >= 0).flatten()
    like = find_places(place[own])[1]  # the first position of each place, which stands for it
    found: tuple[list[Tensor], list[Tensor]] = [], []
    for one in tensors(inputs):
        if one.shape[:2] != segments.shape:
            continue
        if one.shape == (*segments.shape, *segments.shape[1:]) and len(one.unique()) <= 2:
            continue
        values = one.detach().reshape(segments.numel(), -1)
        if values.dtype == torch.bool:
            values = values.long()
        for kind, numbers in zip(found, (values - values[first], values), strict=True):
            if not torch.equal(numbers[own][like], numbers[own]):
                kind.append(one)
    return found[0] or found[1]
