"""Functions with a derivative rule of their own (`jax.custom_jvp`, `jax.custom_vjp`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._program.errors import UnexplainedError, couples, place, unknown
from lai_jax._program.evaluate import apply_equation
from lai_jax._program.program import Value
from lai_jax._program.reader import EquationReader, Reader
from lai_jax._program.rules.primitives import CUSTOM_RULES

_SCALES = (1e-2, 1.0, 30.0)
_TOLERANCE = 1e-3  # of float32; a rule that is not the derivative is off by far more


def read(reader: Reader, eqn: Any, slots: list[int], values: list[Value]) -> list[int]:
    """Read a call: as one operation where no parameter enters it, else through its body."""
    closed = eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr"))
    if any(value.of_parameters for value in values):
        if not _rule_is_derivative(eqn, closed):
            raise unknown(
                eqn,
                f"parameters enter {_name(eqn)}, whose own rule is not the derivative of what it computes; "
                "apply the parameters outside it",
            )
        return reader.inlined(closed.jaxpr, closed.consts, slots)
    outputs = _outputs(reader, eqn, closed, values)
    if reader.reading.differentiated:
        _check_rule_keeps_samples_apart(reader, eqn, values, outputs)
    return reader.emit(eqn, slots, outputs)


def _name(eqn: Any) -> str:
    closed = eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr"))
    info = closed.jaxpr.debug_info
    return str(getattr(info, "func_name", None) or eqn.primitive.name)


def _outputs(reader: Reader, eqn: Any, closed: Any, values: Sequence[Value]) -> list[Value]:
    program = reader.apart().whole(closed, values)
    return [program.values[slot] for slot in program.outputs]


def _check_rule_keeps_samples_apart(
    reader: Reader, eqn: Any, values: Sequence[Value], outputs: Sequence[Value]
) -> None:
    """Raise if the derivative rule mixes samples that the function itself keeps apart."""
    moving = [
        i for i, value in enumerate(values) if value.batched and jnp.issubdtype(value.dtype, jnp.inexact)
    ]
    floating = [i for i, value in enumerate(outputs) if jnp.issubdtype(value.dtype, jnp.inexact)]
    if not moving or not floating:
        return

    def gradients(arguments: list[Any], cotangents: list[Any]) -> list[Any]:
        def called(*moved: Any) -> list[Any]:
            given = list(arguments)
            for i, value in zip(moving, moved, strict=True):
                given[i] = value
            results = apply_equation(eqn, given)
            return [results[i] for i in floating]

        _, vjp = jax.vjp(called, *(arguments[i] for i in moving))
        return list(vjp(cotangents))

    shapes = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
    inner = [jax.ShapeDtypeStruct(outputs[i].shape, outputs[i].dtype) for i in floating]
    closed = jax.make_jaxpr(gradients)(shapes, inner)
    known = [
        replace(value, layers=frozenset(), scaled=frozenset())
        for value in (*values, *(outputs[i] for i in floating))
    ]
    try:
        program = reader.apart().whole(closed, known)
    except UnexplainedError as error:
        msg = f"apply, loss: {place(eqn)}: the derivative rule of {_name(eqn)} could not be followed: {error}"
        raise UnexplainedError(msg) from error
    for i, slot in zip(moving, program.outputs, strict=True):
        samples = program.values[slot].sample_axis
        if samples is not None and samples != values[i].sample_axis:
            raise couples(eqn, f"has a derivative rule ({_name(eqn)}) that mixes samples")


def _rule_is_derivative(eqn: Any, closed: Any) -> bool:
    """Compare the rule with the derivative of the body, at random points of several sizes."""
    avals = [atom.aval for atom in eqn.invars]
    moving = [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.inexact)]
    draw = np.random.default_rng(0)  # the check's own points: nothing that is computed depends on them
    with jax.ensure_compile_time_eval():
        for scale in _SCALES:
            point = [_drawn(draw, aval, scale) for aval in avals]
            try:
                agree = _agree(eqn, closed, point, moving, draw, scale)
            except (NotImplementedError, TypeError, ValueError):  # the body has no derivative: a while loop
                return False
            if not agree:
                return False
    return True


def _drawn(draw: np.random.Generator, aval: Any, scale: float) -> Any:
    if jnp.issubdtype(aval.dtype, jnp.inexact):
        return jnp.asarray(scale * draw.standard_normal(aval.shape), aval.dtype)
    return jnp.zeros(aval.shape, aval.dtype)


def _agree(
    eqn: Any, closed: Any, point: list[Any], moving: list[int], draw: np.random.Generator, scale: float
) -> bool:
    def through(call: Any) -> Any:
        def function(*moved: Any) -> list[Any]:
            given = list(point)
            for i, value in zip(moving, moved, strict=True):
                given[i] = value
            return [out for out in call(given) if jnp.issubdtype(out.dtype, jnp.inexact)]

        outputs, vjp = jax.vjp(function, *(point[i] for i in moving))
        return vjp, outputs

    rule, outputs = through(lambda given: apply_equation(eqn, given))
    body, _ = through(lambda given: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *given))
    cotangents = [jnp.asarray(scale * draw.standard_normal(out.shape), out.dtype) for out in outputs]
    for left, right in zip(rule(cotangents), body(cotangents), strict=True):
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        if not np.allclose(
            left, right, rtol=_TOLERANCE, atol=_TOLERANCE * float(np.max(np.abs(right), initial=0))
        ):
            return False
    return True


READERS: dict[str, EquationReader] = dict.fromkeys(CUSTOM_RULES, read)
