"""Checks that a step defers: where one fails, the step is taken again, and reads each as it arises."""

import copy
import functools

import lai_torch
import pytest
import torch
from lai_torch._curation.deferred import CheckFailed, DeferredChecks
from torch import nn

import lai_core as lai
from tests.lai_torch.support import HALF, LOSS, data
from tests.support.torch_modules import held, holding

POLICIES = {"count known": HALF, "count unknown": lai.keep_positive}


def curated(policy, model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curator = lai_torch.Curator(model, LOSS, optimizer, data(9), policy=policy, refresh=10**9, **options)
    return model, curator


@pytest.mark.parametrize("more", [(), (nn.BatchNorm1d(8), nn.Dropout(0.5))])
@pytest.mark.parametrize("name", POLICIES)
def test_a_loss_that_is_not_finite_takes_the_step_that_reads_as_it_goes(name, more):
    """The same as if every question had been read where it arises, whatever was drawn and averaged before."""
    policy, found = POLICIES[name], []
    for chosen in (policy, lambda scores: policy(scores)):  # nobody knows the second: nothing is put off
        torch.manual_seed(5)
        layers = nn.Linear(4, 8), *more, nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3)
        model, curator = curated(chosen, copy.deepcopy(nn.Sequential(*layers).double()))
        torch.manual_seed(6)
        curator.step(*data(6))
        inputs, targets = data(6)
        inputs[2] = torch.nan
        report = curator.step(inputs, targets)
        assert report.dropped == 1
        found.append([report.scores, torch.get_rng_state(), *model.state_dict().values()])
    torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)


def test_a_model_that_cannot_stand_what_is_not_finite_never_trains_on_it():
    @holding(lambda: held(layer=nn.Linear(4, 3).double()))
    def strict(own, inputs):
        if own.training and not bool(torch.isfinite(inputs).all()):
            raise RuntimeError("not finite")
        return own.layer(inputs)

    _, curator = curated(functools.partial(lai.keep_top, fraction=1.0), strict())
    inputs, targets = data(6)
    inputs[2] = torch.nan
    report = curator.step(inputs, targets)
    assert (report.kept, report.dropped, report.updated) == (5, 1, True)


def test_an_error_of_the_model_is_raised_as_it_is():
    class Broken(nn.Linear):
        def forward(self, inputs):
            if self.training:
                raise RuntimeError("broken")
            return super().forward(inputs)

    _, curator = curated(HALF, Broken(4, 3).double())
    with pytest.raises(RuntimeError, match="broken"):
        curator.step(*data(6))


def test_gradients_whose_squares_overflow_are_stepped_on():
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


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_taken_for_finite_is_looked_at_to_the_last_entry(bad, kind):
    """The largest numbers of a type are finite; one entry that is not is found wherever it stands."""
    checks = DeferredChecks()
    large = torch.full((37,), -torch.finfo(kind).max, dtype=kind)
    checks.begin(later=True)
    assert checks.finite(large)
    assert checks.finite(torch.ones(3))
    assert checks.resolve(torch.tensor(1e300, dtype=torch.float64)) == [1e300]
    for place in (0, 17, 36):
        spoilt = large.clone()
        spoilt[place] = bad
        checks.begin(later=True)
        assert checks.finite(torch.ones(3, dtype=torch.float64))
        assert checks.finite(spoilt)
        with pytest.raises(CheckFailed):
            checks.resolve()
