"""Scores of the documents of packed rows, or of other segments of samples."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import NOT_CONTENT, check_batch, check_choice, rounding_bound
from lai_torch._exact.by_position import RowSums, check_positions
from lai_torch._model.batch import Loss
from lai_torch._model.preserve import alone, evaluating, preserved
from lai_torch._model.standing import drawn
from lai_torch._model.untouched import losses_of
from lai_torch.exact import exact_scores
from lai_torch.trace import trace

CUTS = 2
"""Documents next to one another, and next but one, are once apart."""


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
    another: that is tried on the batch, by other contents in some segments. `exact` scores the losses of a
    segment's own positions, whatever they read.

    Parameters
    ----------
    model
        The model, in the mode in which it is meant.
    loss
        `loss(outputs, targets) -> (n, t)`: one unnormalised number a position.
    validation, training
        `(inputs, targets)` each. Inputs named like positions, masks, sequences, segments or lengths say where
        segments lie; all others, `(n, t, ...)`, are what is in them.
    segments
        `(n, t)`, integers: the segment of every position, in `[0, count)` over the whole batch. A position
        with another number, such as -1, belongs to none.
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
    if estimator == "exact":
        scores = exact_scores(model, loss, validation, training, per_position=True)
        _check_shape(segments, scores)
        members = (segments.flatten() == torch.arange(count, device=segments.device)[:, None]).to(scores)
        return torch.where(members > 0, scores.flatten(), 0.0).sum(1)
    check_segments(model, loss, training, segments)
    gradients = "all" if estimator == "ghost" else "output"
    summed = RowSums(loss)
    known, scored = (trace(model, summed, *batch, gradients=gradients) for batch in (validation, training))
    summary = lai.summarize(known, estimator, positions=positions)
    return lai.segment_scores(summary, scored, segments, count, estimator, positions=positions)


@alone
def check_segments(model: nn.Module, loss: Loss, training: Any, segments: Tensor) -> None:
    """Raise if segments of a batch see one another: if a loss moves when others have other contents.

    Parameters
    ----------
    model, loss, training, segments
        As for `segment_scores`.

    Raises
    ------
    ValueError
        If a position's loss moves with the contents of another segment.
    """
    with evaluating(model), torch.no_grad():
        usual = _losses(model, loss, training)
        _check_shape(segments, usual)
        finite = torch.isfinite(usual)
        within = rounding_bound(torch.finfo(usual.dtype).eps, float(usual[finite].abs().amax()))
        for moved, other in _others(training, segments):
            losses = _losses(model, loss, other)
            apart = ((losses - usual).abs() > within) & finite & ~moved
            if bool(apart.any()):
                row, place = apart.nonzero()[0].tolist()
                msg = (
                    f"segments: expected ones that do not see one another, got a loss at position {place} of "
                    f"row {row} that moves with another segment's contents; use block-diagonal attention "
                    "(position_ids that begin anew, or a mask), unpack the rows, or score by 'exact'"
                )
                raise ValueError(msg)


def _losses(model: nn.Module, loss: Loss, batch: Any) -> Tensor:
    with preserved(model, loss):
        return check_positions(losses_of(model, loss, batch))


def _check_shape(segments: Tensor, losses: Tensor) -> None:
    if segments.shape != losses.shape:
        msg = f"segments: expected shape (n, t) = {tuple(losses.shape)}, got {tuple(segments.shape)}"
        raise ValueError(msg)


def _others(batch: Any, segments: Tensor) -> Iterator[tuple[Tensor, Any]]:
    """Yield which positions have other contents, `(n, t)`, and the batch; drawn from all positions."""
    inputs, targets = batch
    # neighbours in a row have numbers that differ in the lowest bits
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    order = begins.cumsum(1)
    places = torch.randperm(segments.numel(), generator=drawn(), device="cpu").to(segments.device)
    for bit in range(CUTS):
        for side in (0, 1):
            moved = (order >> bit & 1) == side
            if not bool(moved.any()) or bool(moved.all()):
                continue
            index = torch.where(moved.flatten(), places, torch.arange(len(places), device=places.device))
            yield moved, (_changed(inputs, index, segments), targets)


def _changed(tree: Any, index: Tensor, segments: Tensor, name: str = "") -> Any:
    """Return inputs with the contents of other positions."""
    if isinstance(tree, Tensor):
        if NOT_CONTENT.search(name) or tree.shape[:2] != segments.shape:
            return tree
        return tree.flatten(0, 1)[index].view(tree.shape)
    if isinstance(tree, Mapping):
        return {key: _changed(value, index, segments, str(key)) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_changed(part, index, segments, name) for part in tree)
    return tree
