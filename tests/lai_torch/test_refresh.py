"""The summary that scores come from: when it is made again, of what, and as factors of many outputs."""

import functools
import math
import warnings

import lai_torch
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import HALF, LOSS, curated, data, randn

network = functools.partial(support.network, outputs=6)


def test_loaders_give_batches_in_turn():
    parts = [data(5) for _ in range(2)]
    batch, model = data(7), network()
    curator = curated(model, parts, refresh=2)
    expected = [curated(model, part).score(*batch)[1].scores for part in parts]
    found = [curator.score(*batch)[1] for _ in range(6)]
    for report, which in zip(found, (0, 0, 1, 1, 0, 0), strict=True):
        torch.testing.assert_close(report.scores, expected[which])
    assert [report.age for report in found] == [0, 1, 0, 1, 0, 1]


def test_changed_parameters_are_summed_anew():
    validation, batch, model = data(5), data(7), network()
    curator = curated(model, validation, refresh=10)
    assert [curator.step(*batch).age for _ in range(3)] == [0, 1, 2]
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()})
    expected = curated(model, validation).score(*batch)[1].scores
    report = curator.step(*batch)
    assert report.age == 0
    torch.testing.assert_close(report.scores, expected)
    assert curator.step(*batch).age == 1


def test_other_heads_are_summed_anew():
    """Heads that take turns have had as many steps as the one before."""
    validation, batch, model = data(5), data(7), network()
    heads = [model[-1], network()[-1]]
    curator = curated(model, validation, refresh=10)
    curator._optimizer.add_param_group({"params": [*heads[1].parameters()]})
    for step in range(4):
        model[-1] = heads[step % 2]
        expected = curated(model, validation).score(*batch)[1].scores
        report = curator.step(*batch)
        assert report.age == 0
        torch.testing.assert_close(report.scores, expected)


@pytest.mark.parametrize("trains", [True, False])
def test_own_loops_see_thawed_layers(trains):
    """Whose steps are not seen; where the same parameters train, the summary stays."""
    validation, batch, model = data(5), data(7), network()
    first = next(model.parameters()).requires_grad_(not trains)
    weigher = lai_torch.Weigher(model, LOSS, validation, refresh=10)
    assert [weigher.weigh([batch])[1].age for _ in range(2)] == [0, 1]
    first.requires_grad_(trains)
    report = weigher.weigh([batch])[1]
    assert report.age == 0
    torch.testing.assert_close(report.scores, curated(model, validation).score(*batch)[1].scores)
    assert weigher.weigh([batch])[1].age == 1


def test_samples_in_a_list_are_collated():
    (inputs, targets), batch, model = data(5), data(7), network()
    expected = curated(model, (inputs, targets)).score(*batch)[1].scores
    for classes in (targets, targets.tolist()):
        samples = list(zip(inputs, classes, strict=True))
        torch.testing.assert_close(curated(model, samples).score(*batch)[1].scores, expected)


def test_a_share_is_drawn():
    model, validation, batch = network(), data(20), data(7)
    options = {"validation_fraction": 0.23, "generator": torch.Generator().manual_seed(1)}
    found = curated(model, validation, **options).score(*batch)[1].scores
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))[:5]  # 4.6 of them, and more
    expected = curated(model, (validation[0][order], validation[1][order])).score(*batch)[1].scores
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("options", [{"validation_fraction": 0.25}, {"estimator": lai_torch.LAI(sketch=2)}])
def test_refreshes_draw_by_torchs_seed(options):
    model, validation, batch, found = network(), data(40), data(7), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        curator = curated(model, validation, refresh=2, **options)
        found.append([curator.score(*batch)[1].scores for _ in range(3)])
    assert all(map(torch.equal, *found[:2]))
    first, second, third = found[0]
    assert torch.equal(first, second)
    assert not any(torch.equal(first, other) for other in (third, found[2][0]))


def spoiled(part):
    return torch.full_like(part[0], math.nan), part[1]


KEPT = ("ghost", "lai", "lli", "preconditioned_lai", "exact", "midpoint", "gate_lai")


@pytest.mark.parametrize(
    ("options", "bad"),
    [
        *(({"estimator": name}, spoiled(data(5))) for name in KEPT),
        ({"estimator": lai_torch.LAI(sketch=2)}, spoiled(data(5))),
        ({"estimator": lai_torch.CalibratedLAI(sketch=2)}, data(1)),
        ({"estimator": "calibrated_lai"}, spoiled(data(5))),
    ],
)
def test_useless_draws_keep_the_summary(options, bad):
    good, later, batch, model = data(5), data(6), data(7), network()
    plain, curator = (curated(model, parts, **options) for parts in ([good, later], [good, bad, later]))
    first, third = (plain.score(*batch)[1] for _ in range(2))
    torch.testing.assert_close(curator.score(*batch)[1].scores, first.scores)
    message = r"validation: .*; the summary made 1 step ago stays in use"
    with pytest.warns(UserWarning, match=message):
        second = curator.score(*batch)[1]
    torch.testing.assert_close(second.scores, first.scores)
    assert (second.age, third.age) == (1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fourth = curator.score(*batch)[1]  # the next draw serves
    assert fourth.age == 0
    if getattr(options["estimator"], "sketch", None) is None:  # a sketch was drawn for no use
        torch.testing.assert_close(fourth.scores, third.scores)
    with pytest.raises(ValueError, match=r"validation: .*expect.* finite loss"):
        curated(model, [bad], **options).score(*batch)


def test_shuffling_loaders_leave_the_stream():
    def streams(validation):
        torch.manual_seed(4)
        curator = curated(network(nn.Dropout(0.5)), validation, policy=HALF)
        for _ in range(3):
            curator.step(*data(6))
        return torch.get_rng_state()

    validation = data(10)
    loader = DataLoader(TensorDataset(*validation), batch_size=5, shuffle=True)
    assert torch.equal(streams(loader), streams([validation]))


@pytest.mark.parametrize("estimator", ["lai", "preconditioned_lai", "lli"])
def test_factors_score_as_all_pairs(estimator):
    """Of so many outputs that a summary is kept as factors."""
    model = nn.Sequential(nn.Linear(4, 100), nn.ReLU(), nn.Linear(100, 1300)).double()
    sides = [(randn(n, 4), torch.randint(1300, (n,))) for n in (6, 8, 6)]
    options = {"estimator": estimator, "refresh": 10**9}
    curator, other = (curated(model, side, **options) for side in sides[::2])
    report = curator.score(*sides[1])[1]
    assert curator.state.side.parts[0].factored
    if estimator != "preconditioned_lai":
        traces = [lai_torch.trace(model, LOSS, *side) for side in sides[:2]]
        expected = getattr(lai, f"{estimator}_scores")(*traces)
        torch.testing.assert_close(report.scores, expected, rtol=1e-11, atol=1e-13)
    other.load_state_dict(curator.state_dict())
    torch.testing.assert_close(other.score(*sides[1])[1].scores, report.scores, rtol=0, atol=0)
