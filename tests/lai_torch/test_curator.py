"""The training loop: what is scored, what is kept, what is left alone."""

import copy
import math

import lai_torch
import pytest
import torch
from lai_torch.integrations._options import Log

import lai_core as lai
from tests.lai_torch.support import LOSS, curated, data, network

ESTIMATORS = ("ghost", "lai", "lli", "preconditioned_lai")


def named(batch):
    return {"input": batch[0], "targets": batch[1], "row": torch.arange(len(batch[1]))}


@pytest.mark.parametrize("form", [tuple, list, named])
def test_batches_as_loaders_give_them(form):
    """A pair is a batch; of a mapping the model takes the keys that it knows."""
    batch, validation, model = data(7), data(20), network()
    expected = curated(copy.deepcopy(model), validation)
    report = expected.step(*batch)
    found, given = curated(model, validation), form(batch)
    if form is named:
        found = curated(model, named(validation), lambda outputs, given: LOSS(outputs, given["targets"]))
    torch.testing.assert_close(found.weigh([given])[0][0], report.weights)
    torch.testing.assert_close(found.score(given)[0], report.weights)
    torch.testing.assert_close(found.step(given).weights, report.weights)
    torch.testing.assert_close(list(found.model.parameters()), list(expected.model.parameters()))


def test_metrics_are_finite_floats():
    curator, batch = curated(network(), data(20)), data(20)
    batch[0][3] = math.nan
    report = curator.step(*batch, groups=torch.arange(20) % 2)
    found = report.metrics()
    assert all(type(value) is float and math.isfinite(value) for value in found.values())
    scores = sorted(report.scores[report.scores.isfinite()].tolist())
    assert len(scores) == 19
    expected = {
        "curation/kept": int((report.weights > 0).sum()) / 20,
        "curation/loss": float((report.weights * report.losses).nansum()),
        "curation/not_finite": 1.0,
        "curation/skipped": 0.0,
        "curation/validation_age": 0.0,
        "curation/score_low": 0.1 * scores[0] + 0.9 * scores[1],  # 5% of 18 intervals is 0.9
        "curation/score_median": scores[9],
        "curation/score_high": 0.9 * scores[17] + 0.1 * scores[18],
        "curation/dropped/0": float((report.weights[::2] == 0).double().mean()),
        "curation/dropped/1": float((report.weights[1::2] == 0).double().mean()),
    }
    assert found == pytest.approx(expected)
    log = Log()
    log.add(report)
    logged = log.take()
    assert logged.items() <= found.items()
    unlogged = {"loss", "not_finite", "skipped", "validation_age"}
    assert {*found} - {*logged} == {f"curation/{name}" for name in unlogged}


def test_metrics_leave_out_infinite_values():
    skipped = curated(network(), data(20), policy=torch.zeros_like).step(*data(7)).metrics()
    assert "curation/loss" not in skipped
    assert skipped["curation/skipped"] == 1.0
    unscored = curated(network(), data(20), warmup=1).step(*data(7)).metrics()
    assert not [name for name in unscored if "score" in name]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("estimator", [*ESTIMATORS, "exact", "midpoint", "gate_lai", "calibrated_lai"])
def test_infinite_samples_are_left_out(estimator, bad):
    model, sides, found = network(), [data(7), data(9)], []
    clean = [tuple(part[1:] for part in side) for side in sides]
    for inputs, _ in sides:
        inputs[0] = bad
    for validation, batch in (clean, sides):
        options = {"estimator": estimator, "policy": torch.ones_like}  # NaN, too
        curator = curated(copy.deepcopy(model), validation, **options)
        report = curator.step(*batch)
        assert not report.skipped
        found += [report, list(curator.model.parameters())]
    assert (curator.dropped, report.dropped) == (1, 1)
    torch.testing.assert_close(found[1], found[3])
    torch.testing.assert_close(found[2].scores[1:], found[0].scores)
    assert bool(found[2].scores[0].isnan())


@pytest.mark.parametrize("scale_inputs", [False, True])
def test_options_of_the_preconditioner(scale_inputs):
    model, validation = network(), data(20)
    estimator = lai_torch.PreconditionedLAI(decay=0.5, exponent=0.5, scale_inputs=scale_inputs)
    curator, moment, inputs = curated(model, validation, estimator=estimator), None, None
    resumed = curated(model, validation, estimator=estimator)
    for batch in (data(9), data(8)):
        sides = [lai_torch.trace(model, LOSS, *side) for side in (validation, batch)]
        moment = lai.update_second_moment(moment, sides[1].layers[-1].output_gradients, decay=0.5)
        if scale_inputs:
            inputs = lai.update_input_second_moments(inputs, sides[1], decay=0.5)
        expected = lai.preconditioned_lai_scores(*sides, moment, input_second_moments=inputs, exponent=0.5)
        for one in (curator, curator, resumed):  # to look at scores is not to train: moments stay
            torch.testing.assert_close(one.score(*batch)[1].scores, expected)
        torch.testing.assert_close(curator.step(*batch).scores, expected)
        resumed.load_state_dict(curator.state_dict())
    assert curator.steps == 2


@pytest.mark.parametrize(
    "estimator", [lai_torch.Ghost, lai_torch.LAI, lai_torch.LLI, lai_torch.GateLAI, lai_torch.Exact]
)
def test_scores_in_chunks_are_the_scores(estimator):
    model, validation, batch, rows, found = network(), data(11), data(7), [], []
    batch[0][5] = torch.nan
    model.register_forward_hook(lambda module, inputs, outputs: rows.append(outputs.shape[-2]))
    for chunk in (None, 3):
        rows.clear()
        curator = lai_torch.Curator(model, LOSS, None, validation, estimator=estimator(chunk=chunk))
        found.append(curator.score(*batch)[1])
        assert found[-1].dropped == 1
    torch.testing.assert_close(found[1].scores, found[0].scores, equal_nan=True)
    torch.testing.assert_close(found[1].losses, found[0].losses, equal_nan=True)
    assert max(rows) == 3
