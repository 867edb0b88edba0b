"""Batches over sources for loops in JAX: their order, resumed, behind grain, and by a jitted update."""

import re
from pathlib import Path

import grain
import jax
import numpy as np
from lai_jax import MixtureBatches

from lai_core.mixtures import Mixture

GROUPS = [0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 1, 2]
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "sources.md"


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
