"""Every way to use, share, freeze and derive a parameter: exact, or refused by name."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.exact_support import LOSS, N, check_exact, labels, randn


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


def test_a_weight_used_with_and_without_its_bias():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.head(functional.linear(torch.tanh(self.body(inputs)), self.body.weight))

    check_exact(Half().double(), randn(N, 4))


def test_a_weight_used_with_two_biases():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
            self.other = nn.Parameter(torch.randn(4))

        def forward(self, inputs):
            again = functional.linear(torch.tanh(self.body(inputs)), self.body.weight, self.other)
            return self.head(torch.tanh(again))

    check_exact(Two().double(), randn(N, 4))


def test_a_weight_that_is_also_added_and_read_as_a_table():
    class Everywhere(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix, self.head = nn.Parameter(torch.randn(5, 4)), nn.Linear(5, 3)

        def forward(self, inputs, ids):
            read = self.matrix[ids].sum(1)
            return self.head((inputs + read) @ self.matrix.T + functional.linear(read, self.matrix * 2))

    check_exact(Everywhere().double(), (randn(N, 4), torch.randint(5, (N, 3))))


@pytest.mark.parametrize("padding", [None, 0, -1])
def test_the_padding_row_of_a_table_does_not_train(padding):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(5, 4, padding_idx=padding), nn.Linear(4, 3)

        def forward(self, ids):
            return self.head(self.words(ids).mean(1))

    model = Bag().double()
    nn.init.normal_(model.words.weight)
    check_exact(model, torch.randint(5, (N, 6)))


def test_a_padding_row_of_a_table_that_is_used_otherwise_too():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(5, 4, padding_idx=0), nn.Linear(4, 3)

        def forward(self, ids):
            return self.head(self.words(ids).mean(1) + self.words.weight[2] + self.words.weight.sum())

    model = Scaled().double()
    nn.init.normal_(model.words.weight)
    check_exact(model, torch.randint(5, (N, 6)))


def test_layers_that_reach_no_loss_have_gradient_zero():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.idle, self.table, self.head = (
                nn.Linear(4, 4),
                nn.Conv1d(1, 2, 2),
                nn.Embedding(3, 2),
                nn.Linear(4, 3),
            )

        def forward(self, inputs, ids):
            self.idle(inputs[:, None])
            self.table(ids)
            return self.head(torch.tanh(self.body(inputs)))

    check_exact(Idle().double(), (randn(N, 4), torch.randint(3, (N, 2))))


def test_coverage_says_what_is_explained_and_frozen():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory, self.head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.head(self.memory(inputs)[0][:, -1])

    model = Partly().double()
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


def test_a_model_that_does_not_train_has_no_ghost():
    with pytest.raises(ValueError, match="expected at least one trainable parameter for gradients='all'"):
        lai_torch.trace(
            nn.Linear(4, 3).requires_grad_(False), LOSS, torch.ones(N, 4), labels(), gradients="all"
        )


def test_a_derived_bias_and_a_width_like_the_batch():
    class Merged(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix, self.head = nn.Parameter(torch.randn(N, N)), nn.Linear(N, 3)

        def forward(self, inputs):
            merged = torch.addmm(self.matrix[0], inputs.reshape(-1, N), self.matrix)
            return self.head(torch.tanh(merged.reshape(inputs.shape)).mean(1))

    model, inputs = Merged().double(), randn(N, 3, N)
    check_exact(model, inputs)
    trace = lai_torch.trace(model, LOSS, inputs, labels())
    assert [layer.name for layer in trace.layers] == ["matrix", "head"]


def added(net):
    matrix = net.base.weight.clone()
    matrix += net.matrix
    return matrix


def row_by_row(net):
    matrix = net.base.weight.clone()
    matrix[0] += net.row
    return matrix


def through_a_view(net):
    matrix = net.base.weight.clone()
    matrix.view(-1)[2:6].add_(net.row)
    return matrix


def sparse(net):
    places = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 3]])
    matrix = net.base.weight.clone()
    matrix += torch.sparse_coo_tensor(places, 2.0 * net.row, (4, 4))
    return matrix


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("write", [added, row_by_row, through_a_view, sparse])
def test_a_weight_that_others_are_written_into(write, frozen):
    class Written(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
            self.base.requires_grad_(not frozen)
            self.matrix, self.row = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))

        def forward(self, inputs):
            return self.head(torch.tanh(functional.linear(inputs, write(self))))

    check_exact(Written().double(), randn(N, 4))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_outputs():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.none, self.head = nn.Linear(4, 5), nn.Linear(4, 0), nn.Linear(5, 3)

        def forward(self, inputs):
            return self.head(torch.tanh(torch.cat([self.body(inputs), self.none(inputs)], 1)))

    check_exact(Empty().double(), randn(N, 4))
