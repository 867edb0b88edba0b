"""What follows one layer in a program, and the gradients of the losses with respect to its output."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.evaluate import perform
from lai_jax._program.program import Operation, Program, Site


def tail_of(program: Program, site: Site) -> tuple[int, list[Operation], list[int]] | None:
    """Return the slot of a layer's output, what follows it, and every slot that takes.

    None if the layer is inside a loop, a branch or a recomputation.
    """
    layer = next((operation for operation in program.operations if operation.site is site), None)
    return None if layer is None else tail_after(program, layer.outputs[0])


def tail_after(program: Program, start: int) -> tuple[int, list[Operation], list[int]]:
    """Return a slot, what follows it, and every slot that takes, itself first."""
    reached, tail = {start}, []
    for operation in program.operations:
        if reached.intersection(operation.inputs):
            tail.append(operation)
            reached.update(operation.outputs)
    needed = {slot for operation in tail for slot in operation.inputs} - reached
    return start, tail, [start, *sorted(needed)]


def output_gradients(
    program: Program, tail: Sequence[Operation], slots: Sequence[int], kept: Sequence[Any]
) -> Any:
    """Return the gradients of the losses with respect to the first of the kept values, a layer's output."""

    def losses(output: jax.Array) -> jax.Array:
        own = dict(zip(slots, (output, *kept[1:]), strict=True))
        for operation in tail:
            perform(operation, own, {}, frozenset())
        return own[program.outputs[0]]

    values, pull = jax.vjp(losses, kept[0])
    return pull(jnp.ones_like(values))[0]
