"""Functions with a derivative rule of their own (`jax.custom_jvp`, `jax.custom_vjp`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.errors import UnexplainedError, couples, place, unknown
from lai_jax._program.evaluate import apply_equation
from lai_jax._program.leaves import replace_leaves
from lai_jax._program.program import Program, Value
from lai_jax._program.reader import EquationReader, Reader
from lai_jax._program.rules.primitives import CUSTOM_RULES


def read(reader: Reader, eqn: Any, slots: list[int], values: list[Value]) -> list[int]:
    """Read a call as one operation, which no parameter may enter: its rule need not be the derivative."""
    if any(value.of_parameters for value in values):
        what = f"parameters enter {_name(eqn)}, which has a derivative rule of its own; apply them outside it"
        raise unknown(eqn, what)
    program = reader.isolate().whole(eqn.params["call_jaxpr"], values)
    outputs = [program.values[slot] for slot in program.outputs]
    rule = _follow_rule(reader, eqn, values, outputs) if reader.reading.differentiated else None
    return reader.emit(eqn, slots, outputs, rule=rule)


def _name(eqn: Any) -> str:
    return str(eqn.params["call_jaxpr"].jaxpr.debug_info.func_name)


def _follow_rule(
    reader: Reader, eqn: Any, values: Sequence[Value], outputs: Sequence[Value]
) -> Program | None:
    """Return the program of the gradient; raise if it mixes samples that the function itself keeps apart."""
    # Of whole numbers there is no derivative, so that a rule gives none.
    moving = [
        i for i, value in enumerate(values) if value.batched and jnp.issubdtype(value.dtype, jnp.inexact)
    ]
    floating = [i for i, value in enumerate(outputs) if jnp.issubdtype(value.dtype, jnp.inexact)]
    if not moving or not floating:
        return None

    def gradients(arguments: list[Any], cotangents: list[Any]) -> list[Any]:
        def call(*moved: Any) -> list[Any]:
            results = apply_equation(eqn, replace_leaves(arguments, moving, moved))
            return [results[i] for i in floating]

        return list(jax.vjp(call, *(arguments[i] for i in moving))[1](cotangents))

    shapes = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
    inner = [jax.ShapeDtypeStruct(outputs[i].shape, outputs[i].dtype) for i in floating]
    closed = jax.make_jaxpr(gradients)(shapes, inner)
    # Asked of the rule is whether samples meet in it alone: what it does to layers is its own affair.
    known = [
        replace(value, layers=frozenset(), scaled=frozenset())
        for value in (*values, *(outputs[i] for i in floating))
    ]
    try:
        program = reader.isolate().whole(closed, known)
    except UnexplainedError as error:
        msg = f"apply, loss: {place(eqn)}: the derivative rule of {_name(eqn)} could not be followed: {error}"
        raise UnexplainedError(msg) from error
    for i, slot in zip(moving, program.outputs, strict=True):
        samples = program.values[slot].sample_axis
        if samples is not None and samples != values[i].sample_axis:
            raise couples(eqn, f"has a derivative rule ({_name(eqn)}) that mixes samples")
    return program


READERS: dict[str, EquationReader] = dict.fromkeys(CUSTOM_RULES, read)
