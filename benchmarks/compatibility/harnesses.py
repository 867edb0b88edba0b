"""JAX's own catalogue of primitives: each makes a weight, lies on the data path, and holds parameters."""

import importlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.compatibility.judge_jax import BOUND, Case, judge, squares
from benchmarks.compatibility.verdicts import REASON_LENGTH, Row, UnfitError, unfit

WIDTH, CLASSES, TRAINING, VALIDATION = 3, 2, 3, 2
NOISE = 0.05
LARGEST = 4096
"""Arguments with more entries make nets whose layers are slow and no more telling."""


def groups() -> list[str]:
    """Return the names of the groups of harnesses."""
    return list(_harnesses())


def cases(group: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the suite, the name and a function that judges, for every harness of one group in every role."""
    for harness in _harnesses()[group]:
        name = f"{group}#{harness.name}"
        yield "harnesses-weight", name, partial(_attempt, harness, "weight")
        yield "harnesses-data", name, partial(_attempt, harness, "data")
        yield "harnesses-parameters", name, partial(_attempt, harness, "own")
        yield "harnesses-parameters", f"{name}/r", partial(_attempt, harness, "ownr")


@cache
def _harnesses() -> dict[str, list[Any]]:
    module = importlib.import_module("jax._src.internal_test_util.test_harnesses")
    found: dict[str, list[Any]] = {}
    for harness in module.all_harnesses:
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
        msg = f"fails by itself: {type(problem).__name__}: {problem}"[:REASON_LENGTH]
        raise UnfitError(msg) from problem
    if role.startswith("own") and len(moved) < 2:
        raise UnfitError("one differentiable argument: nothing is left to be data")
    if not made.size or not np.isfinite(made).all():
        raise UnfitError("results without entries, or not finite")
    scale = float(np.abs(made).max()) or 1.0
    types = [argument.dtype for argument in moved]
    bound = max(BOUND, 64 * max(float(jnp.finfo(kind).eps) for kind in types))
    rng = np.random.default_rng(zlib.crc32(harness.fullname.encode()))
    batches = [(_drawn(rng, n, WIDTH), _drawn(rng, n, CLASSES)) for n in (TRAINING, VALIDATION)]
    if role == "weight":
        apply, seen, params = _makes_weight(run, moved, made.size, scale * made.size**0.5, rng)
        return Case(apply, params, squares, *batches, about=("own",), seen=None, bound=bound)
    kept = {"own": tuple(range(1, len(moved))), "ownr": (0,)}.get(role, ())
    apply, seen, params = _on_data(run, moved, kept, made.size, scale, rng)
    about = ("own",) if kept else ("embed",)
    return Case(apply, params, squares, *batches, about=about, seen=seen, only=bool(kept), bound=bound)


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


def _drawn(rng: np.random.Generator, *shape: int) -> Any:
    return jnp.asarray(rng.standard_normal(shape))


def _flat(results: Sequence[Any]) -> Any:
    parts = [part for result in results for part in _parts(result.ravel())]
    return jnp.concatenate([part.astype(float) for part in parts])


def _parts(flat: Any) -> tuple[Any, ...]:
    return (flat.real, flat.imag) if jnp.iscomplexobj(flat) else (flat,)


def _dense(rng: np.random.Generator, width: int, outputs: int) -> dict[str, Any]:
    return {"w": _drawn(rng, width, outputs) / width**0.5, "b": _drawn(rng, outputs) / 4}


def _layer(params: dict[str, Any], inputs: Any) -> Any:
    return inputs @ params["w"] + params["b"]


def _makes_weight(
    run: Callable[..., list[Any]], moved: list[Any], size: int, scale: float, rng: np.random.Generator
) -> tuple[Any, Any, dict[str, Any]]:
    rows = 2 if size % 2 == 0 else 1
    params = {"embed": _dense(rng, WIDTH, size // rows), "own": moved, "head": _dense(rng, rows, CLASSES)}

    def apply(params: dict[str, Any], inputs: Any) -> Any:
        weight = _flat(run(*params["own"])).reshape(size // rows, rows)
        return _layer(params["head"], jnp.tanh(jnp.tanh(_layer(params["embed"], inputs)) @ weight / scale))

    return apply, None, params


def _on_data(
    run: Callable[..., list[Any]],
    moved: list[Any],
    kept: tuple[int, ...],
    size: int,
    scale: float,
    rng: np.random.Generator,
) -> tuple[Any, Any, dict[str, Any]]:
    data = [i for i in range(len(moved)) if i not in kept]
    widths = [moved[i].size * (2 if jnp.iscomplexobj(moved[i]) else 1) for i in data]
    params = {
        "embed": _dense(rng, WIDTH, sum(widths)),
        "own": [moved[i] for i in kept],
        "head": _dense(rng, size, CLASSES),
    }

    def one(own: list[Any], row: Any) -> Any:
        given = list(moved)
        for i, value in zip(kept, own, strict=True):
            given[i] = value
        pieces = jnp.split(row, np.cumsum(widths)[:-1])
        for i, piece in zip(data, pieces, strict=True):
            given[i] = (moved[i] + NOISE * _shaped(piece, moved[i])).astype(moved[i].dtype)
        return _flat(run(*given))

    def features(params: dict[str, Any], inputs: Any) -> Any:
        hidden = jnp.tanh(_layer(params["embed"], inputs))
        made = (
            jax.vmap(partial(one, params["own"]))(hidden)
            if vmaps
            else jnp.stack([one(params["own"], row) for row in hidden])
        )
        return jnp.tanh(made / scale)

    def apply(params: dict[str, Any], inputs: Any) -> Any:
        return _layer(params["head"], features(params, inputs))

    def seen(params: dict[str, Any], inputs: Any) -> list[Any]:
        return [inputs, features(params, inputs)]

    vmaps = True
    try:
        jax.eval_shape(apply, params, jnp.zeros((TRAINING, WIDTH)))
    except Exception:  # what a primitive without a batching rule says
        vmaps = False
    return apply, seen, params


def _shaped(piece: Any, like: Any) -> Any:
    if jnp.iscomplexobj(like):
        first, second = jnp.split(piece, 2)
        return (first + 1j * second).reshape(like.shape)
    return piece.reshape(like.shape)
