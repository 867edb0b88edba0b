"""Scores of the documents of packed rows, or of other segments of samples."""

import operator
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lai_core as lai
from lai_core._adapters import (
    check_batch,
    check_choice,
    check_segment_numbers,
    rounding_bound,
    sum_by_segment,
    yield_replacements,
)
from lai_jax._program.leaves import split_leaves
from lai_jax._program.losses import is_array, losses_of
from lai_jax.exact import exact_scores
from lai_jax.trace import trace

NOT_CONTENT = re.compile("position|mask|seq|seg|length")
"""Inputs of these names say where the segments of a batch lie, not what is in them."""


def segment_scores(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    validation: Any,
    training: Any,
    segments: jax.Array,
    count: int,
    *,
    estimator: str = "lai",
    positions: str = "tokens",
) -> jax.Array:
    """Score the segments of a batch: documents of packed rows, turns of conversations.

    `lai`, `lli` and `ghost` score a segment as a sample of its own, which it is where no segment sees
    another: outside of `jax.jit` that is tried on the batch, by other contents and targets in some segments.
    `exact` scores the losses of a segment's own positions, whatever they read.

    Parameters
    ----------
    apply, params
        As for `trace`.
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
    jax.Array
        `(count,)`. Positive helps: the decrease of the summed validation loss per unit learning rate per
        unit weight of the segment's summed loss, on the parameters that the estimator sees.

    Raises
    ------
    ValueError
        If segments see one another; as `trace` and `exact_scores` otherwise.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: ((outputs - targets) ** 2).sum(-1) / 2
    >>> batch = jnp.ones((1, 2, 1)), jnp.array([[[2.0], [-2.0]]])
    >>> segments = jnp.array([[0, 1]])
    >>> print(lai_jax.segment_scores(apply, jnp.ones((1, 1)), loss, batch, batch, segments, 2))
    [-2.  6.]
    """
    check_choice("estimator", estimator, ("lai", "lli", "ghost", "exact"))
    for role, batch in (("validation", validation), ("training", training)):
        check_batch(role, batch)
    segments = jnp.asarray(segments)
    if estimator == "exact":
        scores = exact_scores(apply, params, loss, validation, training, per_position=True)
        return sum_by_segment(scores, segments, count)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((params, training, segments))):
        check_segments(apply, params, loss, training, segments)

    gradients = "all" if estimator == "ghost" else "output"
    summed = lambda outputs, targets: loss(outputs, targets).sum(1)  # noqa: E731
    known, scored = (
        trace(apply, params, summed, *batch, gradients=gradients) for batch in (validation, training)
    )
    summary = lai.summarize(known, estimator, positions=positions)
    return lai.segment_scores(summary, scored, segments, count, estimator, positions=positions)


def check_segments(
    apply: Callable[..., Any], params: Any, loss: Callable[..., Any], training: Any, segments: jax.Array
) -> None:
    """Raise if segments of a batch see one another: if a loss moves when others have other contents.

    Targets move with their segment's contents.

    Parameters
    ----------
    apply, params, loss, training, segments
        As for `segment_scores`.

    Raises
    ------
    ValueError
        If a position's loss moves with the contents or the targets of another segment.
    """
    losses = losses_of(apply, loss, per_position=True)
    leaves, restored = split_leaves(params)
    # a gate or a head that starts at zero hides what it multiplies until the first step
    params = restored(
        [
            leaf if bool(leaf.any()) else jax.random.normal(jax.random.key(place), leaf.shape, leaf.dtype)
            for place, leaf in enumerate(leaves)
        ]
    )
    usual = losses(params, *training)
    check_segment_numbers(segments, usual.shape, 1)
    finite = jnp.isfinite(usual)
    largest = float(jnp.max(jnp.where(finite, jnp.abs(usual), 0)))
    within = rounding_bound(float(jnp.finfo(usual.dtype).eps), largest)
    for moved, index in yield_replacements(segments):
        found = losses(params, *_exchange(training, index, segments))
        apart = ~(jnp.abs(found - usual) <= within) & finite & ~moved
        if bool(apart.any()):
            row, place = np.argwhere(np.asarray(apart))[0].tolist()
            msg = (
                f"segments: expected ones that do not see one another, got a loss at position {place} of row "
                f"{row} that moves with another segment's contents or targets; use block-diagonal attention "
                "and a loss that shifts within segments, unpack the rows, or score by 'exact' (an input that "
                "says where segments lie has position, mask, seq, seg or length in its name)"
            )
            raise ValueError(msg)


def _exchange(batch: Any, index: jax.Array, segments: jax.Array) -> tuple[Any, Any]:
    """Return a batch with the contents and the targets of other positions, `(n t,)`."""

    def change(path: Any, leaf: Any) -> Any:
        if not is_array(leaf) or leaf.shape[:2] != segments.shape:
            return leaf
        if NOT_CONTENT.search(jax.tree_util.keystr(path).lower()):
            return leaf
        return leaf.reshape(-1, *leaf.shape[2:])[index].reshape(leaf.shape)

    inputs, targets = (jax.tree_util.tree_map_with_path(change, side) for side in batch)
    if all(map(operator.is_, jax.tree.leaves(inputs), jax.tree.leaves(batch[0]))):
        msg = (
            "inputs: expected an array of contents, to try whether segments see one another, of shape "
            f"({segments.shape[0]}, {segments.shape[1]}, ...) and without position, mask, seq, seg or "
            "length in its name, got none; rename it, or score by 'exact'"
        )
        raise ValueError(msg)
    return inputs, targets
