"""The same weights give the same scores in both frameworks."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import lai_jax
import lai_torch
import numpy as np
import pytest
import torch
from jax import lax
from torch.nn import functional

from tests.lai_jax import test_last_weight as written
from tests.lai_jax.support import cross_entropy, run_compiled, stepped
from tests.lai_torch.support import drawn_sketch
from tests.support.torch_modules import Part

NAMED = {"lai": lai_torch.LAI, "lli": lai_torch.LLI, "ghost": lai_torch.Ghost, "exact": lai_torch.Exact}
NAMED |= {"gate_lai": lai_torch.GateLAI, "calibrated_lai": lai_torch.CalibratedLAI}
CASES = [
    *(("vectors", estimator, {}) for estimator in NAMED),
    *((name, estimator, {}) for name in ("maps", "tokens") for estimator in NAMED if estimator != "gate_lai"),
    ("tokens", "lai", {"sketch": 4, "positions": "flatten"}),
    ("tokens", "calibrated_lai", {"sketch": 3}),
    ("tokens", "lai", {"sketch": 4}),
    *(("tokens", "calibrated_lai", {"positions": name}) for name in ("flatten", "tokens", "mean")),
]


def convolve(maps, kernel, bias, groups):
    options = {"feature_group_count": groups, "dimension_numbers": ("NCHW", "OIHW", "NCHW")}
    return lax.conv_general_dilated(maps, kernel, (2, 1), "VALID", **options) + bias[:, None, None]


def convolve_torch(maps, kernel, bias, groups):
    """Convolve once with torch's own bias, once with one that is added to the maps."""
    if groups > 1:
        return functional.conv2d(maps, kernel, bias, (2, 1), groups=groups)
    return functional.conv2d(maps, kernel, None, (2, 1)) + bias[:, None, None]


JAX = SimpleNamespace(**written.JAX, convolve=convolve)
TORCH = SimpleNamespace(**written.TORCH, convolve=convolve_torch)


def vectors(p, x, f):
    return f.layer(f.tanh(f.layer(f.tanh(f.layer(x, p["a"], p["b"])), p["c"], p["d"])), p["e"], p["f"])


def maps(p, x, f):
    """Apply two convolutions, one of them grouped, and a head to the mean of their maps."""
    found = f.tanh(f.convolve(x, p["k"], p["g"], 2))
    return f.layer(f.tanh(f.convolve(found, p["l"], p["d"], 1)).mean((2, 3)), p["e"], p["f"])


def tokens(p, ids, f):
    """Read tokens, and predict others by the table that they are read from."""
    return f.layer(f.tanh(f.layer(f.read(p["table"], ids), p["c"], p["d"])), p["table"])


MODELS = {"vectors": (vectors, "abcdef"), "maps": (maps, "kgldef"), "tokens": (tokens, ("table", "c", "d"))}
SHAPES = {"a": (9, 6), "b": (9,), "c": (9, 9), "d": (9,), "e": (3, 9), "f": (3,), "table": (11, 9)}
SHAPES |= {"k": (6, 2, 3, 3), "g": (6,), "l": (9, 6, 2, 2)}


def drawn(name):
    draw = np.random.default_rng(0)
    params = {each: 0.5 * draw.standard_normal(SHAPES[each]) for each in MODELS[name][1]}
    if name == "tokens":
        return params, [tuple(draw.integers(0, 11, (2, n, 6))) for n in (5, 4)]
    shape = (6,) if name == "vectors" else (4, 8, 7)
    return params, [(draw.standard_normal((n, *shape)), draw.integers(0, 3, n)) for n in (5, 4)]


def torch_loss(outputs, targets):
    losses = functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    return losses.reshape(len(targets), -1).sum(1)


def jax_loss(outputs, targets):
    return cross_entropy(outputs, targets).reshape(len(targets), -1).sum(1)


@pytest.mark.parametrize(("name", "estimator", "options"), CASES)
def test_curated_steps_agree(name, estimator, options):
    (model, _), (params, (validation, batch)) = MODELS[name], drawn(name)
    held = torch.nn.ParameterDict({key: torch.tensor(value) for key, value in params.items()})
    curator = lai_torch.Curator(
        Part(lambda own, x: model(dict(own.held.items()), x, TORCH), held=held),
        torch_loss,
        None,
        tuple(map(torch.from_numpy, validation)),
        estimator=NAMED[estimator](**options),
        generator=torch.Generator().manual_seed(1),
    )
    weights, by_torch = curator.score(*map(torch.from_numpy, batch))
    seed, sketch = curator.state.side.sketch, None
    if seed is not None:
        parts = (jnp.asarray(part.numpy()) for part in drawn_sketch(seed, len(params["table"])))
        sketch = lai_jax.Sketch(*parts, options["sketch"])
    own = (lambda p, x: model(p, x, JAX)), jax.tree.map(jnp.asarray, params), jax_loss
    how = {"estimator": estimator, "positions": options.get("positions"), "sketch": sketch}
    if estimator == "calibrated_lai":
        how["calibration"] = len(batch[1])  # as the curator calibrates
    given = run_compiled(functools.partial(lai_jax.summarize, *own, **how), *map(jnp.asarray, validation))
    by_jax = stepped(own, given, tuple(map(jnp.asarray, batch)), estimator=estimator)[2]
    np.testing.assert_allclose(by_jax.scores, by_torch.scores.numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(by_jax.weights, weights.numpy(), rtol=1e-12)
    if estimator == "calibrated_lai":
        np.testing.assert_allclose(given.layer_weights, by_torch.layer_weights.numpy(), rtol=1e-9)
