"""Batches over sources for loops in JAX: their order, resumed, behind grain, and by a jitted update."""

import json
import re
from pathlib import Path

import grain
import jax
import jax.numpy as jnp
import numpy as np
from lai_jax import MixtureBatches

from lai_core.mixtures import Mixture, group_scores, initial_mixture, update_mixture

GROUPS = [0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 1, 2]
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "sources.md"


def jitted_run(batches, state, steps, saved=None):
    """Draw by the weights of a jitted update; return the batches, and what a checkpoint after one holds."""
    update, drawn, kept = jax.jit(update_mixture), [], None
    count = len(state.weights)
    for step in range(steps):
        batches.weights = state.weights
        rows = next(batches)
        drawn.append(rows.tolist())
        groups = jnp.array(GROUPS)[rows]
        state = update(state, *group_scores(jnp.cos(rows + 0.5) + groups, groups, count))
        if step == saved:
            kept = state, json.dumps(batches.state_dict())
    return drawn, kept, state


def test_jitted_loops_match_mixtures_and_resume():
    drawn, (state, saved), last = jitted_run(
        MixtureBatches(GROUPS, [1, 1, 1], 16, seed=3), initial_mixture(jnp.ones(3)), 9, saved=3
    )
    mixture = Mixture(3)
    batches = MixtureBatches(GROUPS, mixture, 16, seed=3)
    for expected in drawn:
        rows = next(batches)
        assert rows.tolist() == expected
        groups = np.array(GROUPS)[rows]
        mixture.step(*group_scores(np.cos(rows + 0.5) + groups, groups, 3))
    np.testing.assert_allclose(last.weights, mixture.weights, rtol=1e-5)
    assert max(mixture.weights) > 0.5
    resumed = MixtureBatches(GROUPS, [1, 1, 1], 16)
    resumed.load_state_dict(json.loads(saved))
    assert jitted_run(resumed, state, 5)[0] == drawn[4:]


def test_grain_recipe_maps_and_saves_batches():
    cells = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (recipe,) = (cell for cell in cells if "grain" in cell)
    mixture = Mixture(3)
    data = grain.MapDataset.range(12).map(lambda k: {"x": np.float32(k), "group": GROUPS[k]})

    def loaded():
        names = {"grain": grain, "jax": jax, "np": np, "data": data}
        names["batches"] = MixtureBatches(GROUPS, mixture, 4, seed=2)
        exec(compile(recipe, PAGE.name, "exec"), names)
        return names["loader"]

    plain, loader = MixtureBatches(GROUPS, mixture, 4, seed=2), loaded()
    for _ in range(3):
        assert next(loader)["x"].tolist() == next(plain).tolist()
    mixture.step(np.array([5.0, 0.0, -5.0]), np.full(3, 0.01))  # the next batch follows
    assert next(loader)["x"].tolist() == next(plain).tolist()
    resumed = loaded()
    resumed.set_state(loader.get_state())
    for _ in range(3):
        assert next(resumed)["x"].tolist() == next(loader)["x"].tolist() == next(plain).tolist()
