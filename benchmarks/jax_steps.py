"""Training steps in JAX: plain, curated, and written by hand, each compiled to one program.

Operations are XLA's count. Nothing is launched or waited for within a program.
"""

from collections.abc import Callable
from typing import Any

import jax
import lai_jax
import numpy as np
import optax

import lai_core as lai
from benchmarks import ruler
from tests.support.workloads.jax_models import gpt_neo, mlp, resnet
from tests.support.workloads.jax_parts import Model

KEPT = 0.5
HANDS = {"lai_cached": "hand", "lai_selective": "hand_selective"}
"""The same step without its scoring and checks, and where nothing is kept of a forward pass that scores."""
Work = tuple[Model, Any, Any]
"""A model, a training batch and a validation batch."""
Program = tuple[Callable[..., Any], tuple[Any, ...]]
"""A step and its arguments."""


def work(model: Model, samples: int, validation: int) -> Work:
    draw = np.random.default_rng(0)
    return model, model.batch(draw, samples), model.batch(draw, validation)


def resnet18() -> Work:
    """ResNet-18 with the 7x7/2 stem and max-pool on 32x32 images: 37 million multiply-adds an image."""
    stages = [(64, 64, 1), (64, 64, 1)]
    for width in (64, 128, 256):
        stages += [(width, 2 * width, 2), (2 * width, 2 * width, 1)]
    return work(resnet(stages, stem=7, side=32, classes=10), 128, 250)


def gpt_neo_small(samples: int = 16) -> Work:
    """GPT-Neo's shape, small: global and local attention in turn, tied head, layers unrolled."""
    return work(gpt_neo(256, heads=4, depth=4, length=128, vocabulary=2048, reach=32), samples, 2 * samples)


COSTED: dict[str, Callable[[], Work]] = {"resnet18": resnet18, "gpt_neo_small": gpt_neo_small}
TIMED: dict[str, Callable[[], Work]] = {
    "jax_mlp": lambda: work(mlp(784, 512, 512, 10, activation=jax.nn.relu), 128, 256),
    "jax_gpt": lambda: gpt_neo_small(8),
}


def steps(work: Work) -> dict[str, Program]:
    """Return each method's step and its arguments."""
    tx, (model, training, validation) = optax.sgd(1e-3), work
    half = len(training[1]) // 2

    def summarize(params: Any, inputs: Any, targets: Any) -> Any:
        trace = lai_jax.trace(model.apply, params, model.loss, inputs, targets)
        return lai.summarize(trace, "lai", positions="mean")

    def losses(params: Any, inputs: Any, targets: Any) -> Any:
        return model.loss(model.apply(params, inputs), targets)

    def plain(params: Any, state: Any, inputs: Any, targets: Any) -> tuple[Any, Any]:
        gradients = jax.grad(lambda params: losses(params, inputs, targets).mean())(params)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def policy(scores: Any) -> Any:
        return lai.keep_top(scores, KEPT)

    def curated(apply: Callable[..., Any]) -> Callable[..., Any]:
        return lai_jax.curated_update(apply, model.loss, tx, policy=policy, rows=KEPT)

    cached = curated(jax.checkpoint(model.apply))

    def by_hand(params: Any, state: Any, inputs: Any, targets: Any) -> Any:
        """Run the half of largest losses again."""
        rows = jax.lax.top_k(losses(params, inputs, targets), half)[1]
        return plain(params, state, inputs[rows], targets[rows])

    def selective_by_hand(params: Any, state: Any, inputs: Any, targets: Any) -> Any:
        """Forward on all rows, back on the first half."""
        after = plain(params, state, inputs[:half], targets[:half])
        return *after, losses(params, inputs[half:], targets[half:])

    start = model.params, tx.init(model.params)
    summary = jax.jit(summarize)(model.params, *validation)
    return {
        "plain": (plain, (*start, *training)),
        "half": (plain, (*start, *(each[:half] for each in training))),
        "lai_cached": (cached, (*start, summary, *training)),
        "lai_selective": (curated(model.apply), (*start, summary, *training)),
        "hand": (by_hand, (*start, *training)),
        "hand_selective": (selective_by_hand, (*start, *training)),
    }


def timed(work: Work, rounds: int) -> dict[str, dict[str, float | None]]:
    """Return each method's figures over a plain step's; without `rounds`, what is counted."""
    rows: dict[str, dict[str, float]] = {}
    calls = {}
    for name, (step, given) in steps(work).items():
        program = jax.jit(step).lower(*given).compile()
        memory = program.memory_analysis()
        sizes = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
        rows[name] = {"flops": float(program.cost_analysis()["flops"]), "memory": float(sizes)}
        rows[name] |= {"waits": 0, "launches": 1}
        calls[name] = lambda program=program, given=given: jax.block_until_ready(program(*given))
        calls[name]()
    return ruler.compare(rows, ruler.in_turn(calls, rounds), HANDS)
