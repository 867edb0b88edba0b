"""Functions with a derivative rule of their own (`jax.custom_jvp`, `jax.custom_vjp`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_jax._program.errors import UnexplainedError, couples, place, unknown
from lai_jax._program.evaluate import apply_equation
from lai_jax._program.leaves import replace_leaves
from lai_jax._program.program import Value, programs_of
from lai_jax._program.reader import EquationReader, Reader
from lai_jax._program.rules.primitives import CUSTOM_RULES

_SCALES = (1e-2, 1.0, 30.0)
_LARGEST = 1e9
_TOLERANCE = 1e-3  # of float32; a rule that is not the derivative is off by far more


def read(reader: Reader, eqn: Any, slots: list[int], values: list[Value]) -> list[int]:
    """Read a call: as one operation where no parameter enters it, else through its body."""
    closed = eqn.params["call_jaxpr"]
    if any(value.of_parameters for value in values):
        if not _rule_is_derivative(eqn, values):
            raise unknown(
                eqn,
                f"parameters enter {_name(eqn)}, whose own rule is not the derivative of what it computes; "
                "apply the parameters outside it",
            )
        return reader.inline(closed.jaxpr, closed.consts, slots)
    program = reader.isolate().whole(closed, values)
    outputs = [program.values[slot] for slot in program.outputs]
    if reader.reading.differentiated:
        _check_rule_keeps_samples_apart(reader, eqn, values, outputs)
    return reader.emit(eqn, slots, outputs)


def _name(eqn: Any) -> str:
    return str(eqn.params["call_jaxpr"].jaxpr.debug_info.func_name)


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
        return list(_vjp(lambda full: apply_equation(eqn, full), arguments, moving)[1](cotangents))

    shapes = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
    inner = [jax.ShapeDtypeStruct(outputs[i].shape, outputs[i].dtype) for i in floating]
    closed = jax.make_jaxpr(gradients)(shapes, inner)
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


def _rule_is_derivative(eqn: Any, values: Sequence[Value]) -> bool:
    """Compare the rule with the derivative of the body, at random points of several sizes."""
    # Constants stay: among them may be what the function closes over, which JAX does not differentiate.
    # A rule that differs from the derivative in some places alone, as one that clips large gradients or
    # leaves out a row of a table, holds the number that says where. Points are drawn there, and beyond.
    avals = [atom.aval for atom in eqn.invars]
    floating = [i for i, aval in enumerate(avals) if jnp.issubdtype(aval.dtype, jnp.inexact)]
    moving = [i for i in floating if values[i].batched or values[i].leaves]
    draw = np.random.default_rng(0)  # the check's own points: nothing that is computed depends on them
    with jax.ensure_compile_time_eval():
        try:
            named = _find_numbers(eqn, avals, moving)
            beyond = [3 * abs(number) for number in named if _SCALES[-1] < abs(number) < _LARGEST]
            sizes = [(scale, np.zeros(0)) for scale in (*_SCALES, *beyond)] + [(1.0, named)]
            for scale, places in sizes:
                point = [_draw_one(draw, aval, scale, places, named) for aval in avals]
                if not _agree(eqn, point, moving, draw, scale):
                    return False
        except (NotImplementedError, TypeError, ValueError):  # the body has no derivative: a while loop
            return False
    return True


def _find_numbers(eqn: Any, avals: Sequence[Any], moving: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the numbers that a function and its rule hold, and 0."""

    def apply_rule(given: list[Any], cotangents: list[Any]) -> Any:
        return _vjp(lambda full: apply_equation(eqn, full), given, moving)[1](cotangents)

    outputs = [atom.aval for atom in eqn.outvars if jnp.issubdtype(atom.aval.dtype, jnp.inexact)]
    whole = jax.make_jaxpr(apply_rule)(list(avals), outputs)
    held, programs = [0.0, *whole.consts], [whole.jaxpr]
    while programs:
        equations = programs.pop().eqns
        held += [atom.val for each in equations for atom in each.invars if hasattr(atom, "val")]
        programs += [inner for each in equations for inner in programs_of(each)]
    numbers = [one for one in held if np.ndim(one) == 0]
    found = {float(np.real(one)) for one in numbers if jnp.issubdtype(jnp.result_type(one), jnp.number)}
    return np.array(sorted(number for number in found if np.isfinite(number)))


def _draw_one(
    draw: np.random.Generator,
    aval: Any,
    scale: float,
    places: np.ndarray[Any, Any],
    named: np.ndarray[Any, Any],
) -> Any:
    """Draw an argument: floating-point numbers of a scale, half of them at `places`; others near `named`."""
    if jnp.issubdtype(aval.dtype, jnp.inexact):
        array = scale * draw.standard_normal(aval.shape)
        if places.size:
            array = np.where(draw.random(aval.shape) < 0.5, draw.choice(places, aval.shape), array)
        return jnp.asarray(array, aval.dtype)
    if not jnp.issubdtype(aval.dtype, jnp.integer):
        return jnp.asarray(draw.integers(0, 2, aval.shape), aval.dtype)
    whole = named[(named == np.round(named)) & (abs(named) < _LARGEST)]
    bounds = jnp.iinfo(aval.dtype)
    return jnp.asarray(np.clip(draw.choice(whole, aval.shape), bounds.min, bounds.max), aval.dtype)


def _vjp(call: Any, given: Sequence[Any], moving: Sequence[int]) -> tuple[list[Any], Any]:
    """Return a call's floating-point results, and the way back from them to the arguments that move."""

    def function(*moved: Any) -> list[Any]:
        results = call(replace_leaves(given, moving, moved))
        return [out for out in results if jnp.issubdtype(out.dtype, jnp.inexact)]

    outputs, back = jax.vjp(function, *(given[i] for i in moving))
    return outputs, back


def _agree(eqn: Any, point: list[Any], moving: list[int], draw: np.random.Generator, scale: float) -> bool:
    closed = eqn.params["call_jaxpr"]
    outputs, rule = _vjp(lambda given: apply_equation(eqn, given), point, moving)
    _, body = _vjp(lambda given: jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *given), point, moving)
    cotangents = [jnp.asarray(scale * draw.standard_normal(out.shape), out.dtype) for out in outputs]
    for left, right in zip(rule(cotangents), body(cotangents), strict=True):
        left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
        size = float(np.max(np.abs(right), initial=0, where=np.isfinite(right)))
        if not np.allclose(left, right, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True):
            return False
    return True


READERS: dict[str, EquationReader] = dict.fromkeys(CUSTOM_RULES, read)
