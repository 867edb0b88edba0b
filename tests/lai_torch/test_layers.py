"""Every kind of layer, and where samples and positions may lie: exact, or refused by name."""

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.exact_support import LOSS, N, check_exact, labels, randn
from tests.support.torch_modules import held, holding
from workloads import torch_exactness, torch_models, transformer_models
from workloads.torch_oracle import exact_kernel
from workloads.torch_parts import doubled

# the whole ResNet-18 is in the benchmark; its layers are in cnn_groups and residual
ARCHITECTURES = sorted(set(torch_models.MODELS) - {"resnet18_32"})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_are_exact_over_all_parameters(name):
    found = torch_exactness.measure(torch_models.MODELS[name])
    assert found["relative_error"] <= torch_exactness.bound(name)
    assert found["coverage"] == 1.0


def test_a_scored_summary_of_chunks_is_the_kernel_summed():
    case = doubled(transformer_models.gpt2())
    trace = lai_torch.trace(case.model, case.loss, case.inputs, case.targets, gradients="all")
    parts = [
        lai_torch.trace(
            case.model,
            case.loss,
            {k: v[part] if isinstance(v, torch.Tensor) else v for k, v in case.inputs.items()},
            case.targets[part],
            gradients="all",
        )
        for part in (slice(0, 3), slice(3, 4))
    ]
    scores = lai.ghost_scores(lai.summarize(parts, "ghost"), trace)
    torch.testing.assert_close(scores, lai.ghost_kernel(trace, trace).sum(0), rtol=1e-9, atol=1e-9)


def test_autocast_inside_is_followed():
    @holding(lambda: held(body=nn.Linear(8, 16), head=nn.Linear(16, 3)))
    def cast(own, inputs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = torch.relu(own.body(inputs))
        return own.head(hidden.float())

    inputs = torch.randn(N, 8)
    with pytest.warns(UserWarning, match="switches on autocast"):
        check_exact(cast(), inputs, tolerance=0.05)


def test_a_compiled_model_is_traced_eagerly_and_stays_compiled():
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
        trace = lai_torch.trace(compiled, LOSS, inputs, labels(), gradients="all")
        expected = exact_kernel(nn.Sequential(*model), LOSS, inputs, labels(), N)
        torch.testing.assert_close(lai.ghost_kernel(trace, trace), expected)
        compiled(inputs)
        assert len(calls) == before


def test_a_later_batch_whose_shapes_are_ambiguous_is_scored_as_the_first():
    @holding(lambda: held(body=nn.Linear(3, 5), merged=nn.Linear(5, 5), head=nn.Linear(5, 3)))
    def backwards(own, inputs):
        hidden = torch.tanh(own.body(inputs.transpose(0, 1)))
        merged = torch.tanh(own.merged(hidden.reshape(-1, 5))).reshape(hidden.shape)
        return own.head(merged.mean(0))

    model, big, small = backwards().double(), randn(7, N, 3), randn(N, N, 3)
    for estimator, function in (("lai", lai.lai_scores), ("ghost", lai.ghost_scores)):
        curator = lai_torch.Curator(model, LOSS, None, (big, labels(7)), estimator=estimator)
        _, report = curator.score(small, labels())
        sides = [
            lai_torch.trace(model, LOSS, *side, gradients="all")
            for side in ((big, labels(7)), (small, labels()))
        ]
        options = {"positions": "mean"} if estimator == "lai" else {}
        torch.testing.assert_close(report.scores, function(*sides, **options))


def test_hooks_that_change_gradients_are_followed_or_refused():
    model, inputs = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double(), randn(N, 4)
    mask = torch.rand(5, 4, dtype=torch.float64) > 0.5
    model[0].weight.register_hook(lambda gradient: gradient * mask)
    check_exact(model, inputs)
    clip = model[2].weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    with pytest.raises(ValueError, match=r"of \['2.weight'\] do not add up .*: a hook"):
        lai_torch.trace(model, LOSS, inputs, labels(), gradients="all")
    clip.remove()
    model[2].register_full_backward_hook(lambda module, inward, outward: (2 * inward[0],))
    with pytest.raises(ValueError, match=r"'0.weight'.* do not add up .*: a hook"):
        lai_torch.trace(model, LOSS, inputs, labels(), gradients="all")


@holding(lambda: held(body=nn.Linear(4, 5), left=nn.Linear(5, 3), right=nn.Linear(5, 3)))
def parallel(own, inputs):
    hidden = torch.tanh(own.body(inputs))
    return own.left(hidden) + own.right(hidden).relu()


def test_ghost_needs_no_last_layer_and_lai_takes_the_one_that_is_named():
    model, inputs = parallel().double(), randn(N, 4)
    assert lai_torch.selfcheck(model, LOSS, inputs, labels()).relative_error < 1e-12
    gram = exact_kernel(model, LOSS, inputs, labels(), N)
    for estimator, last in (("ghost", None), ("lai", "left"), ("lli", "right")):
        made = {"ghost": lai_torch.Ghost, "lai": lai_torch.LAI, "lli": lai_torch.LLI}[estimator]
        given = made() if last is None else made(last=last)
        curator = lai_torch.Curator(model, LOSS, None, (inputs, labels()), estimator=given)
        _, report = curator.score(inputs, labels())
        trace = lai_torch.trace(model, LOSS, inputs, labels(), last=last or "left")
        functions = {"lai": lai.lai_scores, "lli": lai.lli_scores}
        expected = gram.sum(0) if estimator == "ghost" else functions[estimator](trace, trace)
        torch.testing.assert_close(report.scores, expected)


def test_gradients_that_are_rounding_alone_refuse_nothing():
    # of two channels, normalisation leaves all but constants
    layers = nn.LayerNorm(2), nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 3)

    @holding(lambda: held(attend=nn.MultiheadAttention(2, 1, batch_first=True), rest=nn.Sequential(*layers)))
    def pairs(own, inputs):
        return own.rest(inputs + own.attend(inputs, inputs, inputs)[0]).mean(1)

    check_exact(pairs().double(), randn(N, N, 2))
