"""What both frameworks read: of the last weight its last use, and of frozen layers nothing."""

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

import lai_core as lai
from tests.lai_jax.support import computed, gradients, kernel_error, stepped
from tests.lai_jax.support import cross_entropy as loss
from tests.support.torch_modules import Part

N, WIDTH, CLASSES = 5, 6, 4


def turned(first=None, last=None):
    def model(p, x, f):
        hidden = f.tanh(f.layer(x, p["E"].T, p.get(first)))
        return f.layer(f.tanh(f.layer(hidden, p["m"])), p["E"], p.get(last))

    return model


def twice(first=None, last=None):
    def model(p, x, f):
        hidden = f.tanh(f.layer(x, p["S"], p.get(first)))
        return f.layer(f.tanh(f.layer(hidden, p["Q"], p["c"])), p["S"], p.get(last))

    return model


def headed(weight, bias="b"):
    return lambda p, x, f: f.layer(f.tanh(f.layer(x, p["S"], p["c"])), weight(p), p.get(bias))


def embedded(p, x, f):
    return f.layer(f.tanh(f.layer(f.read(p["E"], x.argmax(1)), p["m"], p["d"])), p["E"], p["b"])


def chain(p, x, f):
    hidden = f.tanh(f.layer(x, p["S"], p["c"]))
    lost = f.stop(f.tanh(f.layer(hidden, p["lost"])))
    hidden = f.tanh(f.layer(hidden, p["Q"])) * p["g"] + lost
    return f.layer(hidden, p["F"], p["b"])


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
    "low rank": headed(lambda p: p["E"] @ p["m"][:, :CLASSES]),
    "of its bias": headed(lambda p: p["F"] * p["b"][:, None]),
    "without a bias": headed(lambda p: p["F"] * 2, None),
}
"""A last weight that is no parameter."""
FROZEN = {
    "none": "",
    "first": "S",
    "first and its bias": "S c",
    "middle": "Q",
    "last": "F",
    "last and its bias": "F b",
    "every layer that is read": "S c Q b F",
    "a bias": "b",
}
"""Parameters of a chain that do not train."""
MODELS = {name: (model, "") for name, model in (TIED | COMPUTED).items()}
MODELS |= {name: (chain, frozen) for name, frozen in FROZEN.items()}
MODELS["masked"] = headed(lambda p: p["F"] * p["mask"]), "mask"


def numbers():
    draw = np.random.default_rng(0)
    shapes = {"E": (CLASSES, WIDTH), "m": (WIDTH, WIDTH), "d": (WIDTH,)}
    shapes |= dict.fromkeys(("S", "Q", "F", "lost"), (CLASSES, CLASSES)) | dict.fromkeys("bceg", (CLASSES,))
    params = {name: draw.standard_normal(shape) for name, shape in shapes.items()}
    params["mask"] = np.eye(CLASSES)[::-1].copy()
    return params, draw.standard_normal((N, CLASSES)), np.arange(N) % CLASSES


def plain(hidden, weight, bias=None):
    return hidden @ weight.T if bias is None else hidden @ weight.T + bias


JAX = {"layer": plain, "tanh": jnp.tanh, "read": lambda table, ids: table[ids], "stop": lax.stop_gradient}
TORCH = {
    "layer": functional.linear,
    "tanh": torch.tanh,
    "read": lambda table, ids: functional.embedding(ids, table),
    "stop": torch.Tensor.detach,
}


def jax_model(name, how="captured"):
    """Return a function, its parameters and its loss: what is frozen is captured, or behind a stop."""
    (model, frozen), params = MODELS[name], jax.tree.map(jnp.asarray, numbers()[0])
    held = {key: params[key] for key in frozen.split()}
    if how == "stopped":
        stop = lambda p: p | lax.stop_gradient({key: p[key] for key in held})  # noqa: E731
        return (lambda p, x: model(stop(p), x, SimpleNamespace(**JAX))), params, loss
    trained = {key: value for key, value in params.items() if key not in held}
    return (lambda p, x: model(held | p, x, SimpleNamespace(**JAX))), trained, loss


def by_torch(name, mode):
    (model, frozen), (params, *batch) = MODELS[name], numbers()
    held = torch.nn.ParameterDict({key: torch.tensor(value) for key, value in params.items()})
    for key in frozen.split():
        held[key].requires_grad_(False)
    module = Part(lambda own, x: model(dict(own.held.items()), x, SimpleNamespace(**TORCH)), held=held)
    each = torch.nn.CrossEntropyLoss(reduction="none")
    return lai_torch.trace(module, each, *map(torch.from_numpy, batch), gradients=mode)


def expected(name):
    """Return LAI's and LLI's kernels by what layers are given and the gradients of the last one's outputs."""
    (model, frozen), (params, inputs, targets) = MODELS[name], jax.tree.map(jnp.asarray, numbers())
    unread = {id(params[key]) for key in (*frozen.split(), "lost")}
    alphas = []

    def losses(shift, last=None):
        def layer(hidden, weight, bias=None):
            biased = bias is not None and id(bias) not in unread
            own = lax.stop_gradient(hidden @ hidden.T) + biased
            alphas.append(0 * own if id(weight) in unread else own)
            return plain(hidden, weight, bias) + (shift if len(alphas) == last else 0)

        alphas.clear()
        return loss(model(params, inputs, SimpleNamespace(**JAX | {"layer": layer})), targets)

    losses(0)
    last = len(alphas)
    rows = jax.jacrev(lambda shift: losses(shift, last))(jnp.zeros(CLASSES))
    losses(0)
    beta = rows @ rows.T
    return sum(alphas) * beta, alphas[-1] * beta


@pytest.mark.parametrize("mode", ["output", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_adapters_score_the_weights_last_use(name, mode):
    model, batch = jax_model(name), numbers()[1:]
    traces = [computed(lai_jax.trace, *model, *batch, gradients=mode), by_torch(name, mode)]
    if MODELS[name][0] is chain:
        traces.append(computed(lai_jax.trace, *jax_model(name, "stopped"), *batch, gradients=mode))
    rows = gradients(*model, batch)
    for trace in traces:
        for kernel, wanted in zip((lai.lai_kernel, lai.lli_kernel), expected(name), strict=True):
            if kernel is lai.lai_kernel or (mode == "output" and wanted.any()):
                np.testing.assert_allclose(kernel(trace, trace), wanted, rtol=1e-9, atol=1e-12)
        if mode == "all":
            assert kernel_error(trace, rows) < 1e-10


@pytest.mark.parametrize("name", ["turned", "normed"])
def test_last_layer_updates_accept_shared_weights(name):
    batch = numbers()[1:]
    report = stepped(jax_model(name), batch, batch, estimator="lli")[-1]
    np.testing.assert_allclose(report.scores, expected(name)[1].sum(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "name", "reading"),
    [
        ("lli", "last", "the estimator reads the last layer alone"),
        ("lai", "every layer that is read", "the estimator reads layers"),
        ("calibrated_lai", "every layer that is read", "the estimator reads layers"),
    ],
)
def test_all_zero_scores_are_refused(estimator, name, reading):
    with pytest.raises(ValueError, match=rf"expected a layer that trains, got a frozen one.*{reading}"):
        computed(lai_jax.summarize, *jax_model(name), *numbers()[1:], estimator=estimator)


def test_scores_vanish_without_reachable_parameters(monkeypatch):
    monkeypatch.setitem(MODELS, "nothing", (chain, "S c Q b F g"))
    model = jax_model("nothing", "stopped")
    trace = computed(lai_jax.trace, *model, *numbers()[1:])
    assert not lai.lai_kernel(trace, trace).any()
    assert lai_jax.coverage(*model, *numbers()[1:]).fraction == 1.0
