"""What checks a model says: passes and per-sample gradients against plain autograd, and what is wrong."""

import copy
import functools
import sys
from contextlib import nullcontext
from dataclasses import replace

import lai_torch
import pytest
import torch
from lai_torch._captured import run
from lai_torch._curation.passes.base import WholePass
from lai_torch._graph.record import Reader
from torch import nn

from tests.lai_torch import support
from tests.lai_torch.support import LOSS, network
from tests.support.torch_modules import Part, held, holding
from tests.support.torch_programs import program
from tests.support.workloads import transformer_models
from tests.support.workloads.launches import launch
from tests.support.workloads.torch_oracle import per_sample_gradients
from tests.support.workloads.torch_parts import doubled
from tests.support.workloads.torch_training import encoder

N = 6


@holding(
    lambda fails_at=None: held(
        body=nn.Linear(4, 8),
        frozen=nn.Linear(8, 8).requires_grad_(False),
        drop=nn.Dropout(0.4),
        head=nn.Linear(8, 3),
        calls=torch.zeros(()),
        fails_at=fails_at,
    )
)
def noisy(own, inputs):
    """Apply dropout and a frozen layer, count in a buffer, on as many positions as samples."""
    own.calls += 1
    if own.fails_at == len(inputs):
        raise KeyError("the model's own")
    return own.head(own.drop(torch.tanh(own.frozen(torch.tanh(own.body(inputs)))))).mean(1)


def data(n=N):
    return support.batch(n, N, 4)


@holding(lambda: held(query=nn.Linear(4, 4), key=nn.Linear(4, 4), head=nn.Linear(4, 3)))
def make_attends(own, inputs):
    """Apply attention, which no bias of its keys can change: their gradient is rounding alone."""
    shares = (own.query(inputs) @ own.key(inputs).mT).softmax(-1)
    return own.head(torch.tanh(shares @ inputs)).mean(1)


@pytest.mark.parametrize("backward", ["selective", "whole"])
def test_roundings_alone_are_no_error(backward):
    found = lai_torch.selfcheck(make_attends().double(), LOSS, *data(), backward=backward).backward
    assert found["key.bias"] < 1e-7


@holding(lambda: held(head=nn.Linear(3, 3)))
def head_loss(own, outputs, targets):
    """Compute a loss through a layer of its own."""
    return LOSS(own.head(outputs), targets)


def next_rows(real):
    def taken(place, value, rows):
        samples = value.shape[place.axis] // (place.outer * place.inner)
        return real(place, value, (rows + 1) % samples)

    return taken


def unmasked(real):
    def backward(own, batch, losses, weighed, parts):
        same = weighed.weights.mean().expand(N)
        return real(own, batch, losses, replace(weighed, weights=same), parts)

    return backward


MUTANTS = {
    "take_rows": (run, next_rows),
    "weigh_rows": (
        run,
        lambda real: lambda place, value, weights: real(place, value, weights.mean().expand_as(weights)),
    ),
    "backward": (WholePass, unmasked),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_way_shows(name, monkeypatch):
    case = doubled(encoder(N))  # attention runs time-first inside
    model, batch = case.model, (case.inputs, case.targets)
    where, wrong = MUTANTS[name]
    way = "whole" if where is WholePass else "selective"
    right = lai_torch.selfcheck(model, LOSS, *batch, backward=way).backward
    assert max(right.values()) < 1e-13
    monkeypatch.setattr(where, name, wrong(getattr(where, name)))
    found = lai_torch.selfcheck(model, LOSS, *batch, backward=way)
    assert max(found.backward.values()) > 1e-2
    assert found.relative_error < 1e-12


@pytest.mark.parametrize("fails_at", [None, N, 1])
@pytest.mark.parametrize("backward", ["selective", "whole"])
def test_nothing_is_left_behind(backward, fails_at):
    model, loss, batch = noisy(fails_at).double(), head_loss().double(), data()
    model.drop.eval()
    for p in (*model.body.parameters(), loss.head.weight):
        p.grad = torch.ones_like(p)
    parameters = [*model.parameters(), *loss.parameters()]
    kept = [p.grad for p in parameters]
    before = copy.deepcopy((model.state_dict(), kept, [module.training for module in model.modules()]))
    state = torch.get_rng_state()
    if fails_at is None:
        loss = loss if backward == "whole" else LOSS
        found = lai_torch.selfcheck(model, loss, *batch, backward=backward).backward
        trained = [name for name, p in model.named_parameters() if p.requires_grad]
        assert [name for name in found if not name.startswith("loss.")] == trained
        assert max(found.values()) < 1e-13
    else:
        with pytest.raises(KeyError, match="the model's own"):
            lai_torch.selfcheck(model, LOSS, *batch, backward=backward)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is held for p, held in zip(parameters, kept, strict=True))
    after = (model.state_dict(), kept, [module.training for module in model.modules()])
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_all_gradients_are_compared(monkeypatch):
    case, model = doubled(transformer_models.gpt2()), network()
    found = lai_torch.selfcheck(case.model, case.loss, case.inputs, case.targets)
    assert max(found.relative_error, found.exact, *found.layers.values()) < 1e-12
    assert "transformer.wte.weight" in found.layers
    assert found.backward is None
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
    """Return a derivative along a direction, whose tensors `torch.func` wraps."""
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


def test_one_row_that_draws_has_no_norm_beside_itself():
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
