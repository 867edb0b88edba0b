"""The last layer's gradient is that of its last use, by the weight and bias that the samples meet there."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import lai_jax
import lai_torch
import numpy as np
import optax
import pytest
import torch
from torch.nn import functional

import lai_core as lai
from tests.lai_jax.support import cross_entropy as loss

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


class TorchModel(torch.nn.Module):
    def __init__(self, model, params):
        super().__init__()
        self.model = model
        self.held = torch.nn.ParameterDict({key: torch.tensor(value) for key, value in params.items()})
        self.register_buffer("mask", torch.from_numpy(MASK))

    def forward(self, inputs):
        given = {**dict(self.held.items()), "mask": self.mask}
        return self.model(given, inputs, TORCH)


def traced(model, gradients):
    """Trace a model in both frameworks."""
    params, inputs, targets = numbers()
    own = jax.tree.map(jnp.asarray, (params, inputs, targets))
    yield lai_jax.trace(jax_model(model), own[0], loss, *own[1:], gradients=gradients)

    def torch_loss(outputs, targets):
        return functional.cross_entropy(outputs, targets, reduction="none")

    batch = torch.from_numpy(inputs), torch.from_numpy(targets)
    yield lai_torch.trace(TorchModel(model, params), torch_loss, *batch, gradients=gradients)


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
    gradients = jax.jacrev(lambda shift: losses(shift, last))(jnp.zeros(CLASSES))
    losses(0)
    beta = gradients @ gradients.T
    return sum(alphas) * beta, alphas[-1] * beta


@pytest.mark.parametrize("name", [*TIED, *COMPUTED])
def test_both_adapters_score_the_last_use_of_the_weight_that_is_met_there(name):
    model = (TIED | COMPUTED)[name]
    for trace in traced(model, "output"):
        for kernel, wanted in zip((lai.lai_kernel, lai.lli_kernel), expected(model), strict=True):
            np.testing.assert_allclose(kernel(trace, trace), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [*TIED, *COMPUTED])
def test_all_gradients_leave_lai_what_it_is_and_ghost_exact(name):
    model = (TIED | COMPUTED)[name]
    params, inputs, targets = jax.tree.map(jnp.asarray, numbers())
    own = jax.jacrev(lambda params: loss(jax_model(model)(params, inputs), targets))(params)
    rows = jnp.concatenate([one.reshape(N, -1) for one in own.values()], 1)
    for trace in traced(model, "all"):
        np.testing.assert_allclose(lai.ghost_kernel(trace, trace), rows @ rows.T, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(lai.lai_kernel(trace, trace), expected(model)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["turned", "normed"])
def test_an_update_by_the_last_layer_alone_takes_them(name):
    model, (params, *batch) = jax_model((TIED | COMPUTED)[name]), jax.tree.map(jnp.asarray, numbers())
    update = lai_jax.curated_update(model, loss, optax.sgd(0.1), estimator="lli")
    summary = lai_jax.summarize(model, params, loss, *batch, estimator="lli")
    report = update(params, optax.sgd(0.1).init(params), summary, *batch)[-1]
    wanted = expected((TIED | COMPUTED)[name])[1].sum(0)
    np.testing.assert_allclose(report.scores, wanted, rtol=1e-9, atol=1e-12)
