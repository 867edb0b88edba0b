"""The curator around the loop: sources of validation, accumulation, precision, groups, audit, resuming."""

import copy
import json
import math

import lai_torch
import numpy as np
import pytest
import torch

import lai_core as lai
from tests.lai_torch.support import LOSS, curated, data, network
from tests.support.torch_functions import Custom
from tests.support.torch_modules import Part


def test_exact_estimators_report_their_method():
    report = curated(network(), data(6), estimator="exact").step(*data(5))
    assert (report.method, report.reason) == ("forward", None)
    doubled = network(Part(lambda _, hidden: Custom.apply(hidden, 2.0)))
    report = curated(doubled, data(6), estimator="midpoint").step(*data(5))
    assert report.method == "double backward"
    assert report.reason.startswith("forward: Ruled: ")
    assert curated(network(), data(6)).step(*data(5)).method is None


@pytest.mark.parametrize("estimator", ["ghost", "lai", "lli", "preconditioned_lai"])
def test_a_batch_scores_itself(estimator):
    model, batch = network(), data(7)
    trace = lai_torch.trace(model, LOSS, *batch, gradients="all")
    moment = lai.update_second_moment(None, trace.layers[-1].output_gradients)
    more = {"second_moment": moment} if estimator == "preconditioned_lai" else {}
    for source, left_out in (("batch", True), ("batch+self", False)):
        report = curated(copy.deepcopy(model), source, estimator=estimator).step(*batch)
        expected = getattr(lai, f"{estimator}_scores")(trace, trace, exclude_self=left_out, **more)
        torch.testing.assert_close(report.scores, expected)
    whole = curated(model, "batch+self", estimator="exact").score(*batch)[1].scores
    torch.testing.assert_close(whole, lai_torch.exact_scores(model, LOSS, batch, batch))


def test_grad_scalers_change_nothing():
    validation, batch = data(11), data(7)
    found = []
    for scale in (None, 2.0**4, 2.0**10):
        torch.manual_seed(3)
        model = network()
        scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale)
        report = curated(model, validation, backward=lai_torch.KeptOptions(scaler=scaler)).step(*batch)
        found.append((report.scores, torch.cat([p.detach().flatten() for p in model.parameters()])))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_groups_have_a_floor():
    model, batch = network(), data(12)
    groups = torch.arange(12) % 3
    scores = torch.linspace(-3, -1, 12, dtype=torch.float64)
    scores[groups == 0] = 1.0

    def policy(_):
        return lai.keep_positive(scores)

    plain = curated(model, data(11), policy=policy).step(*batch, groups=groups)
    assert plain.group_drops == {0: 0.0, 1: 1.0, 2: 1.0}
    names = ["abc"[group] for group in groups]
    for named in (names, np.array(names)):
        named = curated(model, data(11), policy=policy).step(*batch, groups=named)
        assert named.group_drops == {"a": 0.0, "b": 1.0, "c": 1.0}
        assert {type(name) for name in named.group_drops} == {str}
    curator = curated(model, data(11), policy=lai_torch.GroupFloor(0.5, policy))
    named = curator.score(*batch, groups=names)[1]
    assert named.group_drops == {"a": 0.0, "b": 0.5, "c": 0.5}
    parts = [(batch[0][rows], batch[1][rows]) for rows in (slice(5), slice(5, 12))]
    assert curator.weigh(parts, groups=[names[:5], names[5:]])[1].group_drops == named.group_drops
    weights, report = curator.score(*batch, groups=groups)
    assert report.group_drops == {0: 0.0, 1: 0.5, 2: 0.5}
    assert float(weights.sum()) == pytest.approx(1.0)
    for group in (1, 2):
        members = groups == group
        own = report.scores[members]
        assert torch.equal(weights[members] > 0, own >= own.sort(descending=True).values[1])


def test_rows_are_plain_values():
    inputs, targets = data(3)
    curator = curated(network(), data(11), warmup=1)
    lines = curator.step(inputs, targets).rows(["a", "b", "a"])
    inputs[1] = math.nan
    report = curator.step(inputs, targets)
    lines += report.rows(np.array([7, 8, 7]))
    assert lines == json.loads(json.dumps(lines, allow_nan=False))
    assert lines[3:] == report.rows(torch.tensor([7, 8, 7]))
    assert [(line["step"], line["id"]) for line in lines] == [
        *((0, one) for one in "aba"),
        *((1, one) for one in (7, 8, 7)),
    ]
    assert [row["id"] for row in report.rows()] == [0, 1, 2]
    assert [line["score"] for line in lines[:3]] == [None] * 3
    found = [lines[4][name] for name in ("score", "loss", "weight", "decision")]
    assert found == [None, None, 0.0, "dropped"]
    for line, score, weight in zip(lines[3:], report.scores.tolist(), report.weights.tolist(), strict=True):
        assert line["weight"] == weight
        assert line["decision"] == ("kept" if weight > 0 else "dropped")
        assert math.isnan(score) or line["score"] == score


def test_drawing_from_a_pool_is_unbiased():
    scores = torch.tensor([3.0, 0.0, 1.0, -2.0, math.nan], dtype=torch.float64)
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    index, weights = lai_torch.draw(scores, 200_000, floor=0.5, generator=generator)
    assert float((weights * losses[index]).sum()) == pytest.approx(float(losses[:4].mean()), rel=0.01)
    counts = torch.bincount(index, minlength=5) / 200_000
    torch.testing.assert_close(counts, torch.tensor([0.5, 0.125, 0.25, 0.125, 0.0]), rtol=0.05, atol=0)
