"""Ghost is exact for any operation; LAI names what it cannot read."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.lai_torch.exact_support import LOSS, N, check_exact, labels, randn
from tests.support.torch_functions import scripted


class Head(nn.Module):
    """Some function of parameters and inputs, and a linear head."""

    def __init__(self, function, width, **parameters):
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))
        self.head = nn.Linear(width, 3, dtype=torch.float64)

    def forward(self, *inputs):
        return self.head(self.function(self, *inputs))


def experts(model, inputs):
    """Apply the two best of four experts, each to the rows that chose it."""
    rows = inputs.flatten(0, 1)
    gates, chosen = (rows @ model.gate).softmax(1).topk(2)
    out = torch.zeros_like(rows)
    for expert in range(4):
        row, place = torch.where(chosen == expert)
        up = functional.silu(functional.linear(rows[row], model.up[expert]))
        out = out.index_add(0, row, functional.linear(up, model.down[expert]) * gates[row, place, None])
    return out.reshape(inputs.shape).mean(1)


def routed(model, inputs):
    """Apply to each row the expert that it chose, whose number is read off the batch."""
    rows = inputs.flatten(0, 1)
    chosen = (rows @ model.gate).argmax(1)
    out = torch.zeros_like(rows)
    for expert in torch.unique(chosen):
        (row,) = torch.where(chosen == expert)
        out = out.index_add(0, row, functional.linear(rows[row], model.up[expert]))
    return out.reshape(inputs.shape).mean(1)


def standardised(model, inputs):
    """Convolve with kernels brought to mean zero and variance one, by the statistics of a weight."""
    flat = functional.batch_norm(model.weight.reshape(1, 4, -1), None, None, training=True)
    return functional.conv1d(inputs, flat.reshape_as(model.weight)).mean(2)


def grouped(model, inputs):
    """Sort rows by their expert and multiply each group at once."""
    rows = inputs.flatten(0, 1)
    chosen = (rows @ model.gate).argmax(1)
    order = chosen.argsort()
    sizes = torch.bincount(chosen, minlength=4)
    parts = rows[order].split(sizes.tolist())
    out = torch.cat([part @ model.up[expert] for expert, part in enumerate(parts)])
    return torch.empty_like(out).index_copy(0, order, out).reshape(len(inputs), -1, 8).mean(1)


def energy(model, inputs):
    """Return forces: the gradient of an energy, taken inside the forward pass."""
    places = inputs.detach().requires_grad_()
    values = torch.tanh(places @ model.weight).square().sum()
    return torch.autograd.grad(values, places, create_graph=True)[0]


CASES = {
    "bilinear": (
        Head(
            lambda m, x: functional.bilinear(x, x, m.weight, m.bias), 3, weight=randn(3, 4, 4), bias=randn(3)
        ),
        randn(N, 4),
        ["weight"],
    ),
    "transposed convolution": (
        Head(lambda m, x: functional.conv_transpose1d(x, m.weight, m.bias).mean(2), 3, weight=randn(2, 3, 3),
             bias=randn(3)),
        randn(N, 2, 4),
        ["weight"],
    ),
    "bag": (
        Head(lambda m, x: functional.embedding_bag(x, m.table, mode="sum"), 4, table=randn(5, 4)),
        torch.randint(5, (N, 6)),
        ["table"],
    ),
    "batched": (
        Head(lambda m, x: torch.bmm(x, m.weight.expand(len(x), -1, -1)).mean(1), 4, weight=randn(4, 4)),
        randn(N, 3, 4),
        ["weight"],
    ),
    "einsum": (
        Head(
            lambda m, x: torch.einsum("ntd,hde->nthe", x, m.weight).mean(1).flatten(1),
            8,
            weight=randn(2, 4, 4),
        ),
        randn(N, 3, 4),
        [],
    ),
    "distances": (
        Head(lambda m, x: torch.cdist(x, m.centres), 5, centres=randn(5, 4)),
        randn(N, 4),
        ["centres"],
    ),
    "spectrum": (
        Head(
            lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(m.kernel), n=4),
            4,
            kernel=randn(4),
        ),
        randn(N, 4),
        [],
    ),
    "experts": (
        Head(experts, 8, gate=randn(8, 4), up=randn(4, 6, 8), down=randn(4, 8, 6)),
        randn(N, 5, 8),
        ["up", "down"],
    ),
    "routed experts": (
        Head(routed, 8, gate=randn(8, 4), up=randn(4, 8, 8)),
        randn(N, 5, 8),
        ["up"],
    ),
    "standardised": (
        Head(standardised, 4, weight=randn(4, 2, 3)),
        randn(N, 2, 5),
        [],
    ),
    "grouped experts": (
        Head(grouped, 8, gate=randn(8, 4), up=randn(4, 8, 8)),
        randn(N, 5, 8),
        ["up"],
    ),
    "sorted rows": (
        Head(lambda m, x: (torch.sort(x, 1).values @ m.weight), 4, weight=randn(4, 4)),
        randn(N, 4),
        [],
    ),
    "relative places": (
        Head(
            lambda m, x: (torch.softmax(x @ x.transpose(1, 2)
                + m.table[torch.arange(3)[:, None] - torch.arange(3) + 2], -1) @ x).mean(1),
            4, table=randn(5),
        ),
        randn(N, 3, 4),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_ghost_is_exact_and_lai_names_what_it_leaves_out(name):
    model, inputs, unread = CASES[name]
    check_exact(model, inputs)
    if not unread:
        lai_torch.trace(model, LOSS, inputs, labels())
        return
    with pytest.warns(UserWarning, match="LAI has no readout from the input of") as said:
        found = lai_torch.trace(model, LOSS, inputs, labels())
    assert all(repr(parameter) in str(said[0].message) for parameter in unread)
    assert not {layer.name for layer in found.layers} & set(unread)


@pytest.mark.parametrize("cell", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_are_exact(cell):
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory, self.head = cell(4, 5, 2, batch_first=True, bidirectional=True), nn.Linear(10, 3)

        def forward(self, inputs):
            return self.head(self.memory(inputs)[0][:, -1])

    model = Recurrent().double()
    check_exact(model, randn(N, 3, 4))
    with pytest.warns(
        UserWarning, match=r"'memory.weight_ih_l0' \(used by torch.*'memory.weight_hh_l1_reverse'"
    ):
        lai_torch.trace(model, LOSS, randn(N, 3, 4), labels())


def test_a_gradient_inside_the_forward_pass_is_exact_for_ghost_and_refused_for_lai():
    model, inputs = Head(energy, 4, weight=randn(4, 6)), randn(N, 4)
    check_exact(model, inputs)
    with pytest.raises(ValueError, match="takes a gradient inside its forward pass"):
        lai_torch.trace(model, LOSS, inputs, labels())


def test_a_matrix_in_a_function_that_cannot_be_watched_is_named():
    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.weight = nn.Linear(4, 6), nn.Parameter(torch.randn(6, 6))
            self.second, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

        def forward(self, inputs):
            return self.head(torch.relu(self.second(scripted(torch.tanh(self.first(inputs)), self.weight))))

    model = Inside().double()
    check_exact(model, randn(N, 4))
    with pytest.warns(UserWarning, match=r"'weight' \(used by a function that cannot be watched\)"):
        found = lai_torch.trace(model, LOSS, randn(N, 4), labels())
    assert [layer.name for layer in found.layers] == ["first", "second", "head"]


class Routed(nn.Module):
    """Samples go to one of two layers by their values, rows in no order."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, inputs):
        chosen = inputs[:, 0] > 0
        hidden = inputs.new_zeros(len(inputs), 6)
        hidden[chosen] = self.left(inputs[chosen])
        hidden[~chosen] = self.right(inputs[~chosen])
        return self.head(torch.tanh(hidden))


@pytest.mark.parametrize("seed", range(6))
def test_samples_routed_by_value_are_exact_also_where_nobody_goes_somewhere(seed):
    torch.manual_seed(seed)
    model, inputs = Routed().double(), randn(N, 4)
    if seed == 0:
        inputs[:, 0] = inputs[:, 0].abs()
    check_exact(model, inputs)


def test_a_checkpoint_that_recomputes_other_shapes_is_ours_to_refuse():
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, inputs):
            forward = [True]

            def block(hidden):
                return torch.tanh(self.body(hidden)) if forward else self.body(hidden)

            out = self.head(checkpoint(block, self.first(inputs), use_reentrant=False))
            forward.clear()
            return out

    with pytest.raises(ValueError, match="a checkpoint computes other tensors when it is run again"):
        lai_torch.trace(Changing().double(), LOSS, randn(N, 4), labels(), gradients="all")


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
    weights = torch.rand(4, generator=torch.Generator().manual_seed(3), dtype=torch.float32) + 0.1

    def scaled(model, inputs):
        return inputs @ torch.cov(model.columns, aweights=model.weights)

    model = Head(scaled, 5, columns=randn(5, 4), weights=weights)
    inputs = randn(N, 5)
    found = lai_torch.selfcheck(model, LOSS, inputs, labels(N))
    assert model.weights.dtype == torch.float32
    assert found.relative_error < 1e-6
