"""Whether samples see one another: then a sample's loss has no gradient of its own, and no score.

The program says so where every operation in it can be followed. Where one cannot, samples are replaced by
copies of others: nothing of those that stay may move, neither their losses nor their derivatives. Under
`jax.jit` there are no values to try this on, and random ones of the same shapes stand for them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._exact.methods import Batch, Leaves, Losses, Method
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.losses import arrays_of, batch_size, take
from lai_jax._program.model import datum, parameter, reader_of
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.trial import is_traced, numeric, on_numbers, tried

_SINGLES = 6
_SPLITS = 3
"""Samples carry a code of so many bits: of up to 8 every two are once apart, of more most are."""


def check_uncoupled(method: Method, losses: Losses, at: Leaves, batch: Batch, direction: Leaves) -> None:
    """Raise if a sample's loss, or its derivative, moves with the other samples of the batch."""
    if batch_size(batch[0]) < 2:
        return
    arrays, restored = arrays_of(batch)

    def own(at: Leaves, arrays: Leaves) -> jax.Array:
        return losses(at, restored(arrays))

    if _followed(own, at, arrays):
        return
    traced = is_traced(lambda at, arrays, _: own(at, arrays), at, arrays, direction)
    given: Any = numeric(own) if traced else own
    both = jax.jit(lambda at, arrays, along: (given(at, arrays), method(given, at, arrays, along)[1]))
    moved, known = None, not traced
    with on_numbers(traced):
        for (here, along), numbers in tried((at, direction), arrays, traced=traced):
            values, moved = _moved(both, here, numbers, along)
            known = known or bool(np.isfinite(values).any())
            if moved is not None:
                break
    if not known:
        msg = (
            "apply, loss: no rule follows every operation, so that samples may be coupled, and of random "
            "parameters and inputs, to try it on, no loss is a number; score outside of jax.jit"
        )
        raise UnexplainedError(msg)
    if moved is not None:
        msg = (
            f"apply, loss: the loss of sample {moved}, or its derivative, moves with the other samples: "
            "samples are coupled, and none has a gradient of its own; use running statistics (evaluation "
            "mode), a loss of each sample alone, or score what is coupled as one sample"
        )
        raise UnexplainedError(msg)


def _followed(losses: Callable[[Leaves, Leaves], jax.Array], at: Leaves, arrays: Leaves) -> bool:
    """Whether the program shows that every sample's loss is its own."""
    closed = jax.make_jaxpr(losses)(at, arrays)
    own = SampleAxis(0, batch_size(arrays))
    variables = closed.jaxpr.invars
    known = [parameter(i, variable.aval, trainable=True) for i, variable in enumerate(variables[: len(at)])]
    known += [datum(variable.aval, own.samples) for variable in variables[len(at) :]]
    try:
        program = reader_of().whole(closed, known)
    except UnexplainedError:
        return False
    return program.values[program.outputs[0]].sample_axis in (None, own)


def _moved(both: Any, at: Leaves, batch: Leaves, direction: Leaves) -> tuple[Any, int | None]:
    """Return the losses, and a sample that moves with others; None if none does."""
    found = both(at, batch, direction)
    values = np.asarray(found[0], np.float64)
    for kept, index in _standing(len(values)):
        other = both(at, take(batch, jnp.asarray(index)), direction)
        for here, there in zip(found, other, strict=True):
            first, second = (np.asarray(side, np.float64) for side in (here, there))
            finite = np.isfinite(first)
            within = float(jnp.finfo(here.dtype).eps) ** 0.625
            size = np.abs(first) + np.abs(first[finite]).mean() if finite.any() else np.inf
            apart = ~(np.abs(first - second) <= within * size) & kept & finite
            if apart.any():
                return values, int(np.argmax(apart))
    return values, None


def _standing(samples: int) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield which samples stay where they are, and the batch's rows with copies of these for the others."""
    codes = np.random.default_rng(0).permutation(samples)
    # All rows copies of one, which crowd together wherever they are sent: the last of them comes last.
    for only in (*codes[:_SINGLES], samples - 1):
        yield np.arange(samples) == only, np.full(samples, only)
    for bit in range(min(_SPLITS, (samples - 1).bit_length())):
        for side in (0, 1):
            kept = (codes >> bit & 1) == side
            (rows,) = np.nonzero(kept)
            places = np.arange(samples)
            yield kept, np.where(kept, places, rows[places % len(rows)])
