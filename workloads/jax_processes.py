"""One of several processes of `jax.distributed`, which prints what it found as JSON.

`python -m workloads.jax_processes RANK COUNT PORT FOLDER`. Each has two devices and its own rows of every
batch; what they find is compared with one device on the whole batch.
"""

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

RANK, COUNT, PORT = (int(each) for each in sys.argv[1:4])
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{PORT}", COUNT, RANK)

import jax.numpy as jnp  # noqa: E402
import lai_jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

from workloads.jax_meshes import collectives  # noqa: E402

STEPS = 3
TX = optax.adam(0.05)


def apply(params: Any, inputs: Any) -> Any:
    """Run two layers."""
    return jnp.tanh(inputs @ params["w"] + params["b"]) @ params["o"]


def loss(outputs: Any, targets: Any) -> Any:
    """Return the cross-entropy of each sample."""
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)


def drawn(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the same batch on every process."""
    draw = np.random.default_rng(seed)
    return draw.standard_normal((samples, 12)), draw.integers(0, 3, samples)


def begun() -> dict[str, np.ndarray]:
    """Return parameters."""
    draw = np.random.default_rng(0)
    shapes = {"w": (12, 16), "b": (16,), "o": (16, 3)}
    return {name: draw.standard_normal(shape) for name, shape in shapes.items()}


def train(spread: Any, place: Any, estimator: str, options: dict[str, Any]) -> Any:
    """Return parameters, optimizer state, summary, scores and weights of some steps, and the last step."""
    update: Any = lai_jax.curated_update(apply, loss, TX, estimator=estimator, **options)

    @jax.jit
    def summed(params: Any, inputs: Any, targets: Any) -> Any:
        return lai_jax.summarize(apply, params, loss, inputs, targets, estimator=estimator)

    params = place(begun())
    opt = TX.init(params)
    scores, weights = [], []
    for step in range(STEPS):
        given = params, opt, summed(params, *spread(drawn(16, 1))), *spread(drawn(24, 10 + step))
        params, opt, report = update(*given)
        own, _ = lai_jax.score(apply, params, loss, given[2], *spread(drawn(24, 50)), estimator=estimator)
        scores.append(report.scores)
        weights += [report.weights, own]
    return params, opt, given[2], scores, weights, functools.partial(update.lower, *given)


def whole(tree: Any) -> list[np.ndarray]:
    """Return all of arrays that lie on several processes."""
    return [np.asarray(multihost_utils.process_allgather(leaf, tiled=True)) for leaf in jax.tree.leaves(tree)]


def largest(found: Any, expected: Any) -> float:
    """Return the largest error over the largest entry, of arrays on several processes beside one's."""
    return max(
        float(np.abs(one - np.asarray(other)).max() / max(np.abs(np.asarray(other)).max(), 1e-300))
        for one, other in zip(whole(found), jax.tree.leaves(expected), strict=True)
    )


def over_processes(kind: AxisType) -> tuple[Any, Any, Any]:
    """Return the sharding of rows, and what spreads a batch and what places parameters over all processes."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(kind,))
    split, alike = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))

    def spread(batch: Any) -> Any:
        part = [side.reshape(COUNT, -1, *side.shape[1:])[RANK] for side in batch]
        return tuple(jax.make_array_from_process_local_data(split, side) for side in part)

    def place(params: Any) -> Any:
        return {name: jax.make_array_from_process_local_data(alike, each) for name, each in params.items()}

    return split, spread, place


def compared(kind: AxisType, estimator: str, rows: float | None) -> dict[str, Any]:
    """Train on all processes and on one device; return how far apart they are, and what a step moves."""
    split, spread, place = over_processes(kind)
    options: dict[str, Any] = {"rows": rows}
    told = {"sharding": split} if rows is not None and kind is AxisType.Auto else {}
    params, _, _, scores, weights, last = train(spread, place, estimator, options | told)
    here = functools.partial(jax.tree.map, jnp.asarray)
    expected = train(here, here, estimator, options)
    return {
        "parameters": largest(params, expected[0]),
        "scores": largest(scores, expected[3]),
        "weights": largest(weights, expected[4]),
        "update": collectives(last().compile()),
    }


def kept_and_taken_up(folder: Path) -> bool:
    """Keep parameters, the optimizer's state and the summary by orbax; say whether they are the same bits."""
    import orbax.checkpoint as ocp

    _, spread, place = over_processes(AxisType.Auto)
    params, opt, summary, *_ = train(spread, place, "lai", {})
    state = {"params": params, "opt": opt, "summary": summary}
    with ocp.StandardCheckpointer() as keeper:
        keeper.save(folder / "state", state)
        keeper.wait_until_finished()
        found = keeper.restore(folder / "state", jax.tree.map(ocp.utils.to_shape_dtype_struct, state))
    batch = spread(drawn(24, 50))
    scores = [
        whole(lai_jax.score(apply, each["params"], loss, each["summary"], *batch)[1].scores)
        for each in (state, found)
    ]
    same = all(np.array_equal(*pair) for pair in zip(whole(state), whole(found), strict=True))
    return same and type(found["summary"]) is type(summary) and np.array_equal(*scores)


CASES = {
    "lai": (AxisType.Auto, "lai", None),
    "lai, explicit": (AxisType.Explicit, "lai", None),
    "ghost, rows": (AxisType.Auto, "ghost", 0.5),
    "lai, explicit, rows": (AxisType.Explicit, "lai", 0.5),
    "calibrated_lai": (AxisType.Auto, "calibrated_lai", None),
    "exact": (AxisType.Auto, "exact", None),
}

if __name__ == "__main__":
    result: dict[str, Any] = {name: compared(*case) for name, case in CASES.items()}
    result["orbax"] = kept_and_taken_up(Path(sys.argv[4]))
    print(json.dumps(result))
