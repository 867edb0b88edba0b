"""Reading outside of an array, as reverse mode differentiates it.

Read by index in the default mode, what lies outside of an array is its nearest entry. Forward mode takes the
tangent from there too; reverse mode, which says what a gradient is, adds nothing to any entry.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax

from lai_jax._program.evaluate import apply_equation, interpret
from lai_jax._program.program import close_jaxpr, programs_of
from lai_jax._program.rules.primitives import CALLS, RECOMPUTED

_RUNNING = (*CALLS, *RECOMPUTED, "scan", "cond", "while")
"""What has the derivative of the programs that it runs, and none of its own."""


def drop_outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function from a list to an array whose forward mode takes nothing from outside of an array."""

    def call(given: list[Any]) -> Any:
        closed = jax.make_jaxpr(function)(given)
        return interpret(closed, given, _apply)[0] if _reads(closed.jaxpr) else function(given)

    return call


def _is_read(eqn: Any) -> bool:
    """Whether an equation reads numbers that have tangents, in the mode that does not say what is outside."""
    return (
        eqn.primitive.name == "gather"
        and eqn.params["mode"] == lax.GatherScatterMode.PROMISE_IN_BOUNDS
        and bool(jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact))
    )


def _reads(jaxpr: Any) -> bool:
    return any(
        _is_read(eqn) or (eqn.primitive.name in _RUNNING and any(map(_reads, programs_of(eqn))))
        for eqn in jaxpr.eqns
    )


def _apply(eqn: Any, given: Sequence[Any]) -> list[Any]:
    return [_read(eqn, *given)] if _is_read(eqn) else apply_equation(_read_programs(eqn), given)


def _read_programs(eqn: Any) -> Any:
    """Return an equation whose own programs, if it runs any, read as `_apply` does."""
    if eqn.primitive.name not in _RUNNING or not any(map(_reads, programs_of(eqn))):
        return eqn

    def change(param: Any) -> Any:
        if isinstance(param, tuple):  # the branches of a choice
            return tuple(map(change, param))
        if not hasattr(getattr(param, "jaxpr", param), "eqns"):
            return param
        own = close_jaxpr(param)
        shapes = [atom.aval for atom in own.jaxpr.invars]
        closed = jax.make_jaxpr(lambda *given: interpret(own, given, _apply))(*shapes)
        return closed if isinstance(param, jex.ClosedJaxpr) else closed.jaxpr

    return eqn.replace(params={name: change(param) for name, param in eqn.params.items()})


def _read(eqn: Any, data: Any, indices: Any) -> Any:
    params = eqn.params

    @jax.custom_jvp
    def read(data: Any, indices: Any) -> Any:
        return apply_equation(eqn, [data, indices])[0]

    @read.defjvp
    def _tangent(given: Any, moved: Any) -> Any:
        inside = lax.gather(
            moved[0],
            given[1],
            params["dimension_numbers"],
            params["slice_sizes"],
            unique_indices=params["unique_indices"],
            indices_are_sorted=params["indices_are_sorted"],
            mode=lax.GatherScatterMode.FILL_OR_DROP,
            fill_value=0,
        )
        return read(*given), inside

    return read(data, indices)
