"""Curated steps on several devices against one device: prints errors, and what a device does, as JSON.

Run as a module, with names of cases, it takes the devices of this process, eight in tests; by `--process RANK
COUNT PORT FOLDER CASE ...` it is one of several processes, each with its own rows of every batch.
"""

import functools
import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import lai_core as lai

COLLECTIVE = re.compile(
    r"= (\(.*?\)|\S+) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)
STEPS, TX = 3, optax.adam(0.05)
LAYOUTS = {
    "data": ((-1,), ("data",), {}),
    "parameters": ((-1,), ("data",), dict.fromkeys("wbvo", ("data",))),
    "features": ((-1, 2), ("data", "model"), {"w": (None, "model"), "b": ("model",), "v": ("model",)}),
}
"""How parameters lie beside the batch: everywhere, in parts as the batch does, or by features."""


def apply(params: Any, inputs: Any) -> Any:
    hidden = jnp.tanh(jnp.tanh(inputs @ params["w"] + params["b"]) @ params["v"])
    return hidden @ params["o"]


def loss(outputs: Any, targets: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


def drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the same batch on every process."""
    draw = np.random.default_rng(seed)
    return draw.standard_normal((samples, 24)), draw.integers(0, 3, samples)


def begun() -> dict[str, np.ndarray]:
    draw, shapes = np.random.default_rng(0), {"w": (24, 32), "b": (32,), "v": (32, 32), "o": (32, 3)}
    return {name: draw.standard_normal(shape) / shape[0] ** 0.5 for name, shape in shapes.items()}


@functools.partial(jax.jit, static_argnames="estimator")
def traced_summary(params: Any, inputs: Any, targets: Any, estimator: str) -> Any:
    gradients = "all" if estimator == "ghost" else "output"
    return lai.summarize(lai_jax.trace(apply, params, loss, inputs, targets, gradients=gradients), estimator)


@functools.partial(jax.jit, static_argnames="estimator")
def own_summary(params: Any, inputs: Any, targets: Any, estimator: str) -> Any:
    return lai_jax.summarize(apply, params, loss, inputs, targets, estimator=estimator)


def collectives(program: Any) -> list[list[str]]:
    """Return the collectives of a lowered program, and the shapes that they move."""
    return [[kind, shapes] for shapes, kind in COLLECTIVE.findall(program.compile().as_text())]


def train(spread: Any, place: Any, estimator: str, summed: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Take some steps; return what they leave, and the last one's update and arguments."""
    update: Any = lai_jax.curated_update(apply, loss, TX, estimator=estimator, **options)
    params = begin = place(begun())
    opt = TX.init(params)
    scores, weights = [], []
    for step in range(STEPS):
        side = summed(params, *spread(drawn(40, 1)), estimator=estimator)
        given = params, opt, side, *spread(drawn(64, 10 + step))
        params, opt, report = update(*given)
        scores.append(report.scores)
        weights.append(report.weights)
    if jax.process_count() > 1:
        weights.append(lai_jax.score(apply, params, loss, side, *given[3:], estimator=estimator)[0])
    found = {"parameters": params, "scores": scores, "weights": weights}
    return found | {
        "begin": begin,
        "state": (params, opt, side),
        "last": functools.partial(update.lower, *given),
    }


def whole(tree: Any) -> list[np.ndarray]:
    """Return all of arrays that may lie on several processes."""
    gathered = functools.partial(multihost_utils.process_allgather, tiled=True)
    leaves = jax.tree.leaves(tree)
    return [np.asarray(leaf if leaf.is_fully_addressable else gathered(leaf)) for leaf in leaves]


def largest(found: Any, expected: Any) -> float:
    pairs = zip(whole(found), whole(expected), strict=True)
    return max(float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-300)) for one, other in pairs)


def over_devices(
    kind: AxisType, name: str
) -> tuple[NamedSharding, Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the sharding of rows, and what spreads a batch and places parameters over all devices."""
    shape, axes, specs = LAYOUTS[name]
    counts = np.arange(jax.device_count()).reshape(shape).shape
    mesh = jax.make_mesh(counts, axes, axis_types=(kind,) * len(axes))
    rows = NamedSharding(mesh, PartitionSpec("data"))

    def spread(batch: Any) -> Any:
        parts = [np.split(side, jax.process_count())[jax.process_index()] for side in batch]
        return tuple(jax.make_array_from_process_local_data(rows, part) for part in parts)

    def place(params: Any) -> Any:
        shardings = {each: NamedSharding(mesh, PartitionSpec(*specs.get(each, ()))) for each in params}
        return {
            each: jax.make_array_from_process_local_data(shardings[each], params[each]) for each in params
        }

    return rows, spread, place


def compared(
    kind: AxisType,
    estimator: str,
    name: str = "data",
    rows: float | None = None,
    summed: Any = own_summary,
) -> dict[str, Any]:
    """Train on one device and on all, with the batch's rows spread; return how far apart they are."""
    split, spread, place = over_devices(kind, name)
    options: dict[str, Any] = {"rows": rows}
    several = jax.process_count() > 1  # where all rows are chosen, nothing has to be told of them
    told = {"sharding": split} if kind is AxisType.Auto and not (several and rows is None) else {}
    many = train(spread, place, estimator, summed, options | told)
    here = functools.partial(jax.tree.map, jnp.asarray)
    single = train(here, here, estimator, summed, options)
    sides = zip(whole(many["weights"]), whole(single["weights"]), strict=True)
    layouts = zip(jax.tree.leaves(many["begin"]), jax.tree.leaves(many["parameters"]), strict=True)
    found = {each: largest(many[each], single[each]) for each in ("parameters", "scores", "weights")}
    return found | {
        "same_decisions": all(np.array_equal(one > 0, other > 0) for one, other in sides),
        "same_layout": all(a.sharding.is_equivalent_to(b.sharding, a.ndim) for a, b in layouts),
        "update": collectives(many["last"]()),
        "summary": collectives(summed.lower(many["parameters"], *spread(drawn(40, 1)), estimator=estimator)),
        "devices": jax.device_count(),
    }


def operations() -> dict[str, float]:
    """Return what one of eight devices does in a step on half of the rows, over a step on all of them."""
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    widths, tx = (256, 512, 512, 16), optax.sgd(0.1)

    def deep(params: Any, inputs: Any) -> Any:
        for weight in params[:-1]:
            inputs = jnp.tanh(inputs @ weight)
        return inputs @ params[-1]

    def plain(params: Any, inputs: Any, targets: Any) -> Any:
        gradient = jax.grad(lambda given: loss(deep(given, inputs), targets).mean())(params)
        return optax.apply_updates(params, tx.update(gradient, tx.init(params), params)[0])

    params = jax.device_put([jnp.ones(pair) for pair in itertools.pairwise(widths)], whole)
    batch = jax.device_put((jnp.ones((512, widths[0])), jnp.zeros(512, jnp.int32)), rows)
    summary = lai_jax.summarize(deep, params, loss, *batch)

    def done(function: Any, *given: Any) -> float:
        return float(function.lower(*given).compile().cost_analysis()["flops"])

    def curated(sharding: Any) -> float:
        update = lai_jax.curated_update(deep, loss, tx, rows=0.5, sharding=sharding)
        return done(update, params, tx.init(params), summary, *batch)

    least = done(jax.jit(plain), params, *batch)
    return {"with a sharding": curated(rows) / least, "without": curated(None) / least}


def kept_and_taken_up(folder: Path) -> bool:
    """Keep parameters, the optimizer's state and the summary by orbax; say whether they are the same bits."""
    import orbax.checkpoint as ocp

    _, spread, place = over_devices(AxisType.Auto, "data")
    params, opt, summary = train(spread, place, "lai", own_summary, {})["state"]
    state = {"params": params, "opt": opt, "summary": summary}
    with ocp.StandardCheckpointer() as keeper:
        keeper.save(folder / "state", state)
        keeper.wait_until_finished()
        found = keeper.restore(folder / "state", jax.tree.map(ocp.utils.to_shape_dtype_struct, state))
    batch = spread(drawn(64, 50))
    scores = [
        whole(lai_jax.score(apply, each["params"], loss, each["summary"], *batch)[1].scores)
        for each in (state, found)
    ]
    same = all(np.array_equal(*pair) for pair in zip(whole(state), whole(found), strict=True))
    return same and type(found["summary"]) is type(summary) and np.array_equal(*scores)


AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "lai": functools.partial(compared, AUTO, "lai", summed=traced_summary),
    "lai, explicit": functools.partial(compared, EXPLICIT, "lai", summed=traced_summary),
    "ghost": functools.partial(compared, AUTO, "ghost", summed=traced_summary),
    "data, rows": functools.partial(compared, AUTO, "lai", "data", 0.5),
    "data, explicit": functools.partial(compared, EXPLICIT, "ghost"),
    "data, explicit, rows": functools.partial(compared, EXPLICIT, "lai", "data", 0.5),
    "parameters, rows": functools.partial(compared, AUTO, "lai", "parameters", 0.5),
    "parameters, explicit, rows": functools.partial(compared, EXPLICIT, "lai", "parameters", 0.5),
    "features": functools.partial(compared, AUTO, "lai", "features"),
    "features, explicit, rows": functools.partial(compared, EXPLICIT, "lai", "features", 0.5),
}
PROCESSES: dict[str, Callable[[], dict[str, Any]]] = {
    "lai": functools.partial(compared, AUTO, "lai"),
    "lai, explicit": functools.partial(compared, EXPLICIT, "lai"),
    "ghost, rows": functools.partial(compared, AUTO, "ghost", rows=0.5),
    "lai, explicit, rows": functools.partial(compared, EXPLICIT, "lai", rows=0.5),
    "calibrated_lai": functools.partial(compared, AUTO, "calibrated_lai"),
    "exact": functools.partial(compared, AUTO, "exact"),
}


def main(*asked: str) -> dict[str, Any]:
    """Run the cases asked for, or those of several processes."""
    jax.config.update("jax_enable_x64", True)
    if asked[:1] != ("--process",):
        return {name: CASES[name]() for name in asked or CASES} | {"operations": operations()}
    rank, count, port = map(int, asked[1:4])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", count, rank)
    found: dict[str, Any] = {name: PROCESSES[name]() for name in asked[5:] or PROCESSES}
    return found | {"orbax": kept_and_taken_up(Path(asked[4]))}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
