"""Gates read off a model, and gate-corrected LAI in the loop."""

import itertools
from functools import partial

import lai_torch
import pytest
import torch
from torch import nn

from lai_core.estimators.gates import gate_lai_scores
from tests.lai_torch import support
from tests.lai_torch.support import LOSS, data
from tests.support.torch_modules import Part

curated = partial(support.curated, estimator="gate_lai")


def network():
    """Build a chain whose layers are followed by one, three and no elementwise functions."""
    model = nn.Sequential(
        nn.Linear(4, 8),
        nn.GELU(),
        nn.Linear(8, 6, bias=False),
        nn.BatchNorm1d(6),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(6, 5),
        nn.Linear(5, 3),
    ).double()
    nn.init.uniform_(model[3].weight, 0.5, 2.0)
    nn.init.uniform_(model[3].running_var, 0.5, 2.0)
    return model.eval()


def test_inputs_gates_and_column_norms():
    model, (inputs, targets) = network(), data(3)
    found = lai_torch.trace_gates(model, LOSS, inputs, targets)
    spans = [(0, 2), (2, 6), (6, 7)]  # a linear layer, then what follows it
    values = inputs
    for layer, gates, (start, stop) in zip(found.trace.layers, found.gates, spans, strict=False):
        torch.testing.assert_close(layer.activations, values)
        outputs = model[start](values).detach().requires_grad_()
        values = model[start + 1 : stop](outputs * 1.0)
        (expected,) = torch.autograd.grad(values.sum(), outputs)
        torch.testing.assert_close(gates, expected)
        values = values.detach()
    for norms, index in zip(found.column_norms, (2, 6, 7), strict=True):
        torch.testing.assert_close(norms, model[index].weight.detach().square().sum(0))
    plain = lai_torch.trace(model, LOSS, inputs, targets)
    assert [layer.name for layer in found.trace.layers] == [layer.name for layer in plain.layers]
    last = found.trace.layers[-1].output_gradients
    torch.testing.assert_close(last, plain.layers[-1].output_gradients)
    assert all(layer.output_gradients is None for layer in found.trace.layers[:-1])


def test_columns_of_a_transposed_matrix():
    second = nn.Parameter(torch.randn(5, 3))
    model = Part(lambda own, x: own.first(x).tanh() @ own.second, first=nn.Linear(4, 5), second=second)
    model.double()
    (norms,) = lai_torch.trace_gates(model, LOSS, *data(2)).column_norms
    torch.testing.assert_close(norms, model.second.detach().square().sum(1))


def test_column_norms_are_of_the_step():
    """And scores are the core's, by what batches before taught of the model."""
    model, validation, batch = network(), data(6), data(5)
    curator = curated(model, validation, refresh=10)
    for size in (4, 20):
        curator.score(*data(size))
    before = lai_torch.trace_gates(model, LOSS, *validation)
    with torch.no_grad():
        model[7].weight *= 2.0
    now = lai_torch.trace_gates(model, LOSS, *batch)
    expected = gate_lai_scores(before, now)
    report = curator.score(*batch)[1]
    torch.testing.assert_close(report.scores, expected, rtol=1e-10, atol=1e-12)
    assert report.positions is None


KINDS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
LOW = KINDS[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_slightly_mixing_entries_are_refused(kind):
    """Where an entry takes a little of its neighbour's."""
    (inputs, targets), share = data(5), 16 * torch.finfo(kind).eps

    def mixes(own, values):
        hidden = torch.tanh(own.first(values))
        return own.last(hidden + share * hidden.roll(1, 1))

    model = Part(mixes, first=nn.Linear(4, 8), last=nn.Linear(8, 3)).to(kind)
    with pytest.raises(ValueError, match="mixes entries of the output of layer 'first'"):
        lai_torch.trace_gates(model, LOSS, inputs.to(kind), targets)


@pytest.mark.parametrize(("kind", "inside"), [*itertools.pairwise(KINDS), (LOW, torch.float32)])
def test_elementwise_functions_in_every_type(kind, inside):
    def within(own, values):
        return own.function.to(inside)(values.to(inside)).to(values.dtype)

    functions = [nn.GELU(), nn.SiLU(), nn.Softplus(), nn.ELU(), nn.Hardswish(), nn.Mish(), nn.Sigmoid()]
    functions += [nn.LogSigmoid(), nn.PReLU(), nn.Softsign(), nn.Tanhshrink(), nn.GELU("tanh")]
    inputs, targets = data(40)
    for function in functions:
        for cast in (False, True):  # computed in the model's type, or inside in another
            between = Part(within, function=function) if cast else function
            model = nn.Sequential(nn.Linear(4, 9), between, nn.Linear(9, 3)).to(kind)
            found = lai_torch.trace_gates(model, LOSS, 3.0 * inputs.to(kind), targets)
            hidden = model[0](3.0 * inputs.to(kind)).detach().requires_grad_()
            (gates,) = torch.autograd.grad(model[1](hidden).sum(), hidden)
            assert torch.equal(found.gates[0], gates)
