"""JAX's own catalogue of primitives: each makes a weight, lies on the data path, and holds parameters."""

import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from lai_jax._program.program import coarsest

from benchmarks.compatibility.jax_case import CLASSES, TRAINING, WIDTH, Case, batches, between, dense, dot
from benchmarks.compatibility.judge import (
    BOUND,
    Batch,
    Row,
    UnfitError,
    describe,
    judge,
    squares,
    unfit,
)

NOISE = 0.05
LARGEST = 4096
"""Arguments with more entries make nets whose layers are slow and no more telling."""


def cases(group: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the suite, the name and a function that judges, for every harness of one group in every role."""
    for harness in groups()[group]:
        name = f"{group}#{harness.name}"
        yield "harnesses-weight", name, partial(_attempt, harness, "weight")
        yield "harnesses-data", name, partial(_attempt, harness, "data")
        yield "harnesses-parameters", name, partial(_attempt, harness, "own")
        yield "harnesses-parameters", f"{name}/r", partial(_attempt, harness, "ownr")


@cache
def groups() -> dict[str, list[Any]]:
    """Return the harnesses of each group, by name: JAX lists them in another order in every process."""
    module = importlib.import_module("jax._src.internal_test_util.test_harnesses")
    found: dict[str, list[Any]] = {}
    for harness in sorted(module.all_harnesses, key=lambda each: (each.group_name, each.name)):
        found.setdefault(harness.group_name, []).append(harness)
    return found


def _attempt(harness: Any, role: str) -> Row:
    try:
        return judge(_case(harness, role))
    except UnfitError as problem:
        return unfit(str(problem))


def _case(harness: Any, role: str) -> Case:
    arguments = harness.dyn_args_maker(np.random.RandomState(0))
    try:
        run, moved = _operation(harness, arguments)
        made = np.asarray(jax.jit(lambda *given: _flat(run(*given)))(*moved))
    except UnfitError:
        raise
    except Exception as problem:
        raise UnfitError(describe(problem)) from problem
    if role.startswith("own") and len(moved) < 2:
        raise UnfitError("one differentiable argument: nothing is left to be data")
    if not made.size or not np.isfinite(made).all():
        raise UnfitError("results without entries, or not finite")
    scale = float(np.abs(made).max()) or 1.0
    eps = coarsest(jax.make_jaxpr(run)(*moved).jaxpr)
    precision = {"bound": max(BOUND, 64 * eps), "eps": eps}
    rng = np.random.default_rng(zlib.crc32(harness.fullname.encode()))
    sides = batches(rng)
    if role == "weight":
        return _makes_weight(run, moved, made.size, scale * made.size**0.5, rng, sides, precision)
    kept = {"own": tuple(range(1, len(moved))), "ownr": (0,)}.get(role, ())
    layer, width = _on_data(run, moved, kept, scale)
    return between(layer, [moved[i] for i in kept], width, rng, sides, **precision)


def _operation(harness: Any, arguments: Sequence[Any]) -> tuple[Callable[..., list[Any]], list[Any]]:
    """Return the harness as a function of its inexact arguments alone, and these."""
    places = [
        i
        for i, argument in enumerate(arguments)
        if hasattr(argument, "dtype") and jnp.issubdtype(argument.dtype, jnp.inexact)
    ]
    moved = [jnp.asarray(arguments[i]) for i in places]
    if not moved or not all(argument.size for argument in moved):
        raise UnfitError("no differentiable argument")
    if sum(argument.size for argument in moved) > LARGEST:
        raise UnfitError(f"more than {LARGEST} entries")

    def run(*given: Any) -> list[Any]:
        filled = list(arguments)
        for place, value in zip(places, given, strict=True):
            filled[place] = value
        results = jax.tree.leaves(harness.dyn_fun(*filled))
        return [result for result in results if jnp.issubdtype(result.dtype, jnp.inexact)]

    if not jax.eval_shape(run, *moved):
        raise UnfitError("no differentiable result")
    return run, moved


def _flat(results: Sequence[Any]) -> Any:
    parts = [part for result in results for part in _parts(result.ravel())]
    return jnp.concatenate([part.astype(float) for part in parts])


def _parts(flat: Any) -> tuple[Any, ...]:
    return (flat.real, flat.imag) if jnp.iscomplexobj(flat) else (flat,)


def _makes_weight(
    run: Callable[..., list[Any]],
    moved: list[Any],
    size: int,
    scale: float,
    rng: np.random.Generator,
    sides: dict[str, Batch],
    precision: dict[str, float],
) -> Case:
    rows = 2 if size % 2 == 0 else 1
    params = {"embed": dense(rng, WIDTH, size // rows), "own": moved, "head": dense(rng, rows, CLASSES)}

    def apply(params: dict[str, Any], inputs: Any) -> Any:
        weight = _flat(run(*params["own"])).reshape(size // rows, rows)
        return dot(params["head"], jnp.tanh(jnp.tanh(dot(params["embed"], inputs)) @ weight / scale))

    return Case(apply=apply, params=params, loss=squares, **sides, about=("own",), **precision)


def _on_data(
    run: Callable[..., list[Any]], moved: list[Any], kept: tuple[int, ...], scale: float
) -> tuple[Callable[[Any, Any], Any], int]:
    """Return the operation on rows of numbers near its arguments, those kept aside; and the rows' width."""
    data = [i for i in range(len(moved)) if i not in kept]
    widths = [moved[i].size * (2 if jnp.iscomplexobj(moved[i]) else 1) for i in data]

    def one(own: list[Any], row: Any) -> Any:
        given = list(moved)
        for i, value in zip(kept, own, strict=True):
            given[i] = value
        pieces = jnp.split(row, np.cumsum(widths)[:-1])
        for i, piece in zip(data, pieces, strict=True):
            given[i] = (moved[i] + NOISE * _shaped(piece, moved[i])).astype(moved[i].dtype)
        return _flat(run(*given)) / scale

    def mapped(own: list[Any], rows: Any) -> Any:
        return jax.vmap(partial(one, own))(rows)

    def stacked(own: list[Any], rows: Any) -> Any:
        return jnp.stack([one(own, row) for row in rows])

    try:
        jax.eval_shape(mapped, [moved[i] for i in kept], jnp.zeros((TRAINING, sum(widths))))
    except Exception:  # what a primitive without a batching rule says
        return stacked, sum(widths)
    return mapped, sum(widths)


def _shaped(piece: Any, like: Any) -> Any:
    if jnp.iscomplexobj(like):
        first, second = jnp.split(piece, 2)
        return (first + 1j * second).reshape(like.shape)
    return piece.reshape(like.shape)
