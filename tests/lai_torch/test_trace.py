"""Traces: exact over every kind of layer and parameter, refusing by name, leaving nothing behind."""

import functools
import gc
import weakref

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import lai_core as lai
from tests.lai_torch.support import LOSS, batch, curated, labels, network, randn, recurrent
from tests.support.torch_modules import Part
from tests.support.torch_programs import program
from tests.support.workloads import torch_exactness, torch_models
from tests.support.workloads.torch_oracle import exact_kernel

# the whole ResNet-18 is in the benchmark; it takes as long as all others
ARCHITECTURES = sorted(set(torch_models.MODELS) - {"resnet18_32"})
N = 4


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_are_exact(name):
    found = torch_exactness.measure(torch_models.MODELS[name])
    assert found["relative_error"] <= torch_exactness.bound(name)
    assert found["coverage"] == 1.0


@pytest.mark.parametrize("gradients", ["output", "all"])
def test_traces_need_no_collector(gradients):
    """A trace may hold most of a device's memory: no circle keeps it for a later collection."""
    model, given = network(), batch(N, 4)
    lai_torch.trace(model, LOSS, *given, gradients=gradients)  # which may import and cache
    gc.disable()
    try:
        trace = lai_torch.trace(model, LOSS, *given, gradients=gradients)
        held = weakref.ref(trace.layers[-1].output_gradients)
        del trace
        assert held() is None
    finally:
        gc.enable()


def test_curators_keep_no_model():
    """The compiler keeps its back ends as long as the process lives."""
    model, given = network(), batch(8, 4)
    curated(model, given, backward="selective").step(*given)
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None


def test_too_many_bytes_are_refused(monkeypatch):
    monkeypatch.setattr("lai_torch._graph.assemble.GRADIENT_BUDGET", 100)
    one = program(1, made_of=("hidden", "linear", "cross_entropy", "mean", ""))
    given, words = (
        (one.model, one.loss, *one.training),
        r"explain 'parts\.0\.w' \(used by ruled; its per-sample gradients take 1440 bytes",
    )
    with pytest.raises(ValueError, match=words):
        lai_torch.trace(*given, gradients="all")
    made = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))).double()
    with pytest.raises(
        ValueError, match=r"explain '0.parametrizations.weight.original1' .*gradients take \d+ bytes of 100"
    ):
        lai_torch.trace(made, LOSS, *batch(N, 4), gradients="all")
    partial = lai_torch.trace(*given, gradients="all", partial=True)
    assert [layer.name for layer in partial.layers if layer.weight] == ["parts.1", "head.layer"]


def halved(layer):
    return prune.custom_from_mask(layer, "weight", torch.full_like(layer.weight, 0.5))


@pytest.mark.parametrize("make", [weight_norm, spectral_norm, halved])
@pytest.mark.parametrize("alive", [[1, 0], [0, 1]])
def test_weights_one_sample_alone_reaches(make, alive):
    first = nn.Linear(4, 6, bias=False)
    nn.init.uniform_(first.weight, 0.1, 1.0)
    model = nn.Sequential(make(first), nn.ReLU(), nn.Linear(6, 3)).double().eval()
    inputs = (1 + randn(len(alive), 4).abs()) * (2 * torch.tensor(alive)[:, None] - 1)
    trace = lai_torch.trace(model, LOSS, inputs, labels(len(alive)))  # of what it leaves out it warns
    assert [layer.activations.shape[1:] for layer in trace.layers] == [(4,), (6,)]


def test_pairs_of_matrices_end_no_trace():
    """Ghost explains their parameter; no row is multiplied with a matrix of its own, nor all with one."""

    def by_head(own, x):
        hidden = torch.tanh(own.part(x)).view(len(x), 4, 5).transpose(0, 1)
        return torch.bmm(hidden, own.last[:, None].expand(2, 2, 5, 3).reshape(4, 5, 3)).tanh().mean(0)

    model = Part(by_head, part=nn.Linear(4, 20), last=nn.Parameter(randn(2, 5, 3))).double()
    given = batch(6, 4)
    with pytest.raises(ValueError, match="layer 'last': expected a last layer whose rows LAI and LLI"):
        lai_torch.trace(model, LOSS, *given)
    trace = lai_torch.trace(model, LOSS, *given, gradients="all")
    close = functools.partial(torch.testing.assert_close, rtol=1e-11, atol=1e-13)
    close(lai.ghost_kernel(trace, trace), exact_kernel(model, LOSS, *given, 6))


def test_matrices_without_readout_are_named():
    words = r"'memory.weight_ih_l0' \(used by torch.nn.GRU\); 'memory.weight_hh_l0' .*, and leaves"
    with pytest.warns(UserWarning, match=f"LAI has no readout from the input of {words}"):
        found = lai_torch.trace(recurrent(), LOSS, torch.randn(N, 7, 4), labels(N))
    assert [layer.name for layer in found.layers] == ["head"]


def test_compiled_models_stay_compiled():
    calls = []

    def backend(graph, _):
        calls.append(1)
        return graph.forward

    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    inputs = randn(N, 4)
    for compiled in (torch.compile(model, backend=backend), model):
        if compiled is model:
            model.compile(backend=backend)
        compiled(inputs)
        before = len(calls)
        trace = lai_torch.trace(compiled, LOSS, inputs, labels(N), gradients="all")
        expected = exact_kernel(nn.Sequential(*model), LOSS, inputs, labels(N), N)
        torch.testing.assert_close(lai.ghost_kernel(trace, trace), expected)
        compiled(inputs)
        assert len(calls) == before


def test_coverage_names_frozen_parameters():
    model = recurrent().double()
    model.head.bias.requires_grad_(False)
    found = lai_torch.coverage(model, LOSS, randn(N, 5, 4), labels(N))
    kinds = {"weight": ("dense",), "bias": ("bias",)}
    named = [name for name, _ in model.named_parameters() if "memory" in name]
    memory = {name: kinds[name.split(".")[1].split("_")[0]] for name in named}
    assert found.explained == {"head.weight": ("dense",)} | memory
    assert found.frozen == ("head.bias",)
    assert found.parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert found.fraction == 1.0
    assert found.unexplained == {}
