"""Every kind of layer, and where samples and positions may lie: exact, or refused by name."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.exact_support import LOSS, N, check_exact, labels, randn
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


def test_a_residual_net_with_running_statistics_is_exact():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
            self.head = nn.Linear(4, 3)

        def forward(self, inputs):
            hidden = self.norm(self.stem(inputs))
            hidden += inputs
            return self.head(functional.relu(hidden, inplace=True).mean((2, 3)))

    model = Residual().double()
    model.norm.running_mean.normal_()
    trace = check_exact(model.eval(), randn(N, 1, 5, 5))
    assert [type(layer).__name__ for layer in trace.layers] == [
        *("GainTrace", "GainTrace"),
        *("ConvolutionTrace", "LayerTrace"),
    ]


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


def test_autocast_outside_is_off_and_inside_is_followed():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 3)

        def forward(self, inputs):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                hidden = torch.relu(self.body(inputs))
            return self.head(hidden.float())

    inputs = torch.randn(N, 8)
    with pytest.warns(UserWarning, match="switches on autocast"):
        check_exact(Cast(), inputs, tolerance=0.05)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trace = lai_torch.trace(model, LOSS, inputs, labels(), gradients="all")
    expected = exact_kernel(model, LOSS, inputs, labels(), N)
    torch.testing.assert_close(lai.ghost_kernel(trace, trace), expected, rtol=1e-4, atol=1e-5)


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


def test_a_fully_convolutional_net_ends_in_a_matrix_on_every_pixel():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    trace = check_exact(model.double(), randn(N, 1, 5, 5))
    assert type(trace.layers[-1]) is lai.LayerTrace


def test_a_later_batch_whose_shapes_are_ambiguous_is_scored_as_the_first():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.merged, self.head = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, inputs):
            hidden = torch.tanh(self.body(inputs.transpose(0, 1)))
            merged = torch.tanh(self.merged(hidden.reshape(-1, 5))).reshape(hidden.shape)
            return self.head(merged.mean(0))

    model, big, small = Backwards().double(), randn(7, N, 3), randn(N, N, 3)
    for estimator, function in (("lai", lai.lai_scores), ("ghost", lai.ghost_scores)):
        curator = lai_torch.Curator(model, LOSS, None, (big, labels(7)), estimator=estimator)
        _, report = curator.score(small, labels())
        sides = [
            lai_torch.trace(model, LOSS, *side, gradients="all")
            for side in ((big, labels(7)), (small, labels()))
        ]
        options = {"positions": "mean"} if estimator == "lai" else {}
        torch.testing.assert_close(report.scores, function(*sides, **options))


def test_hooks_that_look_change_nothing_and_still_work_afterwards():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    seen = []
    model[0].register_full_backward_hook(lambda *_: seen.append("module"))
    model[0].weight.register_hook(lambda gradient: seen.append("parameter"))
    inputs = randn(N, 4)
    lai_torch.trace(model, LOSS, inputs, labels())
    assert set(seen) == {"module"}  # in the passes that prove that it mixes no samples
    seen.clear()
    lai_torch.trace(model, LOSS, inputs, labels(), gradients="all")
    assert sorted(seen) == ["module", "parameter"]  # in the plain pass that proves the trace
    seen.clear()
    LOSS(model(inputs.requires_grad_()), labels()).sum().backward()
    assert sorted(seen) == ["module", "parameter"]


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


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_a_table_whose_gradients_count_the_batch_is_refused(kind):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = kind(5, 4, scale_grad_by_freq=True), nn.Linear(4, 3)

        def forward(self, ids):
            hidden = self.table(ids)
            return self.head(hidden.mean(1) if hidden.ndim == 3 else hidden)

    with pytest.raises(ValueError, match=r"'table.weight' is read with scale_grad_by_freq=True"):
        lai_torch.trace(Words(), LOSS, torch.randint(5, (N, 3)), labels(), gradients="all")


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(4, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, inputs):
        hidden = torch.tanh(self.body(inputs))
        return self.left(hidden) + self.right(hidden).relu()


def test_ghost_needs_no_last_layer_and_lai_takes_the_one_that_is_named():
    model, inputs = Parallel().double(), randn(N, 4)
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
    with pytest.raises(ValueError, match="expected one final layer, found 2"):
        lai_torch.Curator(model, LOSS, None, (inputs, labels())).score(inputs, labels())


def test_gradients_that_are_rounding_alone_refuse_nothing():
    # of two channels, normalisation leaves all but constants
    layers = nn.LayerNorm(2), nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 3)

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend, self.rest = nn.MultiheadAttention(2, 1, batch_first=True), nn.Sequential(*layers)

        def forward(self, inputs):
            return self.rest(inputs + self.attend(inputs, inputs, inputs)[0]).mean(1)

    check_exact(Pairs().double(), randn(N, N, 2))
