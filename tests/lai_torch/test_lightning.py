"""Curation in Lightning: automatic and manual optimization, processes and restarts are one run."""

import lai_torch
import pytest
import torch
from lai_torch.integrations.lightning import Curation

from lai_core.mixtures import Mixture, group_scores
from tests.lai_torch.support import LOSS, data
from tests.support.workloads.launches import in_ways, launch
from tests.support.workloads.lightning_runs import Module, fitted, mixed, rows_of, train
from tests.support.workloads.torch_processes import VALIDATION, batch, largest, network

pytestmark = pytest.mark.filterwarnings("default")  # Lightning's own
BOUND = 1e-12


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(0, str(tmp_path_factory.mktemp("whole")))


def test_a_run_is_a_curators(whole):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    curator = lai_torch.Curator(model, LOSS, optimizer, batch(VALIDATION, 7), refresh=3)
    for _ in range(2):
        for given in rows_of(0, 1):
            report = curator.step(*given)
    expected = torch.cat([each.detach().flatten() for each in model.parameters()])
    assert largest(whole[0], expected) <= BOUND
    assert whole[1]["curation/kept"] == pytest.approx(report.kept_fraction)
    assert whole[1]["curation/score_median"] == pytest.approx(float(report.scores.quantile(0.5)))


@pytest.mark.slow
def test_processes_find_what_one_finds(whole, tmp_path):
    ways = [(train, each) for each in ({"parts": 2}, {}, {"epochs": 1}, {"resume": f"{tmp_path}/1.ckpt"})]
    for cut, through, _, resumed in launch(in_ways, 2, str(tmp_path), 2, *ways, timeout=300.0):
        for parameters, logged in (cut, through):
            assert largest(parameters, whole[0]) <= BOUND
            assert logged["curation/kept"] == pytest.approx(whole[1]["curation/kept"])
        assert torch.equal(through[0], resumed[0])


@pytest.mark.parametrize("stream", [False, True])
def test_mixtures_follow_scores_and_resume(tmp_path, stream):
    parameters, logged = mixed(str(tmp_path), stream=stream)
    shares = [logged[f"curation/share/{source}"] for source in range(3)]
    assert sum(shares) == pytest.approx(1.0)
    assert max(shares) > 0.4
    mixed(str(tmp_path), stream=stream, steps=5)
    resumed, later = mixed(str(tmp_path), stream=stream, resume=f"{tmp_path}/5.ckpt")
    assert torch.equal(resumed, parameters)
    assert later == logged


def test_a_mixtures_loop_by_hand(tmp_path):
    mixture, (inputs, targets) = Mixture(3, confidence=0.0), batch(60, 3)
    sampler = lai_torch.MixtureSampler(torch.arange(60) % 3, mixture, 32, batches=7)
    model, indices, seen = network(), iter(sampler), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    options = {"estimator": "lli", "policy": lambda scores: torch.full_like(scores, 1 / 32), "refresh": 2}
    curator = lai_torch.Curator(model, LOSS, optimizer, batch(VALIDATION, 7), **options)
    for step in range(1, 7):
        rows = torch.tensor([next(indices) for _ in range(32)])
        seen.append((curator.step(inputs[rows], targets[rows]).scores, rows % 3))
        if step % 2 == 0:
            mixture.step(*group_scores(*(torch.cat(column) for column in zip(*seen, strict=True)), 3))
            seen.clear()
    _, logged = mixed(str(tmp_path), steps=6)
    shares = [logged[f"curation/share/{source}"] for source in range(3)]
    assert shares == pytest.approx(mixture.weights, rel=1e-6)
    assert max(shares) > 0.4


def test_steps_without_objective_are_told(tmp_path):
    class Forgetful(Module):
        def training_step(self, given, index):
            return LOSS(self.net(given[0]), given[1]).mean()

    module = Forgetful(Curation(LOSS, data(5), model=lambda module: module.net), 1)
    loader = torch.utils.data.DataLoader(rows_of(0, 1), batch_size=None)
    with pytest.warns(UserWarning, match=r"return curation\.objective\(batch\) from training_step") as said:
        fitted(module, loader, f"{tmp_path}/1.ckpt", 0, 1, ckpt_path=None, max_epochs=1)
    assert sum("objective" in str(each.message) for each in said) == 1
