"""Scores of the documents of packed rows, or of other segments of samples."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import (
    check_batch,
    check_choice,
    check_segment_numbers,
    holds_contents,
    no_contents,
    other_contents,
    rounding_bound,
    summed_by_segment,
)
from lai_torch._exact.by_position import RowSums, check_positions
from lai_torch._model.batch import Loss
from lai_torch._model.function import losses_of
from lai_torch._model.precision import zeros_filled
from lai_torch._model.preserve import alone, evaluating, preserved
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
    given: Any = segments
    if not isinstance(given, Tensor):
        msg = f"segments: expected a tensor (n, t) of whole numbers, got {type(given).__name__}"
        raise TypeError(msg)
    if estimator == "exact":
        scores = exact_scores(model, loss, validation, training, per_position=True)
        return summed_by_segment(scores, segments, count)
    check_segments(model, loss, training, segments)
    gradients = "all" if estimator == "ghost" else "output"
    summed = RowSums(loss)
    known, scored = (trace(model, summed, *batch, gradients=gradients) for batch in (validation, training))
    if segments.shape[1] == 1:
        scored = _add_positions(scored)
    summary = lai.summarize(known, estimator, positions=positions)
    return lai.segment_scores(summary, scored, segments, count, estimator, positions=positions)


def _add_positions(scored: lai.Trace) -> lai.Trace:
    """Return a trace with an axis for the one position of each row, which a product of rows does not keep."""

    def add(record: Any) -> Any:
        arrays = {
            name: array.unsqueeze(1)
            for name, array in record.arrays().items()
            if array.ndim == (1 if name == "ids" else 2)
        }
        rows = isinstance(record, lai.LayerTrace | lai.GainTrace | lai.EmbeddingTrace)
        return replace(record, **arrays) if rows else record

    return lai.Trace([add(record) for record in scored.layers])


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
    inputs, targets = training

    def losses(changed: Any) -> Tensor:
        with preserved(model, loss):
            return check_positions(losses_of(model, loss, (changed, targets)))

    def message(row: int, place: int) -> str:
        return (
            "segments: expected ones that do not see one another, got a loss at position "
            f"{place} of row {row} that moves with another segment's contents; have the model separate "
            "them (position_ids, an attention mask), or score by 'exact', which needs none"
        )

    parameters = list(model.parameters())
    with evaluating(model), torch.no_grad(), zeros_filled(parameters):
        check_apart(losses, inputs, segments, parameters, message)


def check_apart(
    losses: Callable[[Any], Tensor],
    inputs: Any,
    segments: Tensor,
    parameters: Iterable[Tensor],
    message: Callable[[int, int], str],
) -> None:
    """Raise if a position's loss moves when other segments have other contents.

    A row's products are the same numbers beside other rows, so that nothing but rounding is allowed: that of
    the losses, or, with a warning, that of the parameters (experts add up another number of rows).

    Parameters
    ----------
    losses
        From inputs to `(n, t)`.
    inputs, segments
        As for `segment_scores`.
    parameters
        Of the model.
    message
        What to say of a row and a position.

    Raises
    ------
    ValueError
        If a loss moves; if nothing in the inputs is known to be contents.
    """
    usual = losses(inputs)
    check_segment_numbers(segments, usual.shape, 1)
    finite = torch.isfinite(usual)
    largest = float(torch.where(finite, usual.abs(), 0.0).amax())
    kinds = {usual.dtype, *(one.dtype for one in parameters if one.is_floating_point())}
    own, coarsest = (
        rounding_bound(eps, largest)
        for eps in (torch.finfo(usual.dtype).eps, max(torch.finfo(kind).eps for kind in kinds))
    )
    moves = 0.0
    for moved, index in other_contents(segments):
        apart = (losses(changed(inputs, index, segments)) - usual).abs().nan_to_num(torch.inf)
        apart = torch.where(finite & ~moved, apart, 0.0)
        moves = max(moves, float(apart.amax()))
        if moves > coarsest:
            row, place = divmod(int(apart.argmax()), apart.shape[1])
            raise ValueError(message(row, place))
    if moves > own:
        warnings.warn(
            f"segments: a loss of up to {largest:.3g} moved by {moves:.2g} with another segment's contents, "
            "which may be rounding in the parameters' type; check that the model separates segments",
            UserWarning,
            stacklevel=2,
        )


def changed(inputs: Any, index: Tensor, segments: Tensor) -> Any:
    """Return inputs with the contents of other positions, `(n t,)`.

    Parameters
    ----------
    inputs
        As a model takes them.
    index
        Where each position's contents come from.
    segments
        `(n, t)`, whose shape contents begin with.

    Returns
    -------
    Any
        Of the same structure.

    Raises
    ------
    ValueError
        If nothing in them is known to be contents.
    """
    found: list[str] = []

    def moved(tree: Any, name: str = "") -> Any:
        if isinstance(tree, Tensor):
            if not holds_contents(name, tree, segments):
                return tree
            found.append(name)
            return tree.flatten(0, 1)[index].view(tree.shape)
        if isinstance(tree, Mapping):
            return {key: moved(value, str(key)) for key, value in tree.items()}
        if isinstance(tree, list | tuple):
            return type(tree)(moved(part, name) for part in tree)
        return tree

    other = moved(inputs)
    if not found:
        raise no_contents(segments)
    return other
