"""The same weights give the same scores in both frameworks."""

import functools

import jax.numpy as jnp
import lai_jax
import lai_torch
import numpy as np
import pytest
import torch

from tests.lai_jax.support import run_compiled, stepped
from tests.lai_torch.support import drawn_sketch
from tests.support.workloads.pairs import PAIRS

NAMED = {"lai": lai_torch.LAI, "lli": lai_torch.LLI, "ghost": lai_torch.Ghost, "exact": lai_torch.Exact}
NAMED |= {"gate_lai": lai_torch.GateLAI, "calibrated_lai": lai_torch.CalibratedLAI}
CASES = [
    *((name, estimator, {}) for name in PAIRS for estimator in ("lai", "lli", "ghost")),
    ("mlp", "gate_lai", {}),
    ("mlp", "calibrated_lai", {}),
    ("mlp", "exact", {}),
    ("cnn", "calibrated_lai", {}),
    ("gpt", "lai", {"sketch": 4, "positions": "flatten"}),
    ("gpt", "calibrated_lai", {"sketch": 3}),
    ("gpt", "calibrated_lai", {"positions": "flatten"}),
    ("gpt", "exact", {}),
    ("gpt", "lai", {"sketch": 4}),
    *(("gpt", "calibrated_lai", {"positions": name}) for name in ("tokens", "mean")),
]


@pytest.mark.parametrize(("name", "estimator", "options"), CASES)
def test_curated_steps_agree(name, estimator, options):
    pair = PAIRS[name]()
    validation, batch = pair.batches
    curator = lai_torch.Curator(
        pair.module,
        pair.torch_loss,
        None,
        tuple(map(torch.from_numpy, validation)),
        estimator=NAMED[estimator](**options),
        generator=torch.Generator().manual_seed(1),
    )
    weights, by_torch = curator.score(*map(torch.from_numpy, batch))
    seed, sketch = curator.state.side.sketch, None
    if seed is not None:
        outputs = pair.module(torch.from_numpy(batch[0])).logits.shape[-1]
        drawn = drawn_sketch(seed, outputs)
        sketch = lai_jax.Sketch(*(jnp.asarray(part.numpy()) for part in drawn), options["sketch"])
    model = pair.apply, pair.params, pair.jax_loss
    how = {"estimator": estimator, "positions": options.get("positions"), "sketch": sketch}
    if estimator == "calibrated_lai":
        how["calibration"] = len(batch[1])  # as the curator calibrates
    given = run_compiled(functools.partial(lai_jax.summarize, *model, **how), *map(jnp.asarray, validation))
    by_jax = stepped(model, given, tuple(map(jnp.asarray, batch)), estimator=estimator)[2]
    np.testing.assert_allclose(by_jax.scores, by_torch.scores.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_jax.weights, weights.numpy(), rtol=1e-12)
    if estimator == "calibrated_lai":
        np.testing.assert_allclose(given.layer_weights, by_torch.layer_weights.numpy(), rtol=1e-9)
