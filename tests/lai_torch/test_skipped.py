"""A skipped step is as if there had been none; a row that is not finite is left out of all that is summed."""

import copy
import functools
import math

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.support import HALF, LOSS, curated, data
from tests.support.torch_modules import held, holding
from tests.support.torch_programs import program

EVERYTHING = functools.partial(lai.keep_top, fraction=1.0)


@holding(lambda norm: held(first=nn.Linear(4, 8, bias=False), norm=norm, last=nn.Linear(8, 3)))
def rooted(own, inputs):
    """Have a finite loss at an input of zeros, and below the last layer a gradient that is NaN."""
    hidden = own.first(inputs)
    root = hidden.square().sum(1, keepdim=True).sqrt()
    return own.last(torch.relu(own.norm(hidden)) + 0.0 * root)


def with_row(value, batch):
    inputs = batch[0].clone()
    inputs[2] = value
    return inputs, batch[1]


def five(batch):
    return batch[0][:5], batch[1][:5]


def none_of_five(scores):
    """Keep one of six samples, which BatchNorm cannot normalise, and no one of five."""
    kept = torch.zeros_like(scores)
    kept[: len(scores) - 5] = 1.0
    return kept if len(scores) < 7 else EVERYTHING(scores)


UNSCORED = ({"warmup": 9}, {"policy": lai_torch.Scheduled(EVERYTHING, lambda step: step >= 4)})
NAN, INFINITY, ROOT = (functools.partial(with_row, value) for value in (math.nan, math.inf, 0.0))
CASES = [
    # what spoils a batch, what makes a step train on it, the pass, the estimator
    *((bad, options, "kept", "lai") for bad in (NAN, INFINITY, ROOT) for options in UNSCORED),
    (NAN, UNSCORED[0], "kept", "exact"),
    (ROOT, {"policy": EVERYTHING}, "kept", "preconditioned_lai"),
    *((ROOT, {"policy": EVERYTHING}, backward, "lai") for backward in ("auto", "whole", "selective")),
    *((five, {"policy": none_of_five}, "kept", name) for name in ("ghost", "preconditioned_lai")),
]


def run(batches, options, backward, estimator):
    """Train on some batches; return the reports, and all that a later step depends on."""
    torch.manual_seed(0)
    model = rooted(nn.LayerNorm(8) if backward in {"whole", "selective"} else nn.BatchNorm1d(8)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    options = {"estimator": estimator, "backward": backward, **options}
    curator = lai_torch.Curator(model, LOSS, optimizer, data(9), **options)
    reports = [curator.step(*batch, groups=batch[1] * 0) for batch in batches]
    return reports, (model.state_dict(), optimizer.state_dict(), moments(curator))


def moments(curator):
    state = curator.state_dict()
    return state["second_moment"], (state["input_second_moments"] or {}).get("parts")


@pytest.mark.parametrize(("bad", "options", "backward", "estimator"), CASES)
def test_a_skipped_step_changes_nothing(bad, options, backward, estimator):
    torch.manual_seed(1)
    first, second, third = (data(8) for _ in range(3))
    reports, found = run([first, bad(second), third], options, backward, estimator)
    assert [report.skipped for report in reports] == [False, True, False]
    assert (reports[1].updated, reports[1].group_drops) == (False, {0: 1.0})
    torch.testing.assert_close(found, run([first, third], options, backward, estimator)[1], rtol=0, atol=0)


def test_an_overflow_changes_the_scale_alone():
    """As in plain training, where the scaler looks for a smaller one."""
    torch.manual_seed(1)
    model = rooted(nn.BatchNorm1d(8)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    kept = lai_torch.KeptOptions(scaler=scaler)
    curator = lai_torch.Curator(model, LOSS, optimizer, data(9), warmup=9, backward=kept)
    curator.step(*data(8))
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    assert curator.step(*ROOT(data(8))).skipped
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)
    assert scaler.get_scale() == 4.0


def test_second_moments_of_finite_gradients():
    def root(outputs, targets):  # finite at 0, where its derivative is not
        return (outputs - targets).square().sum(1).sqrt()

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    inputs, targets = torch.randn(8, 4).double(), torch.randn(8, 2).double()
    validation, rest = (inputs, targets + 1.0), torch.arange(8) != 2
    targets[2] = model(inputs)[2].detach()
    estimator, found = lai_torch.PreconditionedLAI(scale_inputs=True), []
    for batch in ((inputs, targets), (inputs[rest], targets[rest])):
        curator = lai_torch.Curator(model, root, None, validation, estimator=estimator)
        scores = curator.weigh([batch])[1].scores
        found.append((scores[torch.isfinite(scores)], moments(curator)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(("backward", "steps"), [("kept", 4), ("selective", 4), ("whole", 4), ("whole", 1)])
def test_too_few_finite_rows(backward, steps):
    """The gradient is that of the finite rows; with BatchNorm, whose statistics they would move, none is."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)).double()
    curator = curated(model, data(9), policy=EVERYTHING, backward=backward, refresh=9)
    # Of a batch that is proved, as the second one is, finite rows are read alone, before the policy is asked.
    for _ in range(steps):
        curator.step(*data(6))
    twin, batch = copy.deepcopy(model), NAN(data(6))
    report = curator.step(*batch)
    if backward == "whole":  # it goes back through every row before that is known
        assert (report.skipped, report.dropped) == (True, 1)
        return
    assert (report.kept, report.dropped, report.updated) == (5, 1, True)
    finite = torch.arange(6) != 2
    LOSS(twin(batch[0][finite]), batch[1][finite]).mean().backward()
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)


def test_one_row_for_batchnorm_is_skipped():
    """Its one row ran nowhere, and was finite: none is dropped."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()
    curator = curated(model, data(9), policy=functools.partial(lai.keep_top, fraction=0.1))
    report = curator.step(*data(6))
    assert (report.skipped, report.dropped, curator.dropped) == (True, 0, 0)


def test_gradients_whose_squares_overflow():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-30)
    validation = torch.randn(9, 4), torch.arange(9) % 3

    def loss(outputs, targets):
        return 1e30 * nn.functional.cross_entropy(outputs, targets, reduction="none")

    curator = lai_torch.Curator(model, loss, optimizer, validation, policy=HALF, warmup=1)
    before = model.weight.detach().clone()
    report = curator.step(torch.randn(6, 4), torch.arange(6) % 3)
    assert report.updated
    assert not torch.equal(model.weight, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [7002, 7026, 7067, 7112])
def test_infinite_rows_of_random_programs(seed):
    """No proof and no sum reads them, whatever a program's parts are."""
    one = program(seed)
    (inputs, targets), others = one.training, torch.arange(len(one.training[1])) != 2
    spoilt = inputs.clone()
    spoilt[2] = torch.nan
    for estimator in ("lai", "ghost"):
        without, found = (
            curated(one.model.eval(), one.validation, one.loss, estimator=estimator).score(*batch)[1].scores
            for batch in ((inputs[others], targets[others]), (spoilt, targets))
        )
        assert bool(found[2].isnan())
        torch.testing.assert_close(found[others], without, rtol=1e-7, atol=1e-9)
