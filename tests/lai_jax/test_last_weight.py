"""The last layer's gradient is that of its last use, by the weight and bias that the samples meet there."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import lai_jax
import lai_torch
import numpy as np
import pytest
import torch
from torch.nn import functional

import lai_core as lai
from tests.lai_jax.support import computed, gradients, kernel_error, stepped
from tests.lai_jax.support import cross_entropy as loss
from tests.support.torch_modules import Part

N, WIDTH, CLASSES = 5, 6, 4
MASK = np.eye(CLASSES)[::-1].copy()


def turned(first=None, last=None):
    """Return a model that uses one matrix either way, with these biases."""

    def model(p, x, f):
        hidden = f.tanh(f.layer(x, p["E"].T, p.get(first)))
        return f.layer(f.tanh(f.layer(hidden, p["m"])), p["E"], p.get(last))

    return model


def twice(first=None, last=None):
    """Return a model that uses one matrix twice, with these biases."""

    def model(p, x, f):
        hidden = f.tanh(f.layer(x, p["S"], p.get(first)))
        return f.layer(f.tanh(f.layer(hidden, p["Q"], p["c"])), p["S"], p.get(last))

    return model


def headed(weight, bias="b"):
    """Return a model whose last weight is computed from parameters."""
    return lambda p, x, f: f.layer(f.tanh(f.layer(x, p["S"], p["c"])), weight(p), p.get(bias))


def embedded(p, x, f):
    return f.layer(f.tanh(f.layer(f.read(p["E"], x.argmax(1)), p["m"], p["d"])), p["E"], p["b"])


TIED = {
    "an embedding": embedded,
    "turned": turned(None, "b"),
    "turned, a bias below": turned("d", None),
    "turned, two biases": turned("d", "b"),
    "twice": twice(None, "b"),
    "two biases": twice("e", "b"),
    "one bias": twice("b", "b"),
    "a bias of two": twice(None, "c"),
}
"""A last matrix that an earlier layer uses, too."""
COMPUTED = {
    "normed": headed(lambda p: p["g"][:, None] * p["F"] / (p["F"] ** 2).sum(1)[:, None] ** 0.5),
    "masked": headed(lambda p: p["F"] * p["mask"]),
    "low rank": headed(lambda p: p["E"] @ p["m"][:, :CLASSES]),
    "of its bias": headed(lambda p: p["F"] * p["b"][:, None]),
    "without a bias": headed(lambda p: p["F"] * 2, None),
}
"""A last weight that is no parameter."""
MODELS = TIED | COMPUTED


def numbers():
    draw = np.random.default_rng(0)
    shapes = {"E": (CLASSES, WIDTH), "m": (WIDTH, WIDTH), "d": (WIDTH,)}
    shapes |= dict.fromkeys("SQF", (CLASSES, CLASSES)) | dict.fromkeys("bceg", (CLASSES,))
    params = {name: draw.standard_normal(shape) for name, shape in shapes.items()}
    return params, draw.standard_normal((N, CLASSES)), np.arange(N) % CLASSES


def plain(hidden, weight, bias=None):
    return hidden @ weight.T if bias is None else hidden @ weight.T + bias


JAX = SimpleNamespace(layer=plain, tanh=jnp.tanh, read=lambda table, ids: table[ids])
TORCH = SimpleNamespace(
    layer=functional.linear, tanh=torch.tanh, read=lambda table, ids: functional.embedding(ids, table)
)


def jax_model(model):
    return lambda p, x: model({**p, "mask": MASK}, x, JAX)


def traced(model, mode):
    """Trace a model in both frameworks."""
    params, *batch = numbers()
    yield computed(lai_jax.trace, jax_model(model), params, loss, *batch, gradients=mode)

    def forward(own, inputs):
        return model({**dict(own.held.items()), "mask": own.mask}, inputs, TORCH)

    held = torch.nn.ParameterDict({key: torch.tensor(value) for key, value in params.items()})
    each = torch.nn.CrossEntropyLoss(reduction="none")
    module = Part(forward, held=held, mask=torch.from_numpy(MASK))
    yield lai_torch.trace(module, each, *map(torch.from_numpy, batch), gradients=mode)


def expected(model):
    """Return LAI's and LLI's kernels by what layers are given and the gradients of the last one's outputs."""
    params, inputs, targets = jax.tree.map(jnp.asarray, numbers())
    alphas = []

    def losses(shift, last=None):
        def layer(hidden, weight, bias=None):
            alphas.append(jax.lax.stop_gradient(hidden @ hidden.T) + (bias is not None))
            return plain(hidden, weight, bias) + (shift if len(alphas) == last else 0)

        alphas.clear()
        own = SimpleNamespace(layer=layer, tanh=JAX.tanh, read=JAX.read)
        return loss(model({**params, "mask": MASK}, inputs, own), targets)

    losses(0)
    last = len(alphas)
    rows = jax.jacrev(lambda shift: losses(shift, last))(jnp.zeros(CLASSES))
    losses(0)
    beta = rows @ rows.T
    return sum(alphas) * beta, alphas[-1] * beta


@pytest.mark.parametrize("mode", ["output", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_adapters_score_the_weights_last_use(name, mode):
    params, *batch = numbers()
    rows = gradients(jax_model(MODELS[name]), params, loss, batch)
    for trace in traced(MODELS[name], mode):
        for kernel, wanted in zip((lai.lai_kernel, lai.lli_kernel), expected(MODELS[name]), strict=True):
            if mode == "output" or kernel is lai.lai_kernel:
                np.testing.assert_allclose(kernel(trace, trace), wanted, rtol=1e-9, atol=1e-12)
        if mode == "all":
            assert kernel_error(trace, rows) < 1e-10


@pytest.mark.parametrize("name", ["turned", "normed"])
def test_last_layer_updates_accept_shared_weights(name):
    params, *batch = numbers()
    report = stepped((jax_model(MODELS[name]), params, loss), tuple(batch), batch, estimator="lli")[-1]
    np.testing.assert_allclose(report.scores, expected(MODELS[name])[1].sum(0), rtol=1e-9, atol=1e-12)
