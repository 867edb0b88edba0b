"""What checks a model says: per-sample gradients against plain autograd, and what is wrong."""

import functools
import sys
from contextlib import nullcontext

import lai_torch
import pytest
import torch
from lai_torch._graph.record import Reader
from torch import nn

from tests.lai_torch import support
from tests.lai_torch.support import LOSS, network
from tests.support.torch_modules import Part
from tests.support.torch_programs import program
from tests.support.workloads import transformer_models
from tests.support.workloads.launches import launch
from tests.support.workloads.torch_oracle import per_sample_gradients
from tests.support.workloads.torch_parts import doubled

N = 6


def test_all_gradients_are_compared(monkeypatch):
    case, model = doubled(transformer_models.gpt2()), network()
    found = lai_torch.selfcheck(case.model, case.loss, case.inputs, case.targets)
    assert max(found.relative_error, found.exact, *found.layers.values()) < 1e-12
    assert "transformer.wte.weight" in found.layers
    wrong = functools.partial(lambda exact, *batch: 1.1 * exact(*batch), lai_torch.exact_scores)
    monkeypatch.setattr(sys.modules["lai_torch.selfcheck"], "exact_scores", wrong)
    assert lai_torch.selfcheck(model, LOSS, *support.data(5)).exact == pytest.approx(0.1)


def test_products_and_norms():
    one = program(1, made_of=("padded_and_tied", "quadratic", "cross_entropy", "mean", ""))
    model, first, second = one.model, one.validation, one.training
    left, right = (per_sample_gradients(model, LOSS, *side, len(side[1])) for side in (first, second))
    found = lai_torch.per_sample_inner_products(model, LOSS, first, second)
    assert torch.allclose(found, left @ right.T, rtol=0, atol=1e-14 * float((left @ right.T).abs().max()))
    norms = lai_torch.per_sample_norms(model, LOSS, second)
    assert torch.allclose(norms, right.norm(dim=1), rtol=1e-14)
    assert lai_torch.check_per_sample_gradients(model, LOSS, second).relative_error < 1e-14


def push(own, inputs):
    hidden = torch.tanh(own.body(inputs))
    return torch.func.jvp(lambda values: torch.tanh(own.head(values)), (hidden,), (1 + hidden,))[1]


def go_row_by_row(own, inputs):
    return torch.stack([own.head(torch.tanh(own.body(row))) for row in inputs])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # of torch's own derivatives
@pytest.mark.parametrize("function", [push, go_row_by_row])
def test_wrapped_and_complex_tensors_are_read(function):
    """Beside a complex matrix that no sample meets."""
    parts = {"body": nn.Linear(4, 5), "head": nn.Linear(5, 3)}
    model = Part(function, **parts, idle=nn.Parameter(torch.ones(2, 2, dtype=torch.complex128)))
    model.double()
    assert lai_torch.check_per_sample_gradients(model, LOSS, support.data(5)).relative_error < 1e-13


def test_norms_of_the_training_pass():
    """Dropout's masks are those of the step; the gradient is what the step without norms has, to the bit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3)).double()
    norms, parameters = lai_torch.PerSampleNorms(model, LOSS), [*model.parameters()]
    for _ in range(5):
        inputs, targets = support.data(6)
        state = torch.get_rng_state()
        losses, found = norms.forward(inputs, targets)
        after = torch.get_rng_state()
        gradient = torch.autograd.grad(losses.mean(), parameters)
        torch.set_rng_state(state)
        plain = LOSS(model(inputs), targets)
        assert torch.equal(torch.get_rng_state(), after)
        assert torch.equal(losses, plain)
        rows = [torch.autograd.grad(one, parameters, retain_graph=True) for one in plain]
        expected = torch.stack([torch.cat([part.flatten() for part in row]).norm() for row in rows])
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        assert all(map(torch.equal, gradient, torch.autograd.grad(plain.mean(), parameters)))
        with torch.no_grad():
            torch._foreach_sub_(parameters, gradient, alpha=0.1)


def test_single_drawn_rows_have_no_norm():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 20), nn.Dropout(0.5), nn.Linear(20, 3)).double()
    norms = lai_torch.PerSampleNorms(model, LOSS)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="expected two rows or more where a pass draws"):
        norms.forward(*support.data(1))
    model.eval()
    losses, found = norms.forward(*support.data(1))
    losses.sum().backward()
    torch.testing.assert_close(found[0], nn.utils.get_total_norm([one.grad for one in model.parameters()]))


def train_wrapped(rank):
    """Train wrapped, with a buffer that forward passes broadcast; a batch is short on one process."""
    torch.manual_seed(0)
    model, wrap = network(nn.BatchNorm1d(8).eval()), nn.parallel.DistributedDataParallel
    with pytest.raises(ValueError, match="got static_graph=True"):
        lai_torch.PerSampleNorms(wrap(network(), static_graph=True), LOSS)
    norms = lai_torch.PerSampleNorms(wrap(model), LOSS)
    for step in range(3):
        losses, _ = norms.forward(*support.data(6 - (rank == 1 and step == 1)))
        losses.mean().backward()
    return [parameter.grad for parameter in model.parameters()]


def test_wrapped_models_are_proved_apart():
    assert all(map(torch.equal, *launch(train_wrapped, 2)))


@pytest.mark.parametrize(("error", "right"), [(1e-10, True), (1e-6, False)])
def test_a_wrong_layer_is_named(monkeypatch, error, right):
    def wrong(reader, batch):
        recording = record(reader, batch)
        layer = next(one for one in recording.trace.layers if one.name == "2")
        object.__setattr__(layer, "activations", layer.activations * (1 + error))
        return recording

    record = Reader.record

    (inputs, targets), model = support.batch(N, 4), network()
    monkeypatch.setattr(Reader, "record", wrong)
    with nullcontext() if right else pytest.raises(ValueError, match=r"errors of .* for 2\.weight; please"):
        lai_torch.check_per_sample_gradients(model, LOSS, (inputs, targets))
