"""Run on eight virtual devices: prints what one and eight devices find, and what a device does, as JSON."""

import functools
import itertools
import json
import re
import sys
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import lai_core as lai

COLLECTIVE = re.compile(
    r"= (\(.*?\)|\S+) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)


def apply(params: Any, inputs: Any) -> Any:
    """Two hidden layers."""
    hidden = jnp.tanh(jnp.tanh(inputs @ params["w"] + params["b"]) @ params["v"])
    return hidden @ params["o"]


def loss(outputs: Any, targets: Any) -> Any:
    """Cross-entropy of each sample."""
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


@functools.partial(jax.jit, static_argnames="estimator")
def summarize(params: Any, batch: Any, estimator: str) -> Any:
    """Sum up a validation batch."""
    gradients = "all" if estimator == "ghost" else "output"
    return lai.summarize(lai_jax.trace(apply, params, loss, *batch, gradients=gradients), estimator)


def collectives(compiled: Any) -> list[list[str]]:
    """Return the collectives of a compiled program and the shapes they move."""
    return [[kind, shapes] for shapes, kind in COLLECTIVE.findall(compiled.as_text())]


LAYOUTS = {
    "data": ((8,), ("data",)),
    "parameters": ((8,), ("data",)),
    "features": ((4, 2), ("data", "model")),
}
"""How parameters lie beside the batch: everywhere, in parts as the batch does, or by features."""


def layout(name: str, mesh: Any, params: Any) -> Any:
    """Return the shardings of parameters."""
    specs = {each: PartitionSpec() for each in params}
    if name == "parameters":
        specs |= {each: PartitionSpec("data") for each in ("w", "b", "v", "o")}
    if name == "features":
        specs |= {"w": PartitionSpec(None, "model"), "b": PartitionSpec("model"), "v": PartitionSpec("model")}
    return {each: NamedSharding(mesh, spec) for each, spec in specs.items()}


def compared(
    kind: AxisType,
    estimator: str,
    name: str = "data",
    rows: float | None = None,
    *,
    own: bool = False,
    recompute: bool = False,
) -> dict[str, Any]:
    """Take one step on one device and on eight, with the batch's rows spread over them.

    With `own`, the library's `summarize` sums the validation set up.
    """
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(draw.standard_normal(shape))

    params = {"w": normal(24, 32), "b": normal(32), "v": normal(32, 32) / 5, "o": normal(32, 3)}
    training = normal(64, 24), jnp.asarray(draw.integers(0, 3, 64))
    validation = normal(40, 24), jnp.asarray(draw.integers(0, 3, 40))
    tx = optax.adam(0.1)

    @jax.jit
    def own_summary(params: Any, batch: Any) -> Any:
        return lai_jax.summarize(apply, params, loss, *batch, estimator=estimator)

    summed = own_summary if own else functools.partial(summarize, estimator=estimator)
    options: dict[str, Any] = {"estimator": estimator, "rows": rows, "recompute": recompute}
    update = lai_jax.curated_update(apply, loss, tx, **options)
    single = update(params, tx.init(params), summed(params, validation), *training)

    shape, axes = LAYOUTS[name]
    mesh = jax.make_mesh(shape, axes, axis_types=(kind,) * len(axes))
    spread_rows = NamedSharding(mesh, PartitionSpec("data"))
    if kind is AxisType.Auto:
        update = lai_jax.curated_update(apply, loss, tx, **options, sharding=spread_rows)
    shared = jax.device_put(params, layout(name, mesh, params))
    spread = [tuple(jax.device_put(side, spread_rows) for side in batch) for batch in (validation, training)]
    summary = summed(shared, spread[0])
    arguments = shared, tx.init(shared), summary, *spread[1]
    many, compiled = update(*arguments), update.lower(*arguments).compile()
    sides = single[2], many[2]
    sides = single[2], many[2]
    scores = [np.asarray(side.scores) for side in sides]
    weights = [np.asarray(side.weights) for side in sides]
    found: dict[str, Any] = {
        "score_error": float(np.abs(scores[0] - scores[1]).max() / np.abs(scores[0]).max()),
        "weight_error": float(np.abs(weights[0] - weights[1]).max() / weights[0].max()),
        "same_decisions": bool(np.array_equal(weights[0] > 0, weights[1] > 0)),
        "parameter_error": max(
            float(np.abs(np.asarray(a) - np.asarray(b)).max())
            for a, b in zip(jax.tree.leaves(single[0]), jax.tree.leaves(many[0]), strict=True)
        ),
        "same_layout": all(
            a.sharding.is_equivalent_to(b.sharding, a.ndim)
            for a, b in zip(jax.tree.leaves(shared), jax.tree.leaves(many[0]), strict=True)
        ),
        "update": collectives(compiled),
        "devices": len(jax.devices()),
    }
    if not own:
        found["summary"] = collectives(summarize.lower(shared, spread[0], estimator).compile())
    return found


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


AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "lai": ((AUTO, "lai"), {}),
    "lai, explicit": ((EXPLICIT, "lai"), {}),
    "ghost": ((AUTO, "ghost"), {}),
    "data, rows": ((AUTO, "lai", "data", 0.5), {"own": True}),
    "data, explicit": ((EXPLICIT, "ghost"), {"own": True}),
    "data, explicit, rows": ((EXPLICIT, "lai", "data", 0.5), {"own": True}),
    "data, explicit, rows, recomputed": ((EXPLICIT, "lai", "data", 0.5), {"own": True, "recompute": True}),
    "parameters, rows": ((AUTO, "lai", "parameters", 0.5), {"own": True}),
    "parameters, explicit, rows": ((EXPLICIT, "lai", "parameters", 0.5), {"own": True}),
    "features": ((AUTO, "lai", "features"), {"own": True}),
    "features, explicit, rows": ((EXPLICIT, "lai", "features", 0.5), {"own": True}),
}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    asked = sys.argv[1:] or list(CASES)
    found: dict[str, Any] = {name: compared(*CASES[name][0], **CASES[name][1]) for name in asked}
    print(json.dumps(found | {"operations": operations()}))
