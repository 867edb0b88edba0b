"""A user's function and loss, read on one batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program import control_flow as _control
from lai_jax._program import custom_rules as _custom
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.leaves import floating, leaf_names, real_leaves
from lai_jax._program.losses import batch_size, check_targets, is_array, is_batched, losses_of
from lai_jax._program.program import Program, Use, Value, unread
from lai_jax._program.reader import Reader, Reading
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.views import View


@dataclass(eq=False)
class Model:
    """The losses of one batch as a program of the parameters.

    Parameters
    ----------
    program
        Computes the losses; its inputs are the leaves of the parameters, the inputs and the targets.
    arguments
        What it is to be run on.
    names
        Of the parameter leaves.
    trainable
        Which leaves are parameters: those of floating-point numbers.
    samples
        How many samples the program was read for.
    real
        How many samples the batch has: 1 where the program was read for two copies of it.
    left_out
        Leaves that cannot be explained, and why.
    losses
        The losses of other leaves of the parameters and other arrays of the data.
    refusal
        Why the program could not be followed at all: nothing is known of it then, and every leaf is left
        out.
    alone
        Whether leaves that are left out may be explained one sample at a time.
    summed
        Uses whose products with the samples are added up, and by which operation: layers that LAI does
        not read.
    """

    program: Program
    arguments: list[Any]
    names: list[str]
    trainable: list[int]
    samples: int
    real: int
    left_out: dict[int, str]
    losses: Callable[[Sequence[Any], Sequence[Any]], jax.Array]
    refusal: UnexplainedError | None = None
    alone: bool = False
    summed: frozenset[tuple[Use, str]] = frozenset()

    @property
    def parameters(self) -> list[Any]:
        """The leaves of the parameters."""
        return self.arguments[: len(self.names)]

    @property
    def data(self) -> list[Any]:
        """The arrays of the inputs and targets."""
        return self.arguments[len(self.names) :]


def read(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    partial: bool = False,
    alone: bool = False,
) -> Model:
    """Read the losses of one batch as a program.

    Parameters
    ----------
    apply, params, loss, inputs, targets
        As for `trace`.
    partial
        Leave out parameters that cannot be followed.
    alone
        And read a program that cannot be followed at all as one without any layer.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind, or no parameter is a floating-point array.
    ValueError
        If inputs, targets and losses do not fit each other.
    UnexplainedError
        If the program mixes samples, or cannot be followed.
    """
    losses = losses_of(apply, loss)
    check_targets(inputs, targets)
    real = batch_size(inputs)
    if real == 1:  # with two copies no axis of size 1 can be mistaken for the samples'
        inputs, targets = (jax.tree.map(_doubled, tree) for tree in (inputs, targets))
    leaves, restored = real_leaves(params)
    names = leaf_names(params)
    data, data_tree = jax.tree.flatten((inputs, targets))
    moving = [i for i, leaf in enumerate(data) if is_array(leaf)]

    def flat(values: Sequence[Any], arrays: Sequence[Any]) -> jax.Array:
        given = list(data)
        for i, array in zip(moving, arrays, strict=True):
            given[i] = array
        return losses(restored(list(values)), *jax.tree.unflatten(data_tree, given))

    arrays = [data[i] for i in moving]
    closed = jax.make_jaxpr(flat)(leaves, arrays)
    trainable = floating(leaves)
    if not trainable:
        msg = "params: expected at least one array of floating-point numbers"
        raise TypeError(msg)
    samples = max(real, 2)
    known = [
        *(
            parameter(i, variable.aval, i in trainable)
            for i, variable in enumerate(closed.jaxpr.invars[: len(leaves)])
        ),
        *(datum(variable.aval, samples) for variable in closed.jaxpr.invars[len(leaves) :]),
    ]
    reader, refusal = reader_of(partial=partial or alone), None
    reader.reading.shapes = {leaf: tuple(jnp.shape(leaves[leaf])) for leaf in trainable}
    try:
        program = reader.whole(closed, known)
        _check_losses(program)
        left_out = reader.reading.left_out
    except UnexplainedError as error:
        if not alone:
            raise
        program, refusal, left_out = unread(closed), error, dict.fromkeys(trainable, str(error))
    arguments = [*leaves, *arrays]
    summed = frozenset(reader.reading.summed)
    return Model(program, arguments, names, trainable, samples, real, left_out, flat, refusal, alone, summed)


def reader_of(*, differentiated: bool = True, partial: bool = False) -> Reader:
    """Return a reader of programs that knows loops, branches and custom derivative rules."""
    return Reader(Reading({**_control.READERS, **_custom.READERS}, differentiated, partial))


def _doubled(leaf: Any) -> Any:
    return jnp.concatenate([leaf, leaf]) if is_batched(leaf) else leaf


def parameter(leaf: int, aval: Any, trainable: bool) -> Value:
    """Return what is known of a leaf of the parameters."""
    shape = tuple(aval.shape)
    if not trainable:
        return Value(shape, aval.dtype)
    return Value(shape, aval.dtype, leaves=frozenset((leaf,)), view=View.of(leaf, shape))


def datum(aval: Any, samples: int) -> Value:
    """Return what is known of an array of the inputs or the targets."""
    shape = tuple(aval.shape)
    return Value(shape, aval.dtype, sample_axis=SampleAxis(0, samples) if shape else None)


def _check_losses(program: Program) -> None:
    value = program.values[program.outputs[0]]
    if not value.batched:
        msg = "loss: expected losses that depend on inputs or targets, got the same numbers for every batch"
        raise ValueError(msg)


def final_layers(program: Program) -> list[Use]:
    """Return the layers whose outputs reach the losses through no other layer, in the program's order."""
    reached = program.values[program.outputs[0]].layers
    return [use for use in program.uses() if use in reached and not use.followed]
