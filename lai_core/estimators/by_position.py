r"""Scores of positions and of segments: the tokens of a sample, or the documents that share a row.

A sample's gradient is a sum over its positions, so its score is, too: :math:`\langle G_V, \sum_t g_t
a_t^\top\rangle = \sum_t g_t^\top G_V a_t`. The score of a position is that of a sample which has this
position alone. What it means follows from the gradient that stands there:

=========  ============================================================================================
estimator  the score of position t of sample j
=========  ============================================================================================
`lai`      of the position's own output gradient, on its own virtual readouts
`lli`      of the position's own output gradient, on its own last layer
`ghost`    of the gradient that *lands* at t in every layer: by way of attention, other positions' losses too
=========  ============================================================================================
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxtyping import Float, Integer

from lai_core._engine.axes import check_kind
from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET, check_choice, check_count
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, cast, namespace_of
from lai_core.estimators._arguments import check_lai_trace
from lai_core.estimators.catalogue import PAIRWISE, Facts, find_estimator
from lai_core.estimators.scores import ghost_scores, lai_scores, lli_scores
from lai_core.estimators.summaries import ValidationSummary
from lai_core.records._reads import ReadGradient
from lai_core.records.base import Record, Trace, locate
from lai_core.records.compatible import check_trace

SCORES: dict[str, Callable[..., Array]] = {"ghost": ghost_scores, "lai": lai_scores, "lli": lli_scores}


def position_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    estimator: str,
    *,
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, "n_train t"]:
    r"""Score every position of every training sample.

    Implements :eq:`position-score`: the scores of a sample's positions add up to the sample's own, of LAI to
    that with `positions="tokens"`.

    Parameters
    ----------
    validation
        A trace or a summary for `estimator`; LAI's with `positions="tokens"`.
    training
        A trace whose layers all have the positions of the last one.
    estimator
        `lai`, `lli` or `ghost`. The positions' own output gradients make the first two; Ghost's are where
        gradients land, which is a document's own score only where no gradient crosses between documents.
    memory_budget
        Bytes that temporaries may take.

    Returns
    -------
    array
        `(n_train, t)`. Positive helps, in the unit of the samples' scores. LAI's is 0 at a position
        that is masked.

    Raises
    ------
    ValueError
        If a record that the estimator reads has other positions than the last layer, or none that are the
        samples' (a convolution's map, rows that are routed to an expert).

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> layer = lai.LayerTrace(np.array([[[1.0], [2.0]]]), np.array([[[1.0], [-1.0]]]))
    >>> lai.position_scores(lai.Trace([layer]), lai.Trace([layer]), "lli")
    array([[-1.,  2.]])
    """
    asked, work = _check_training(training, estimator, memory_budget)
    samples, length = _extent(training)

    def separate(layer: Record, array: Array) -> Array:
        return work.xp.reshape(array, (samples * length, 1, *array.shape[2:]))

    parts = _rearrange(asked, training, work, samples * length, separate)
    options = {"positions": "tokens"} if asked.positions else {}
    scores = SCORES[asked.name](validation, parts, memory_budget=memory_budget, **options)
    return work.xp.reshape(scores, (samples, length))


def segment_scores(
    validation: Trace | ValidationSummary,
    training: Trace,
    segments: Integer[Array, "n_train t"],
    count: int,
    estimator: str,
    *,
    positions: str = "tokens",
    memory_budget: int = DEFAULT_MEMORY_BUDGET,
) -> Float[Array, " count"]:
    r"""Score segments of training samples: the documents of a packed row, the turns of a conversation.

    Where no segment sees another, these are the scores of a batch that has each segment as a sample of its
    own (:eq:`position-score`, summed over a segment).

    Assume: no value of one segment enters another's, and no gradient crosses between them.

    Parameters
    ----------
    validation, training, estimator, memory_budget
        As for `position_scores`.
    segments
        `(n_train, t)` integers: the segment of every position, in `[0, count)` over the whole batch. A
        position with another number, such as -1, belongs to none.
    count
        Number of segments.
    positions
        What LAI's product means: `tokens`, pairs of positions; `mean`, means over a segment's positions.

    Returns
    -------
    array
        `(count,)`. Positive helps. 0 for a segment without positions.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> layer = lai.LayerTrace(np.array([[[1.0], [2.0], [3.0]]]), np.ones((1, 3, 1)))
    >>> lai.segment_scores(lai.Trace([layer]), lai.Trace([layer]), np.array([[0, 0, 1]]), 2, "lli")
    array([18., 18.])
    """
    asked, work = _check_training(training, estimator, memory_budget)
    check_choice("positions", positions, ("tokens", "mean"))
    namespace_of({"training": training.layers[-1].output_gradients, "segments": segments})
    check_segment_numbers(segments, _extent(training), count)
    if positions == "tokens" or not asked.positions:
        scores = position_scores(validation, training, asked.name, memory_budget=memory_budget)
        return segment_sums(scores, segments, count, work)
    check_lai_trace(training, work, "mean", "training")
    means = _segment_means(training, segments, count, work)
    return lai_scores(validation, means, positions="mean", memory_budget=memory_budget)


def _check_training(training: Trace, estimator: str, memory_budget: int) -> tuple[Facts, Workspace]:
    asked = find_estimator(estimator, among=PAIRWISE)
    return asked, check_trace("training", training, asked.gradients, memory_budget)


def _extent(training: Trace) -> tuple[int, int]:
    """Return the numbers of samples and of positions."""
    last: Any = training.layers[-1]
    shape = tuple(last.output_gradients.shape)
    if len(shape) != 3 or not last.has_output_rows:
        here = locate("training", len(training.layers) - 1, last)
        msg = f"{here}: expected output gradients of shape (n, t, d), a row for each position, got {shape}"
        raise ValueError(msg)
    return shape[0], shape[1]


def check_segment_numbers(segments: Any, shape: tuple[int, ...], count: Any) -> None:
    """Raise unless segments are integers, one a position, and their number is a positive whole number."""
    if tuple(segments.shape) != tuple(shape):
        msg = f"segments: expected shape (n, t) = {tuple(shape)}, got {tuple(segments.shape)}"
        raise ValueError(msg)
    check_kind("segments", segments, namespace_of({"segments": segments}), "integral")
    check_count("count", count)


def segment_sums(values: Array, segments: Array, count: int, work: Workspace) -> Array:
    """Return the sums of `(n, t)` or `(n, t, d)` over each segment; NaN where one of its positions is."""
    xp = work.xp
    # As a table's gradient, whose rows are the segments: a position without one reads no row. In the type of
    # numbers up to count, which that of segments may not reach.
    ids = cast(xp, segments, xp.arange(0).dtype)
    rows = xp.expand_dims(values, axis=2) if values.ndim == 2 else values
    found = ReadGradient(ids, rows, count).total(work)
    return found[:, 0] if values.ndim == 2 else found


def _segment_means(training: Trace, segments: Array, count: int, work: Workspace) -> Trace:
    """Return the trace of a batch in which every segment is a sample: the means over its positions."""
    xp = work.xp

    def means(layer: Record, array: Array) -> Array | None:
        if array.ndim == 2:  # which positions count: the means are of those
            return None
        valid = layer.readout_positions
        if valid is None:
            valid = xp.ones_like(array[..., 0], dtype=xp.bool)
        chosen = xp.where(valid[..., None], array, xp.zeros_like(array[:1, :1, :1]))
        sizes = segment_sums(cast(xp, valid, work.dtype), segments, count, work)
        sums = segment_sums(chosen, segments, count, work)
        return sums / xp.where(sizes > 0, sizes, xp.ones_like(sizes))[:, None]

    return _rearrange(find_estimator("lai"), training, work, count, means)


def _rearrange(
    asked: Facts,
    training: Trace,
    work: Workspace,
    count: int,
    change: Callable[[Record, Array], Array | None],
) -> Trace:
    """Return a trace of `count` samples: what `change` makes of each `(n, t, d)` that the estimator reads."""
    layers, last = [], training.layers[-1]
    for index, layer in enumerate(training.layers):
        arrays = dict(layer.arrays())
        everything = asked.parameters == "traced" or layer is last
        if not everything and (asked.parameters == "last" or layer.readout_input(work.xp) is None):
            # nothing looks at the numbers of this record: any of the right shape will do
            arrays = {
                name: work.xp.broadcast_to(array[:1, ...], (count, *array.shape[1:]))
                for name, array in arrays.items()
            }
        else:
            for name, array in arrays.items():
                if not everything and name == "output_gradients":
                    arrays[name] = None
                else:
                    _check_positions(training, index, name)
                    arrays[name] = change(layer, array)
        changed: Any = layer
        layers.append(replace(changed, **arrays))
    return Trace(layers)


def _check_positions(training: Trace, index: int, name: str) -> None:
    """Raise unless an array of a record has one row for each position of the last layer."""
    layer, (samples, length) = training.layers[index], _extent(training)
    array = layer.arrays()[name]
    if not layer.has_rows(name) or tuple(array.shape[:2]) != (samples, length):
        msg = (
            f"{locate('training', index, layer)}.{name}: expected the last layer's {length} positions, a row "
            f"for each, got shape {tuple(array.shape)}; 'lli' needs them of the last layer alone, and "
            "exact_scores(per_position=True) of an adapter of none"
        )
        raise ValueError(msg)
