"""Whether samples see one another: then a sample's loss has no gradient of its own, and no score.

The program says so where every operation in it can be followed. Where one cannot, samples are replaced by
copies of others: nothing of those that stay may move, neither their losses nor their derivatives. Under
`jax.jit` there are no values to try this on, and random ones of the same shapes stand for them.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._exact.methods import Batch, Leaves, Losses, Method
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.evaluate import on_numbers, tried
from lai_jax._program.losses import batch_size, is_array, take
from lai_jax._program.model import datum, parameter, reader_of
from lai_jax._program.sample_axis import SampleAxis

_SPLITS = 3
"""Samples carry a code of so many bits: of up to 8 every two are once apart, of more most are."""


def check_uncoupled(method: Method, losses: Losses, at: Leaves, batch: Batch, direction: Leaves) -> None:
    """Raise if a sample's loss, or its derivative, moves with the other samples of the batch."""
    if batch_size(batch[0]) < 2 or _followed(losses, at, batch):
        return
    with on_numbers(at, batch):
        given = tried((at, direction), batch)
        found = (_moved(method, losses, here, numbers, along) for (here, along), numbers in given)
        moved = next((sample for sample in found if sample is not None), None)
    if moved is not None:
        msg = (
            f"apply, loss: the loss of sample {moved}, or its derivative, moves with the other samples: "
            "samples are coupled, and none has a gradient of its own; use running statistics (evaluation "
            "mode), a loss of each sample alone, or score what is coupled as one sample"
        )
        raise UnexplainedError(msg)


def _followed(losses: Losses, at: Leaves, batch: Batch) -> bool:
    """Whether the program shows that every sample's loss is its own."""
    leaves, tree = jax.tree.flatten(batch)
    places = [i for i, leaf in enumerate(leaves) if is_array(leaf)]

    def flat(values: Leaves, arrays: list[Any]) -> jax.Array:
        given = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            given[i] = array
        return losses(values, jax.tree.unflatten(tree, given))

    closed = jax.make_jaxpr(flat)(at, [leaves[i] for i in places])
    own = SampleAxis(0, batch_size(batch[0]))
    variables = closed.jaxpr.invars
    known = [parameter(i, variable.aval, trainable=True) for i, variable in enumerate(variables[: len(at)])]
    known += [datum(variable.aval, own.samples) for variable in variables[len(at) :]]
    try:
        program = reader_of().whole(closed, known)
    except UnexplainedError:
        return False
    return program.values[program.outputs[0]].sample_axis in (None, own)


def _moved(method: Method, losses: Losses, at: Leaves, batch: Batch, direction: Leaves) -> int | None:
    """Return a sample that moves with others; None if none does."""
    values, scores = losses(at, batch), method(losses, at, batch, direction)[1]
    if isinstance(values, jax.core.Tracer):  # apply or loss hold what is traced
        return None
    for kept, index in _standing(len(values)):
        other = take(batch, jnp.asarray(index))
        pairs = (values, losses(at, other)), (scores, method(losses, at, other, direction)[1])
        for here, there in pairs:
            first, second = (np.asarray(side, np.float64) for side in (here, there))
            finite = np.isfinite(first)
            within = float(jnp.finfo(here.dtype).eps) ** 0.625
            size = np.abs(first) + np.abs(first[finite]).mean() if finite.any() else np.inf
            apart = ~(np.abs(first - second) <= within * size) & kept & finite
            if apart.any():
                return int(np.argmax(apart))
    return None


def _standing(samples: int) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield which samples stay where they are, and the batch's rows with copies of these for the others."""
    codes = np.random.default_rng(0).permutation(samples)
    for bit in range(min(_SPLITS, (samples - 1).bit_length())):
        for side in (0, 1):
            kept = (codes >> bit & 1) == side
            (rows,) = np.nonzero(kept)
            places = np.arange(samples)
            yield kept, np.where(kept, places, rows[places % len(rows)])
