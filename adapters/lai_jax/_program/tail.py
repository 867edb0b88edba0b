"""What follows one layer in a program, and the gradients of the losses with respect to its output."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.evaluate import perform
from lai_jax._program.program import Operation, Program, Use


@dataclass(frozen=True)
class Tail:
    """The part of a program that reads a layer's output.

    Parameters
    ----------
    start
        Slot of the layer's output.
    operations
        What follows it, in order.
    needed
        Every other slot that these read.
    end
        Slot of the losses.
    """

    start: int
    operations: tuple[Operation, ...]
    needed: tuple[int, ...]
    end: int

    @property
    def slots(self) -> tuple[int, ...]:
        """Every slot that `output_gradients` takes."""
        return (self.start, *self.needed)

    def output_gradients(self, values: Mapping[int, Any]) -> jax.Array:
        """Return the gradients of the losses with respect to the layer's output, from values by slot."""

        def losses(output: jax.Array) -> jax.Array:
            own = {slot: values[slot] for slot in self.needed} | {self.start: output}
            for operation in self.operations:
                perform(operation, own, {}, frozenset())
            return own[self.end]

        found, vjp = jax.vjp(losses, values[self.start])
        return vjp(jnp.ones_like(found))[0]


def tail_of(program: Program, use: Use) -> Tail | None:
    """Return what follows a layer; None if it is inside a loop, a branch or a recomputation."""
    layer = next((operation for operation in program.operations if operation.use is use), None)
    if layer is None:
        return None
    start, following = layer.outputs[0], []
    reached = {start}
    for operation in program.operations:
        if reached.intersection(operation.inputs):
            following.append(operation)
            reached.update(operation.outputs)
    needed = {slot for operation in following for slot in operation.inputs} - reached
    return Tail(start, tuple(following), tuple(sorted(needed)), program.outputs[0])
