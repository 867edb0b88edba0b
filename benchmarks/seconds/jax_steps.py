"""JAX's methods on one model: compiled steps, so that nothing is launched or waited for in between."""

import itertools
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.cost_jax import Work, gpt_neo_small, steps

METHODS = ("plain", "lai_cached", "lai_selective")
HANDS = {"lai_cached": "hand", "lai_selective": "hand_selective"}
"""The same step without its scoring and checks, and where nothing is kept of a forward pass that scores."""


def mlp(samples: int = 128, validation: int = 256) -> Work:
    """784-512-512-10 with ReLU, on normal inputs."""
    draw = np.random.default_rng(0)
    widths = (784, 512, 512, 10)
    params = [
        {"w": jnp.asarray(draw.standard_normal((a, b)) / np.sqrt(a), jnp.float32), "b": jnp.zeros(b)}
        for a, b in itertools.pairwise(widths)
    ]

    def apply(params: Any, inputs: Any) -> Any:
        *hidden, last = params
        for layer in hidden:
            inputs = jax.nn.relu(inputs @ layer["w"] + layer["b"])
        return inputs @ last["w"] + last["b"]

    def batch(count: int) -> tuple[Any, Any]:
        drawn = jnp.asarray(draw.standard_normal((count, widths[0])), jnp.float32)
        return drawn, jnp.asarray(draw.integers(0, 10, count), jnp.int32)

    loss = optax.softmax_cross_entropy_with_integer_labels
    return Work(apply, params, loss, batch(samples), batch(validation))


MODELS = {"jax_mlp": mlp, "jax_gpt": lambda: gpt_neo_small(8, 16)}


def by_hand(work: Work) -> dict[str, tuple[Any, Any]]:
    """Return a kept and a selective step by hand: the half of largest losses run again; half run back."""
    tx, (inputs, targets) = optax.sgd(1e-3), work.training
    half = len(targets) // 2

    def losses(params: Any, inputs: Any, targets: Any) -> Any:
        return work.loss(work.apply(params, inputs), targets)

    def gradient(params: Any, inputs: Any, targets: Any) -> Any:
        return jax.grad(lambda params: losses(params, inputs, targets).mean())(params)

    def moved(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def kept(params: Any, state: Any, inputs: Any, targets: Any) -> Any:
        rows = jax.lax.top_k(losses(params, inputs, targets), half)[1]
        return moved(params, state, gradient(params, inputs[rows], targets[rows]))

    def selective(params: Any, state: Any, inputs: Any, targets: Any) -> Any:
        """Forward on all rows, back on the first half."""
        first = gradient(params, inputs[:half], targets[:half])
        rest = losses(params, inputs[half:], targets[half:])
        return *moved(params, state, first), rest

    given = (work.params, tx.init(work.params), inputs, targets)
    return {"hand": (kept, given), "hand_selective": (selective, given)}


def measure(rounds: int) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return each method's figures over a plain step's on each model."""
    return {name: _ratios(build(), rounds) for name, build in MODELS.items()}


def _ratios(work: Work, rounds: int) -> dict[str, dict[str, float | None]]:
    made = steps(work) | by_hand(work)
    names = (*METHODS, *HANDS.values())
    programs = {
        name: (jax.jit(made[name][0]).lower(*made[name][1]).compile(), made[name][1]) for name in names
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for index in range(rounds + 1):
        shift = index % len(names)
        for name in names[shift:] + names[:shift]:
            program, given = programs[name]
            clock, cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(program(*given))
            if index:
                taken[name].append((time.perf_counter() - clock, time.process_time() - cpu))
    figures: dict[str, dict[str, float]] = {}
    for name, (program, _) in programs.items():
        memory = program.memory_analysis()
        row = {"flops": float(program.cost_analysis()["flops"])}
        row["memory"] = float(
            memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
        )
        for place, key in enumerate(("seconds", "cpu") if rounds else ()):
            row[key] = statistics.median(one[place] for one in taken[name])
        figures[name] = row
    plain = figures["plain"]
    keys = ("flops", "memory", "seconds", "cpu")
    return {
        name: {f"{key}_ratio": row[key] / plain[key] if key in row else None for key in keys}
        | {"waits": 0, "launches": 1, "hand_ratio": _over(row, figures.get(HANDS.get(name, "")))}
        for name, row in figures.items()
    }


def _over(row: dict[str, float], hand: dict[str, float] | None) -> float | None:
    """Return the CPU seconds of a step over those of the one by hand."""
    return None if hand is None or "cpu" not in hand else row["cpu"] / hand["cpu"]
