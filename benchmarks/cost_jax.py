"""A curated JAX step beside a plain one: operations by XLA's count, seconds, memory, in one run."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
from jax import lax

import lai_core as lai
from benchmarks import report
from workloads.jax_parts import attention, block_params, layer_norm

BOUNDS = {"lai_cached": 0.86, "lai_selective": 0.72}
"""Operations over a plain step, at half kept."""
KEPT = 0.5
REPEATS = 3


@dataclass(frozen=True)
class Work:
    """A model, a training batch and a validation batch."""

    apply: Callable[..., Any]
    params: Any
    loss: Callable[..., Any]
    training: tuple[Any, Any]
    validation: tuple[Any, Any]


def _convolved(maps: Any, kernel: Any, stride: int = 1) -> Any:
    low = (kernel.shape[0] - 1) // 2
    return lax.conv_general_dilated(
        maps, kernel, (stride, stride), ((low, low), (low, low)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def resnet18(samples: int = 128, validation: int = 250) -> Work:
    """ResNet-18 with the 7x7/2 stem and max-pool on 32x32 images: 37 million multiply-adds an image."""
    draw = np.random.default_rng(0)

    def kernel(size: int, before: int, after: int) -> Any:
        scale = np.sqrt(2.0 / (size * size * before))
        return jnp.asarray(scale * draw.standard_normal((size, size, before, after)), jnp.float32)

    def norm(width: int) -> dict[str, Any]:
        return {"gain": jnp.ones(width), "offset": jnp.zeros(width)}

    stages = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    stages += [(256, 512, 2), (512, 512, 1)]
    blocks = []
    for before, after, stride in stages:
        block = {
            "k1": kernel(3, before, after),
            "n1": norm(after),
            "k2": kernel(3, after, after),
            "n2": norm(after),
        }
        if stride > 1:
            block |= {"k3": kernel(1, before, after), "n3": norm(after)}
        blocks.append(block)
    params = {
        "stem": kernel(7, 3, 64),
        "norm": norm(64),
        "blocks": blocks,
        "w": jnp.asarray(draw.standard_normal((512, 10)) / 23, jnp.float32),
        "b": jnp.zeros(10),
    }

    def frozen(maps: Any, own: Any) -> Any:
        """Normalise by stored statistics: here those of a network that has seen nothing."""
        return maps * own["gain"] + own["offset"]

    def apply(params: Any, images: Any) -> Any:
        maps = jax.nn.relu(frozen(_convolved(images, params["stem"], 2), params["norm"]))
        window = ((0, 0), (1, 1), (1, 1), (0, 0))
        maps = lax.reduce_window(maps, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), window)
        for block, (_, _, stride) in zip(params["blocks"], stages, strict=True):
            own = jax.nn.relu(frozen(_convolved(maps, block["k1"], stride), block["n1"]))
            own = frozen(_convolved(own, block["k2"]), block["n2"])
            if stride > 1:
                maps = frozen(_convolved(maps, block["k3"], stride), block["n3"])
            maps = jax.nn.relu(own + maps)
        return maps.mean((1, 2)) @ params["w"] + params["b"]

    def loss(outputs: Any, targets: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)

    def batch(count: int) -> tuple[Any, Any]:
        images = jnp.asarray(draw.standard_normal((count, 32, 32, 3)), jnp.float32)
        return images, jnp.asarray(draw.integers(0, 10, count), jnp.int32)

    return Work(apply, params, loss, batch(samples), batch(validation))


def gpt_neo_small(samples: int = 16, validation: int = 32) -> Work:
    """GPT-Neo's shape, small: global and local attention in turn, tied head, layers unrolled."""
    draw = np.random.default_rng(1)
    width, heads, depth, length, vocabulary, reach = 256, 4, 4, 128, 2048, 32

    def drawn(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32)

    params = {
        "tokens": 0.1 * drawn(vocabulary, width),
        "places": 0.1 * drawn(length, width),
        "blocks": [block_params(drawn, width, 4) for _ in range(depth)],
        "gain": jnp.ones(width),
        "offset": jnp.zeros(width),
    }

    def apply(params: Any, ids: Any) -> Any:
        values = params["tokens"][ids] + params["places"]
        for index, block in enumerate(params["blocks"]):
            own = layer_norm(values, block["g1"], block["o1"])
            values = values + attention(own, block, heads, reach if index % 2 else None)
            hidden = jax.nn.gelu(
                layer_norm(values, block["g2"], block["o2"]) @ block["up"] + block["up_bias"]
            )
            values = values + hidden @ block["down"] + block["down_bias"]
        return layer_norm(values, params["gain"], params["offset"]) @ params["tokens"].T

    def loss(outputs: Any, targets: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets).mean(-1)

    def batch(count: int) -> tuple[Any, Any]:
        ids = jnp.asarray(draw.integers(0, vocabulary, (count, length + 1)), jnp.int32)
        return ids[:, :-1], ids[:, 1:]

    return Work(apply, params, loss, batch(samples), batch(validation))


MODELS: dict[str, Callable[[], Work]] = {"resnet18": resnet18, "gpt_neo_small": gpt_neo_small}


def steps(work: Work) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return each method's step and its arguments, `plain` first."""
    tx = optax.sgd(1e-3)

    def summarize(params: Any, inputs: Any, targets: Any) -> Any:
        return lai.summarize(
            lai_jax.trace(work.apply, params, work.loss, inputs, targets), "lai", positions="mean"
        )

    def plain(params: Any, state: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
        def mean(params: Any) -> Any:
            return work.loss(work.apply(params, inputs), targets).mean()

        updates, state = tx.update(jax.grad(mean)(params), state, params)
        return optax.apply_updates(params, updates), state

    def policy(scores: Any) -> Any:
        return lai.keep_top(scores, KEPT)

    cached = lai_jax.curated_update(work.apply, work.loss, tx, policy=policy, rows=KEPT, recompute=True)
    selective = lai_jax.curated_update(work.apply, work.loss, tx, policy=policy, rows=KEPT)

    def fresh(params: Any, state: Any, validation: Any, inputs: Any, targets: Any) -> Any:
        return cached(params, state, summarize(params, *validation), inputs, targets)

    state, summary = tx.init(work.params), jax.jit(summarize)(work.params, *work.validation)
    return {
        "plain": (plain, (work.params, state, *work.training)),
        "lai_cached": (cached, (work.params, state, summary, *work.training)),
        "lai_selective": (selective, (work.params, state, summary, *work.training)),
        "lai_fresh": (fresh, (work.params, state, work.validation, *work.training)),
    }


def measure(work: Work) -> dict[str, dict[str, float]]:
    """Count and time every method's step; return the ratios to the plain one."""
    programs = {
        name: (jax.jit(step).lower(*given).compile(), given) for name, (step, given) in steps(work).items()
    }
    figures: dict[str, dict[str, float]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for repeat in range(REPEATS + 1):  # in turn, so that a busy machine is busy for all of them
        for name, (program, given) in programs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*given))
            if repeat:
                seconds[name].append(time.perf_counter() - start)
    for name, (program, _) in programs.items():
        memory = program.memory_analysis()
        figures[name] = {
            "flops": float(program.cost_analysis()["flops"]),
            "seconds": statistics.median(seconds[name]),
            "memory": float(memory.temp_size_in_bytes + memory.output_size_in_bytes),
        }
    plain = figures["plain"]
    return {name: {f"{what}_ratio": row[what] / plain[what] for what in row} for name, row in figures.items()}


def run() -> None:
    """Measure both models, print the table, write `build/cost-jax.json`."""
    found = {name: measure(build()) for name, build in MODELS.items()}
    report.table(
        "over a plain step",
        ("model", "method", "flops", "seconds", "memory", "bound"),
        (
            (
                model,
                method,
                *(f"{row[f'{what}_ratio']:.3f}" for what in ("flops", "seconds", "memory")),
                f"{BOUNDS[method]:.2f}" if method in BOUNDS else "",
            )
            for model, methods in found.items()
            for method, row in methods.items()
        ),
    )
    failed = [
        f"{model} {line}"
        for model, methods in found.items()
        for line in report.over({name: row["flops_ratio"] for name, row in methods.items()}, BOUNDS)
    ]
    report.close("cost-jax", found, BOUNDS, failed, packages=("jax", "optax"), contract=found, kept=KEPT)
