"""A user's function and loss, read on one batch."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._program.errors import UnexplainedError
from lai_jax._program.leaves import find_floating, leaf_names, real_leaves
from lai_jax._program.losses import arrays_of, batch_size, check_targets, is_batched, losses_of, take
from lai_jax._program.program import Program, Use, Value
from lai_jax._program.reader import Reader, Reading
from lai_jax._program.readers import control_flow as _control
from lai_jax._program.readers import custom_rules as _custom
from lai_jax._program.readers.mapped import SampleReader
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.trial import Losses, keep_apart
from lai_jax._program.views import View


@dataclass(eq=False)
class Model:
    """The losses of one batch as a program of the parameters."""

    # computes the losses; its inputs are the leaves of the parameters, the inputs and the targets
    program: Program
    arguments: list[Any]  # what it is to be run on
    names: list[str]  # of the parameter leaves
    trainable: list[int]  # which leaves are parameters: those of floating-point numbers
    samples: int  # how many samples the program was read for
    real: int  # how many samples the batch has: 1 where the program was read for two copies of it
    left_out: dict[int, str]  # leaves that cannot be explained, and why
    # whether the program is that of one sample, mapped over the samples: the batch's own is not followed
    mapped: bool = False
    # uses whose products with the samples are added up, and by which operation: layers that LAI does not read
    summed: frozenset[tuple[Use, str]] = frozenset()

    @property
    def parameters(self) -> list[Any]:
        return self.arguments[: len(self.names)]

    @property
    def data(self) -> list[Any]:
        return self.arguments[len(self.names) :]


def read(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    partial: bool = False,
) -> Model:
    """Read the losses of one batch as a program; arguments and errors are those of `trace`.

    Where the batch's program is not followed, that of one sample is read and mapped over the samples, if
    trying it shows that they keep apart. Where they do not, and `partial`, parameters are left out.
    """
    losses = losses_of(apply, loss)
    check_targets(inputs, targets)
    real = batch_size(inputs)
    if real == 1:  # with two copies no axis of size 1 can be mistaken for the samples'
        inputs, targets = take((inputs, targets), np.zeros(2, int))
    leaves, restored = real_leaves(params)
    names = leaf_names(params)
    arrays, whole = arrays_of((inputs, targets))

    def flat(values: Sequence[Any], arrays: Sequence[Any]) -> jax.Array:
        return losses(restored(list(values)), *whole(list(arrays)))

    closed = jax.make_jaxpr(flat)(leaves, arrays)
    trainable = find_floating(leaves)
    if not trainable:
        msg = "params: expected at least one array of floating-point numbers"
        raise TypeError(msg)
    samples = max(real, 2)
    known = know_inputs(closed, len(leaves), trainable, samples)
    shapes = {leaf: tuple(jnp.shape(leaves[leaf])) for leaf in trainable}

    def model(reader: Reader, closed: Any, *, mapped: bool = False) -> Model:
        reader.reading.shapes = shapes
        program = reader.whole(closed, known)
        if not program.values[program.outputs[0]].batched:
            msg = (
                "loss: expected losses that depend on inputs or targets, got the same numbers for every batch"
            )
            raise ValueError(msg)
        left_out, summed = reader.reading.left_out, frozenset(reader.reading.summed)
        given = program, [*leaves, *arrays], names, trainable, samples, real, left_out, mapped, summed
        return Model(*given)

    try:
        found = model(reader_of(), closed)
        # a program of two rows is not always that of one
        if real > 1 or keep_apart(flat, trainable, leaves, arrays):
            return found
        msg = (
            "apply, loss: expected a sample to have the same loss and gradient in a batch of one as beside a "
            "copy of itself, got others: do not divide by the batch's size, or take one row for none"
        )
        raise UnexplainedError(msg)
    except UnexplainedError as error:
        refusal = error
    single = _read_single(flat, leaves, arrays)
    if single is not None and keep_apart(flat, trainable, leaves, arrays):
        return model(SampleReader(reader_of().reading, samples), single, mapped=True)
    if partial:
        return model(reader_of(partial=True), closed)
    raise refusal


def _read_single(losses: Losses, leaves: Sequence[Any], arrays: Sequence[Any]) -> Any:
    """Return the program of one sample, without the samples' axis; None where there is none."""

    def loss(values: Sequence[Any], rows: Sequence[Any]) -> jax.Array:
        batch = [row[None] if is_batched(array) else row for row, array in zip(rows, arrays, strict=True)]
        return losses(values, batch)[0]

    try:
        return jax.make_jaxpr(loss)(leaves, take(list(arrays), 0))
    except Exception:  # whatever a model says of a batch of one that it does not take
        return None


def reader_of(*, differentiated: bool = True, partial: bool = False) -> Reader:
    return Reader(Reading({**_control.READERS, **_custom.READERS}, differentiated, partial))


def know_inputs(closed: Any, leaves: int, trainable: Collection[int], samples: int) -> list[Value]:
    """Return what is known of a program's inputs: so many leaves of the parameters, then the data."""
    known = []
    for place, variable in enumerate(closed.jaxpr.invars):
        value = Value(tuple(variable.aval.shape), variable.aval.dtype)
        if place in trainable:
            value = replace(value, leaves=frozenset((place,)), view=View.of(place, value.shape))
        elif place >= leaves and value.shape:
            value = replace(value, sample_axis=SampleAxis(0, samples))
        known.append(value)
    return known


def find_reaching_layers(program: Program) -> set[Use]:
    """Return the layers whose outputs reach the losses: the others have no gradient."""
    found, pending = set[Use](), set(program.values[program.outputs[0]].layers)
    while pending:
        use = pending.pop()
        found.add(use)
        pending |= use.before - found
    return found
