"""Run on eight virtual devices by `test_sharding`: prints what one and eight devices find, as JSON."""

import functools
import json
import re
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


def compared(kind: AxisType, estimator: str) -> dict[str, Any]:
    """Take one step on one device and on eight, with the batch's rows spread over them."""
    draw = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(draw.standard_normal(shape))

    params = {"w": normal(24, 32), "b": normal(32), "v": normal(32, 32) / 5, "o": normal(32, 3)}
    training = normal(64, 24), jnp.asarray(draw.integers(0, 3, 64))
    validation = normal(40, 24), jnp.asarray(draw.integers(0, 3, 40))
    tx = optax.adam(0.1)
    update = lai_jax.curated_update(apply, loss, tx, estimator=estimator)
    single = update(params, tx.init(params), summarize(params, validation, estimator), *training)

    mesh = jax.make_mesh((8,), ("data",), axis_types=(kind,))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    shared = jax.device_put(params, whole)
    spread = [tuple(jax.device_put(side, rows) for side in batch) for batch in (validation, training)]
    summary = summarize(shared, spread[0], estimator)
    arguments = shared, tx.init(shared), summary, *spread[1]
    many = update(*arguments)
    scores = [np.asarray(side[2].scores) for side in (single, many)]
    return {
        "score_error": float(np.abs(scores[0] - scores[1]).max() / np.abs(scores[0]).max()),
        "same_decisions": bool(np.array_equal(single[2].weights > 0, many[2].weights > 0)),
        "parameter_error": max(
            float(np.abs(np.asarray(a) - np.asarray(b)).max())
            for a, b in zip(jax.tree.leaves(single[0]), jax.tree.leaves(many[0]), strict=True)
        ),
        "update": collectives(update.lower(*arguments).compile()),
        "summary": collectives(summarize.lower(shared, spread[0], estimator).compile()),
        "devices": len(jax.devices()),
    }


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    cases = [(AxisType.Auto, "lai"), (AxisType.Explicit, "lai"), (AxisType.Auto, "ghost")]
    print(json.dumps([compared(*case) for case in cases]))
