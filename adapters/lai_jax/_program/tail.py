"""What follows one value in a program, and the gradients of the losses with respect to that value."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.evaluate import Wanted, perform
from lai_jax._program.program import Operation, Program, Use


@dataclass(frozen=True)
class Tail:
    """The part of a program between one value and another, further on."""

    start: int  # slot of the value with which it begins
    operations: tuple[Operation, ...]  # what depends on that value, in order
    needed: tuple[int, ...]  # every other slot that these read
    end: int  # slot of the value at which it ends; that of the losses, or one before

    @property
    def slots(self) -> tuple[int, ...]:
        """Every slot whose value `pull_back` takes."""
        return (self.start, *self.needed)

    def vjp(self, values: Mapping[int, Any]) -> tuple[jax.Array, Any]:
        """Return the value at the end and the way back from it, by the values of `slots`."""

        def end(start: jax.Array) -> jax.Array:
            own = {slot: values[slot] for slot in self.needed} | {self.start: start}
            for operation in self.operations:
                perform(operation, own, {}, Wanted())
            return own[self.end]

        return jax.vjp(end, values[self.start])

    def pull_back(self, values: Mapping[int, Any], gradients: jax.Array | None = None) -> jax.Array:
        """Return the gradients at the start from those at the end; None: each loss's own, which are ones."""
        found, vjp = self.vjp(values)
        return vjp(jnp.ones_like(found) if gradients is None else gradients)[0]


def tail_of(program: Program, use: Use) -> Tail | None:
    """Return what follows a layer; None if it is inside a loop, a branch or a recomputation."""
    layer = next((operation for operation in program.operations if operation.use is use), None)
    return None if layer is None else tail_from(program, layer.outputs[0])


def find_last_part(program: Program, tail: Tail, trainable: Iterable[int]) -> Tail | None:
    """Return the longest part of a tail in which no parameter is used: what a loss does to the outputs.

    Every path from the parameters to the losses goes through its start, so that these gradients of each
    sample's loss, times the sample's weight, are all that the way back from there has to know. None: there
    is no such value.
    """
    moving = {program.inputs[leaf] for leaf in trainable}
    for operation in program.operations:
        if moving.intersection(operation.inputs):
            moving.update(operation.outputs)
    later = (slot for operation in tail.operations for slot in operation.outputs if slot != tail.end)
    for start in (tail.start, *later):
        if start in moving and jnp.issubdtype(program.values[start].dtype, jnp.inexact):
            part = tail_from(program, start)
            if moving.isdisjoint(part.needed):
                return part
    return None


def tail_from(program: Program, start: int) -> Tail:
    """Return what follows a value, up to the losses."""
    following = []
    reached = {start}
    for operation in program.operations:
        if reached.intersection(operation.inputs):
            following.append(operation)
            reached.update(operation.outputs)
    needed = {slot for operation in following for slot in operation.inputs} - reached
    return Tail(start, tuple(following), tuple(sorted(needed)), program.outputs[0])
