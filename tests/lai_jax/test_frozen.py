"""LAI stands for Ghost over what trains: of frozen layers it reads the last one's output gradients alone."""

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
from tests.lai_jax.support import computed, cross_entropy, gradients, kernel_error
from tests.support.torch_modules import Part

N, CLASSES = 5, 3
SHAPES = {"a": (6, 4), "ab": (6,), "b": (6, 6), "c": (CLASSES, 6), "cb": (CLASSES,), "d": (6, 6), "g": (6,)}
FROZEN = {
    "none": "",
    "first": "a",
    "first, but its bias": "a ab",
    "middle": "b",
    "last": "c",
    "last and its bias": "c cb",
    "every layer that is read": "a ab b cb c",
    "a bias": "cb",
}
"""Which parameters are frozen; `d` trains, and its layer reaches no loss."""


def chain(p, x, f):
    hidden = f.tanh(f.layer(x, p["a"], p["ab"]))
    lost = f.stop(f.tanh(f.layer(hidden, p["d"])))
    hidden = f.tanh(f.layer(hidden, p["b"])) * p["g"] + lost
    return f.layer(hidden, p["c"], p["cb"])


def numbers():
    draw = np.random.default_rng(0)
    params = {name: draw.standard_normal(shape) for name, shape in SHAPES.items()}
    return params, draw.standard_normal((N, 4)), np.arange(N) % CLASSES


def plain(hidden, weight, bias=None):
    return hidden @ weight.T if bias is None else hidden @ weight.T + bias


JAX = SimpleNamespace(layer=plain, tanh=jnp.tanh, stop=lax.stop_gradient)
TORCH = SimpleNamespace(layer=functional.linear, tanh=torch.tanh, stop=torch.Tensor.detach)


def frozen_model(frozen, how):
    """Return a function and its parameters, of which some are captured, or behind `stop_gradient`."""
    params = {name: jnp.asarray(value) for name, value in numbers()[0].items()}
    held = {name: params[name] for name in frozen}
    if how == "captured":
        trained = {name: value for name, value in params.items() if name not in held}
        return (lambda p, x: chain(held | p, x, JAX)), trained
    return (lambda p, x: chain(p | lax.stop_gradient({name: p[name] for name in held}), x, JAX)), params


def expected(frozen):
    """Return LAI's kernel by each sample's inputs of layers, and the gradient of its loss at the last one."""
    params, inputs, targets = jax.tree.map(jnp.asarray, numbers())
    names = {id(value): name for name, value in params.items()}
    found = []
    for row, target in zip(inputs, targets, strict=True):
        read = {}

        def single(shift, row=row, target=target, read=read):
            def layer(hidden, weight, bias=None):
                name = names[id(weight)]
                biased = bias is not None and names[id(bias)] not in frozen
                read[name] = jnp.append(lax.stop_gradient(hidden), float(biased))
                return plain(hidden, weight, bias) + (shift if name == "c" else 0)

            own = SimpleNamespace(layer=layer, tanh=jnp.tanh, stop=lax.stop_gradient)
            return cross_entropy(chain(params, row[None], own)[0], target)

        beta = jax.grad(single)(jnp.zeros(CLASSES))
        found.append(
            (np.concatenate([*(read[name] for name in "abc" if name not in frozen), np.zeros(1)]), beta)
        )
    alphas, betas = (np.stack(parts) for parts in zip(*found, strict=True))
    return (alphas @ alphas.T) * (betas @ betas.T), betas


@pytest.mark.parametrize("mode", ["output", "all"])
@pytest.mark.parametrize("how", ["captured", "stopped"])
@pytest.mark.parametrize("name", FROZEN)
def test_only_trained_layers_inputs_are_read(name, how, mode):
    frozen = FROZEN[name].split()
    model = *frozen_model(frozen, how), cross_entropy
    trace = computed(lai_jax.trace, *model, *numbers()[1:], gradients=mode)
    kernel, betas = expected(frozen)
    np.testing.assert_allclose(lai.lai_kernel(trace, trace), kernel, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(trace.layers[-1].output_gradients, betas, rtol=1e-10)
    if mode == "all":
        assert kernel_error(trace, gradients(*model, numbers()[1:])) < 1e-12


@pytest.mark.parametrize("name", FROZEN)
def test_torch_reads_the_same(name):
    frozen, (params, *batch) = FROZEN[name].split(), numbers()
    held = torch.nn.ParameterDict({key: torch.tensor(value) for key, value in params.items()})
    for key in frozen:
        held[key].requires_grad_(False)
    module = Part(lambda own, inputs: chain(dict(own.held.items()), inputs, TORCH), held=held)
    each = torch.nn.CrossEntropyLoss(reduction="none")
    by_torch = lai_torch.trace(module, each, *map(torch.from_numpy, batch))
    by_jax = computed(lai_jax.trace, *frozen_model(frozen, "captured"), cross_entropy, *batch)
    assert len(by_jax.layers) == len(by_torch.layers)
    for left, right in zip(by_jax.layers, by_torch.layers, strict=True):
        np.testing.assert_allclose(left.activations, right.activations, rtol=1e-10, atol=1e-12)
    kernels = (lai.lai_kernel(trace, trace) for trace in (by_jax, by_torch))
    np.testing.assert_allclose(*kernels, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "name", "reading"),
    [
        ("lli", "last", "LLI scores the last layer alone"),
        ("lai", "every layer that is read", "LAI reads layers"),
        ("calibrated_lai", "every layer that is read", "LAI reads layers"),
    ],
)
def test_all_zero_scores_are_refused(estimator, name, reading):
    model = *frozen_model(FROZEN[name].split(), "captured"), cross_entropy
    with pytest.raises(ValueError, match=rf"expected a layer that trains, got a frozen one.*{reading}"):
        computed(lai_jax.summarize, *model, *numbers()[1:], estimator=estimator)


def test_scores_vanish_without_reachable_parameters():
    frozen = [name for name in SHAPES if name != "d"]
    trace = computed(lai_jax.trace, *frozen_model(frozen, "stopped"), cross_entropy, *numbers()[1:])
    assert not lai.lai_kernel(trace, trace).any()
    assert lai_jax.coverage(*frozen_model(frozen, "stopped"), cross_entropy, *numbers()[1:]).fraction == 1.0
