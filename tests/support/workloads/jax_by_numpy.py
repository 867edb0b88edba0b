"""Running a JAX function operation by operation in numpy: nothing is compiled.

A program that runs once on a few numbers takes XLA seconds to compile and no time to run. Here the
function is traced, so that all that a library does while it traces is done, and the operations are then
computed one by one: by numpy where they are its own, by JAX where they are not.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from lai_jax._program.program import loop_parts

from tests.support.workloads.numpy_primitives import PRIMITIVES, bound, plain

Arrays = list[Any]
_HALF = (np.float16, jax.numpy.bfloat16)


def by_numpy(function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function returns, as numpy arrays."""
    return traced(function, *given)(*given)


def traced(function: Callable[..., Any], *like: Any) -> Callable[..., Any]:
    """Trace a function once, to be run by numpy on any arguments of the same shapes."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*like)

    def run(*given: Any) -> Any:
        results = _closed(closed, [plain(leaf) for leaf in jax.tree.leaves(given)])
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return run


def _closed(closed: Any, arguments: Sequence[Any]) -> Arrays:
    return _run(closed.jaxpr, closed.consts, arguments)


def _run(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> Arrays:
    known = dict(zip(jaxpr.constvars, map(plain, consts), strict=True))
    known |= dict(zip(jaxpr.invars, arguments, strict=True))

    def value(atom: Any) -> Any:
        return np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, jex.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        results = _computed(eqn, [value(atom) for atom in eqn.invars])
        known |= zip(eqn.outvars, results, strict=True)
    return [value(atom) for atom in jaxpr.outvars]


def _computed(eqn: Any, given: Arrays) -> Arrays:
    name = eqn.primitive.name
    if (structured := _STRUCTURED.get(name)) is not None:
        return structured(eqn, given)
    own = PRIMITIVES.get(name)
    if own is None or not all(isinstance(array, np.ndarray) for array in given):
        return bound(eqn, given)
    with np.errstate(all="ignore"):
        found = own(eqn, *map(_wide, given))
    results = [found] if not isinstance(found, list) else found
    return [np.asarray(one, atom.aval.dtype) for one, atom in zip(results, eqn.outvars, strict=True)]


def _wide(array: Any) -> Any:
    """Return numbers of half precision in float32: each operation is rounded once, at its end."""
    return array.astype(np.float32) if array.dtype in _HALF else array


def _called(eqn: Any, given: Arrays) -> Arrays:
    params = eqn.params
    inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
    return _closed(inner, given) if hasattr(inner, "consts") else _run(inner, (), given)


def _scan(eqn: Any, given: Arrays) -> Arrays:
    params, (consts, carried) = eqn.params, loop_parts(eqn)
    fixed, carry, sliced = given[:consts], given[consts : consts + carried], given[consts + carried :]
    length, body, stacked = params["length"], params["jaxpr"], []
    order = range(length)[::-1] if params["reverse"] else range(length)
    for k in order:
        results = _closed(body, [*fixed, *carry, *(array[k] for array in sliced)])
        carry = results[:carried]
        stacked.append(results[carried:])
    if params["reverse"]:
        stacked.reverse()
    avals = body.out_avals[carried:]
    if not length:
        return [*carry, *(np.zeros((0, *aval.shape), aval.dtype) for aval in avals)]
    return [*carry, *(np.stack(column) for column in zip(*stacked, strict=True))]


def _while(eqn: Any, given: Arrays) -> Arrays:
    params = eqn.params
    tests, consts = params["cond_nconsts"], params["body_nconsts"]
    own, fixed, carry = given[:tests], given[tests : tests + consts], given[tests + consts :]
    while (
        going := _closed(params["cond_jaxpr"], [*own, *carry])[0]
    ).any():  # a test each, where it is mapped
        moved = _closed(params["body_jaxpr"], [*fixed, *carry])
        going = [going.reshape(going.shape + (1,) * (new.ndim - going.ndim)) for new in moved]
        carry = [np.where(*each) for each in zip(going, moved, carry, strict=True)]
    return carry


def _cond(eqn: Any, given: Arrays) -> Arrays:
    branches = eqn.params["branches"]
    return _closed(branches[int(np.clip(given[0], 0, len(branches) - 1))], given[1:])


_STRUCTURED: dict[str, Callable[[Any, Arrays], Arrays]] = {
    **dict.fromkeys(["jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint"], _called),
    **dict.fromkeys(["custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"], _called),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
