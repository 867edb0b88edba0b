"""Selective backward: the masked gradient from the kept rows alone, at fewer operations."""

import copy
import functools
import gc
import weakref

import lai_torch
import pytest
import torch
from lai_torch._curation.scorers.choice import scorer as made_scorer
from lai_torch._curation.scorers.tracer import Tracer
from lai_torch._curation.validation import own_stream
from torch import nn

import lai_core as lai
from tests.lai_torch.selective_support import Selective
from tests.lai_torch.support import LOSS
from tests.support.torch_modules import held, holding

N = 8


@holding(
    lambda: held(
        words=nn.Embedding(11, 8),
        places=nn.Parameter(torch.randn(5, 8)),
        norm=nn.LayerNorm(8),
        mix=nn.Linear(8, 24),
        out=nn.Linear(8, 8, bias=False),
        head=nn.Linear(8, 3),
    )
)
def make_tokens(own, ids):
    """Apply an embedding, attention with samples on axis 0, a table of positions, a head on one token."""
    hidden = own.words(ids) + own.places
    q, k, v = own.mix(own.norm(hidden)).chunk(3, -1)
    mixed = torch.softmax(q @ k.transpose(1, 2), -1) @ v
    return own.head(torch.tanh(hidden + own.out(mixed))[:, 0])


def pixels():
    layers = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2, groups=2),
    ]
    return nn.Sequential(*layers, nn.GELU(), nn.Flatten(), nn.Linear(16, 3))


CASES = {
    "tokens": (make_tokens, lambda: torch.randint(11, (N, 5))),
    "pixels": (pixels, lambda: torch.randn(N, 1, 5, 5, dtype=torch.float64)),
}


def case(name):
    build, inputs = CASES[name]
    return build().double(), inputs(), torch.arange(N) % 3


@pytest.mark.parametrize("name", CASES)
def test_a_selective_step_is_the_masked_step(name):
    model, inputs, targets = case(name)
    twin = copy.deepcopy(model)
    half = functools.partial(lai.keep_top, fraction=0.5)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, twin)]
    validation = inputs.flip(0), targets.flip(0)
    curator = lai_torch.Curator(model, LOSS, optimizers[0], validation, policy=half, backward="selective")
    other = lai_torch.Curator(twin, LOSS, optimizers[1], validation, policy=half)
    for _ in range(3):
        report, expected = curator.step(inputs, targets), other.step(inputs, targets)
        assert report.kept == N // 2
        torch.testing.assert_close(report.scores, expected.scores)
        torch.testing.assert_close(report.loss, expected.loss)
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))


@pytest.mark.parametrize("name", CASES)
def test_one_capture_serves_every_number_of_kept_rows(name):
    model, inputs, targets = case(name)
    selective = Selective(model, LOSS)
    for kept in (1, 3, N):
        weights = torch.zeros(N, dtype=torch.float64)
        weights[torch.randperm(N)[:kept]] = torch.rand(kept, dtype=torch.float64) + 0.1
        selective.forward(inputs, targets)
        model.zero_grad()
        selective.backward(weights)
        expected = torch.autograd.grad(
            (LOSS(model(inputs), targets) * weights).sum(), list(model.parameters())
        )
        for p, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient)
    assert selective.captures == 1


def test_a_curator_that_is_gone_keeps_no_model():
    model, batch = nn.Linear(4, 3), (torch.randn(N, 4), torch.arange(N) % 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lai_torch.Curator(model, LOSS, optimizer, batch, backward="selective").step(*batch)
    kept = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert kept() is None


@holding(lambda: held(scale=nn.Parameter(torch.ones(()))))
def tempered(own, outputs, targets):
    """Apply a loss with a parameter of its own."""
    return LOSS(outputs * own.scale, targets)


def test_a_loss_that_reads_parameters_itself_is_refused_by_name():
    model, loss = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), tempered()
    batch = torch.randn(N, 4), torch.arange(N) % 3

    def decayed(outputs, targets):
        return LOSS(outputs, targets) + model[0].weight.square().sum()

    for one, name in ((loss, "loss.scale"), (decayed, "0.weight")):
        optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
        curator = lai_torch.Curator(model, one, optimizer, batch, backward="selective")
        with pytest.raises(ValueError, match=f"by the model's outputs alone, this one reads '{name}' itself"):
            curator.step(*batch)


def scored(scorer, summary, batch):
    scored = scorer.score(iter([scorer.read(batch, summary)]), summary)
    return scored.scores


@pytest.mark.parametrize("positions", ["mean", None])
@pytest.mark.parametrize("kind", [lai_torch.LAI, lai_torch.LLI, lai_torch.PreconditionedLAI])
@pytest.mark.parametrize("name", CASES)
def test_the_shortcut_of_a_known_model_changes_no_score(name, kind, positions):
    model, inputs, targets = case(name)
    estimator = kind() if kind is lai_torch.LLI else kind(positions=positions)
    known, fresh = (made_scorer(model, LOSS, None, estimator, own_stream()) for _ in range(2))
    summary = known.summarize((inputs.flip(0), targets.flip(0)), 3)
    assert known.tracer.knows_last
    short = scored(known, summary, (inputs, targets))
    long = scored(fresh, fresh.summarize((inputs.flip(0), targets.flip(0)), N), (inputs, targets))
    torch.testing.assert_close(short, long)


def test_a_shortcut_that_does_not_hold_is_not_taken():
    @holding(lambda: held(body=nn.Linear(4, 4), more=nn.Linear(4, 4), head=nn.Linear(4, 3), deep=False))
    def turning(own, inputs):
        hidden = torch.tanh(own.body(inputs))
        return own.head(torch.tanh(own.more(hidden)) if own.deep else hidden)

    model = turning().double()
    batch = torch.randn(N, 4, dtype=torch.float64), torch.arange(N) % 3
    tracer = Tracer(model, LOSS)
    tracer(batch)
    model.deep = True
    trace, _ = tracer(batch)
    expected = lai_torch.trace(model, LOSS, *batch)
    assert [layer.name for layer in trace.layers] == ["body", "more", "head"]
    torch.testing.assert_close(lai.lai_kernel(trace, trace), lai.lai_kernel(expected, expected))


def test_scoring_without_a_step_disturbs_no_training():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    batch = torch.randn(N, 4, dtype=torch.float64), torch.arange(N) % 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curator = lai_torch.Curator(model, LOSS, optimizer, batch, backward="selective")
    state = torch.get_rng_state()
    weights, report = curator.score(*batch)
    assert report.backward == "kept"
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(weights, curator.score(*batch)[0])


def test_a_first_gradient_that_is_not_finite_is_skipped_and_the_next_one_checked():
    model, inputs, targets = case("tokens")
    scale = iter((8.9e307, 1.0))

    def policy(scores):
        return lai.keep_top(scores, 0.5) * next(scale) * N

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curator = lai_torch.Curator(
        model, LOSS, optimizer, (inputs, targets), policy=policy, backward="selective"
    )
    reports = [curator.step(inputs, targets) for _ in range(2)]
    assert [report.skipped for report in reports] == [True, False]
    assert curator._scoring.passes.shared.proved
