"""Models with many outputs: their summary stays factors, cached, saved, and joined over processes."""

import functools

import lai_torch
import pytest
import torch
import torch.distributed as dist
from torch import nn

import lai_core as lai
from tests.lai_torch.support import LOSS
from workloads.launches import launch

OUTPUTS = 1300
HALF = functools.partial(lai.keep_top, fraction=0.5)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 100), nn.ReLU(), nn.Linear(100, OUTPUTS)).double()


def data(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 9, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(OUTPUTS, (samples,), generator=generator)


def curated(validation, group=False, **options):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lai_torch.Curator(model, LOSS, optimizer, validation, policy=HALF, group=group, **options)


def held(curator):
    (summary,) = curator._scoring.summaries._summary.parts
    return summary


@pytest.mark.parametrize("estimator", ["lai", "preconditioned_lai", "lli"])
def test_a_curator_scores_from_factors_as_from_all_pairs(estimator):
    curator, batch = curated(data(6, 1), estimator=estimator, refresh=10**9), data(8, 2)
    _, report = curator.score(*batch)
    assert held(curator).factored
    if estimator != "preconditioned_lai":
        traces = [lai_torch.trace(curator.model, LOSS, *side) for side in (data(6, 1), batch)]
        expected = getattr(lai, f"{estimator}_scores")(*traces)
        torch.testing.assert_close(report.scores, expected, rtol=1e-11, atol=1e-13)
    other = curated(data(6, 3), estimator=estimator, refresh=10**9)
    other.load_state_dict(curator.state_dict())
    torch.testing.assert_close(other.score(*batch)[1].scores, report.scores, rtol=0, atol=0)


def test_a_summary_of_many_chunks_folds_within_its_budget():
    matrix = OUTPUTS * (9 + 100 + 1) * 8
    for budget in (matrix, matrix - 8):
        estimator = lai_torch.LAI(memory_budget=budget, chunk=40)
        curator = curated(data(120, 1), estimator=estimator)
        if budget < matrix:
            with pytest.raises(ValueError, match=f"expected at least {matrix} bytes for the summary"):
                curator.score(*data(8, 2))
        else:
            curator.score(*data(8, 2))
            assert not held(curator).factored


SOURCES = {"a set": lambda: data(6, 1), "one sample": lambda: data(1, 1), "a large set": lambda: data(120, 1)}


def scored(rank, processes):
    """Return this process's scores, against each source."""
    inputs, targets = data(8, 2)
    part = inputs[rank::processes], targets[rank::processes]
    group = dist.group.WORLD if processes > 1 else False
    found = {}
    for name, source in SOURCES.items():
        curator = curated(source(), group)
        scores = curator.score(*part)[1].scores
        found[name] = scores, held(curator).factored
    return found | {"batch": (curated("batch", group).score(*part)[1].scores, True)}


@pytest.mark.slow
def test_processes_join_factors():
    whole, parts = scored(0, 1), launch(scored, 2, 2)
    for name, (expected, factored) in whole.items():
        assert factored == (name != "a large set")
        for rank, part in enumerate(parts):
            found, kept = part[name]
            assert kept == factored
            torch.testing.assert_close(found, expected[rank::2], rtol=1e-9, atol=1e-12)
