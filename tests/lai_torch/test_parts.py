"""A validation set cut into parts: their scores, the policy that tests them, and what cannot be cut."""

import functools
import itertools
from dataclasses import replace

import lai_torch
import pytest
import torch

import lai_core as lai
from tests.lai_torch.support import curated, data, network

KINDS = (lai_torch.LAI, lai_torch.LLI, lai_torch.Ghost, lai_torch.PreconditionedLAI, lai_torch.CalibratedLAI)
ESTIMATORS = (*(kind(parts=4) for kind in KINDS), lai_torch.LAI(chunk=2, parts=4))


def slices(batch, parts):
    samples = len(batch[1])
    ends = [part * samples // parts for part in range(parts + 1)]
    return [tuple(x[a:b] for x in batch) for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_scores_of_parts_are_those_against_each_part_alone(estimator):
    model, validation, batch = network(), data(11), data(7)
    options = {"estimator": estimator, "policy": functools.partial(lai.drop_harmful, rate=0.5)}
    _, report = curated(model, validation, **options).score(*batch)
    assert report.sizes == (2, 3, 3, 3)
    torch.testing.assert_close(report.parts.sum(0), report.scores)
    expected = lai.drop_harmful(report.parts, rate=0.5, sizes=report.sizes)
    torch.testing.assert_close(report.weights, expected)
    if estimator.name == "calibrated_lai":  # whose weights are fitted on the whole set
        return
    for part, scores in zip(slices(validation, 4), report.parts, strict=True):
        _, alone = curated(model, part, estimator=replace(estimator, parts=None)).score(*batch)
        torch.testing.assert_close(scores, alone.scores)


def test_only_what_hurts_for_certain_is_dropped():
    """Labels of the batch are those of one half of the validation set, or of none of it."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    inputs = torch.randn(64, 3).abs()
    validation = inputs, torch.zeros(64, dtype=torch.long)
    batch = inputs[:8] + 0.1, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    curator = curated(model, validation, estimator=lai_torch.LLI(parts=16), policy=lai.drop_harmful)
    report = curator.step(*batch)
    assert (report.weights > 0).tolist() == [True] * 4 + [False] * 4
    low, high = lai.score_intervals(report.parts, sizes=report.sizes)
    assert bool(((low < report.scores) & (report.scores < high)).all())


def test_parts_without_a_finite_sample_are_left_out_and_broken_samples_have_no_weight():
    model, (inputs, targets), (rows, labels) = network(), data(8), data(5)
    inputs, rows = inputs.clone(), rows.clone()
    inputs[2:5], rows[1] = torch.nan, torch.inf
    curator = curated(model, (inputs, targets), estimator=lai_torch.LAI(parts=4), policy=lai.drop_harmful)
    report = curator.step(rows, labels)
    assert report.sizes == (2, 1, 2)
    assert report.weights[1] == 0
    assert bool(report.parts[:, 1].isnan().all())
    assert int(report.parts.isfinite().all(0).sum()) == 4
