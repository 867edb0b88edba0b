"""Every way to use, share, freeze and derive a parameter: exact, or refused by name."""

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.exact_support import LOSS, N, check_exact, labels, randn
from tests.support.torch_modules import held, holding


def test_frozen_layers_are_out_of_ghost_and_in_lai():
    model = nn.Sequential(
        nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, 6), nn.GELU(), nn.Linear(6, 3)
    ).double()
    inputs = randn(N, 2, 4)
    whole = lai_torch.trace(model, LOSS, inputs, labels())
    expected = lai.lai_kernel(whole, whole, positions="flatten")
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    trace = check_exact(model, inputs)
    torch.testing.assert_close(lai.lai_kernel(trace, trace, positions="flatten"), expected)


def test_a_frozen_bias_under_a_trainable_weight():
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3)).double()
    whole = lai_torch.trace(model, LOSS, inputs := randn(N, 4), labels())
    model[0].bias.requires_grad_(False)
    trace = check_exact(model, inputs)
    torch.testing.assert_close(lai.lai_kernel(trace, trace), lai.lai_kernel(whole, whole))


def test_coverage_says_what_is_explained_and_frozen():
    @holding(lambda: held(memory=nn.GRU(3, 4, batch_first=True), head=nn.Linear(4, 3)))
    def partly(own, inputs):
        return own.head(own.memory(inputs)[0][:, -1])

    model = partly().double()
    model.head.bias.requires_grad_(False)
    found = lai_torch.coverage(model, LOSS, randn(N, 5, 3), labels())
    memory = {name: ("operation",) for name, _ in model.named_parameters() if "memory" in name}
    assert found.explained == {"head.weight": ("dense",)} | memory
    assert found.frozen == ("head.bias",)
    assert found.parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert found.share == 1.0
    assert found.unexplained == {}


def test_built_gradients_that_are_too_large_are_refused(monkeypatch):
    monkeypatch.setattr("lai_torch._recording.per_sample.GRADIENT_BUDGET", 100)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))).double()
    with pytest.raises(
        ValueError, match=r"per-sample gradients of .*original1.* that fit 100 bytes, they take"
    ):
        lai_torch.trace(model, LOSS, randn(N, 4), labels(), gradients="all")


def test_a_parameter_that_is_unfrozen_or_shared_later_meets_no_stale_proof():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    model[0].requires_grad_(False)
    validation, batch = (randn(N, 4), labels()), (randn(N, 4), labels())

    def scores(curator):
        return curator.score(*batch)[1].scores

    def fresh():
        return lai_torch.Curator(model, LOSS, None, validation, estimator="ghost")

    curator = fresh()
    scores(curator)
    model[0].requires_grad_(True)
    torch.testing.assert_close(scores(curator), scores(fresh()))
    model[2].weight = model[0].weight
    torch.testing.assert_close(scores(curator), scores(fresh()))


def test_a_parameter_of_a_coarser_type_than_the_model_computes_in_is_known_to_its_own_roundings():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.columns, self.head = nn.Parameter(randn(5, 4)), nn.Linear(5, 3).double()
            drawn = torch.rand(4, generator=torch.Generator().manual_seed(3), dtype=torch.float32)
            self.weights = nn.Parameter(drawn + 0.1)

        def forward(self, inputs):
            return self.head(inputs @ torch.cov(self.columns, aweights=self.weights))

    model, inputs = Scaled(), randn(N, 5)
    found = lai_torch.selfcheck(model, LOSS, inputs, labels(N))
    assert model.weights.dtype == torch.float32
    assert found.relative_error < 1e-6
