"""Derivatives of every sample's loss along one direction of the parameters, where samples do not meet.

A score is the inner product of a sample's gradient with a direction, and the gradient is what reverse mode
says it is: one gradient a sample is taken wherever a function brings a reverse rule of its own. Samples must
not see one another: then a sample's loss has no gradient of its own, and no score. The program says so where
every operation in it can be followed. Where one cannot, or where samples are run one by one, the batch is
compared with its samples (`trial.keep_apart`).
"""

from contextlib import suppress
from typing import Any

import jax

from lai_jax._exact.methods import Batch, Leaves, Losses, method_for, sample_by_sample
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.losses import arrays_of, batch_size
from lai_jax._program.model import know_inputs, reader_of
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.trial import keep_apart


def directional_derivatives(
    losses: Losses, at: Leaves, batch: Batch, direction: Leaves
) -> tuple[jax.Array, jax.Array]:
    """Return every sample's or position's loss, and its derivative along a direction of the parameters."""
    check_uncoupled(losses, at, batch)
    return method_for(losses, at, batch)(losses, at, batch, direction)


def check_uncoupled(losses: Losses, at: Leaves, batch: Batch) -> None:
    """Raise if a sample's loss, or its gradient, depends on the other samples of the batch."""
    if batch_size(batch[0]) < 2:
        return
    arrays, restored = arrays_of(batch)

    def total(at: Any, arrays: Any) -> jax.Array:
        found = losses(list(at), restored(list(arrays)))
        return found if found.ndim == 1 else found.sum(1)

    shown = False  # by the program; samples run one by one must also be what they are in the batch
    if method_for(losses, at, batch) is not sample_by_sample:
        closed, own = jax.make_jaxpr(total)(at, arrays), SampleAxis(0, batch_size(arrays))
        known = know_inputs(closed, len(at), range(len(at)), own.samples)
        with suppress(UnexplainedError):
            program = reader_of().whole(closed, known)
            shown = program.values[program.outputs[0]].sample_axis in (None, own)
    if not shown and not keep_apart(total, range(len(at)), at, arrays):
        msg = (
            "apply, loss: expected the losses of a batch, and the gradient of their sum, to be those of its "
            "samples, each as a batch of one, got others: samples are coupled, and none has a gradient of "
            "its own; use running statistics (evaluation mode), a loss of each sample alone, or score what "
            "is coupled as one sample; if samples are in fact independent, make apply and loss accept a "
            "batch of one, and score outside of jax.jit, where no random numbers stand for parameters and "
            "inputs"
        )
        raise UnexplainedError(msg)
