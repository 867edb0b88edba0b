"""One forward pass for scoring and training both: the masked gradient, its cost, and when it is taken."""

import copy
import functools

import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import LOSS
from tests.support.torch_modules import held, holding

N = 9


@holding(
    lambda between=None: held(
        body=nn.Conv1d(2, 4, 3),
        scale=nn.Parameter(torch.rand(4, 1) + 0.5),
        norm=nn.GroupNorm(2, 4),
        between=nn.Identity() if between is None else between,
        head=nn.Linear(16, 3),
        heat=nn.Parameter(torch.tensor(1.5)),
    )
)
def mixed(own, inputs):
    """Apply convolution, a parameter of its own, a gain between and a temperature behind the last layer."""
    hidden = own.between(torch.relu(own.norm(own.scale * own.body(inputs))))
    return own.heat * own.head(hidden.flatten(1))


def data(n=N):
    return support.batch(n, 2, 6)


def curated(model, validation, share, backward, **options):
    policy = functools.partial(lai.keep_top, fraction=share)
    return support.curated(model, validation, policy=policy, backward=backward, **options)


@pytest.mark.parametrize("estimator", ["lai", "lli", "preconditioned_lai"])
@pytest.mark.parametrize("source", ["set", "batch"])
def test_a_whole_step_is_the_masked_step(estimator, source):
    model, validation = mixed().double(), data(20) if source == "set" else "batch"
    twin = copy.deepcopy(model)
    whole = curated(model, validation, 0.5, "whole", estimator=estimator)
    kept = curated(twin, validation, 0.5, "kept", estimator=estimator)
    for _ in range(3):
        batch = data()
        report, expected = whole.step(*batch), kept.step(*batch)
        assert (report.backward, expected.backward, report.kept) == ("whole", "kept", 5)
        torch.testing.assert_close(report.scores, expected.scores)
        torch.testing.assert_close(report.loss, expected.loss)
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    weights, scored = whole.score(*batch)
    assert scored.backward == "kept"
    assert torch.equal(weights, scored.weights)


def test_the_forward_pass_is_that_of_training_and_happens_once():
    model = mixed(nn.Dropout(0.5)).double()
    twin, batch, validation = copy.deepcopy(model), data(), data(20)
    curator = curated(model, validation, 1.0, "whole")
    calls = []
    model.register_forward_pre_hook(lambda module, _: calls.append(module.training))
    state = torch.get_rng_state()
    report = curator.step(*batch)
    after = torch.get_rng_state()
    assert calls[-1]
    assert calls.count(True) == 1
    torch.set_rng_state(state)
    losses = LOSS(twin(batch[0]), batch[1])
    assert torch.equal(after, torch.get_rng_state())
    torch.testing.assert_close(report.losses, losses.detach())
    losses.mean().backward()
    torch.testing.assert_close(*([p.grad for p in one.parameters()] for one in (model, twin)))


def test_auto_takes_the_way_that_the_mean_share_makes_cheaper_and_resumes_it():
    model, validation, batch = mixed().double(), data(20), data()
    for share, expected in ((0.6, ["kept"] * 3), (0.7, ["kept", "whole", "whole"])):
        assert [curated(model, validation, share, "auto").score(*batch)[1].backward] == ["kept"]
        curator = curated(model, validation, share, "auto")
        assert [curator.step(*batch).backward for _ in range(3)] == expected
    resumed = curated(model, validation, 0.7, "auto")
    resumed.load_state_dict(curator.state_dict())
    assert resumed.step(*batch).backward == "whole"
    resumed.policy = functools.partial(lai.keep_top, fraction=0.01)
    assert [resumed.step(*batch).backward for _ in range(4)] == ["whole", "whole", "kept", "kept"]


def test_batchnorm_in_training_mode_is_refused_and_never_chosen():
    model, batch = mixed(nn.BatchNorm1d(4)).double(), data()
    with pytest.raises(ValueError, match=r"'whole' expects .* BatchNorm 'between' in training mode does"):
        curated(model, batch, 1.0, "whole").step(*batch)
    curator = curated(model, batch, 1.0, "auto")
    assert [curator.step(*batch).backward for _ in range(2)] == ["kept", "kept"]
    model.eval()
    assert curator.step(*batch).backward == "whole"


def test_a_batch_with_a_sample_that_is_not_finite_is_trained_on_its_kept_rows():
    model, validation, (inputs, targets) = mixed().double(), data(20), data()
    curator = curated(model, validation, 0.5, "whole")
    inputs[1] = torch.nan
    report = curator.step(inputs, targets)
    assert (report.backward, report.dropped, report.skipped) == ("kept", 1, False)
    assert bool(report.scores[1].isnan())
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
