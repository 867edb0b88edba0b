"""Estimators that read more of a validation set: weights of layers fitted on it, scores of its parts."""

import functools
from dataclasses import replace

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch import support
from tests.lai_torch.support import LOSS, data, network

curated = functools.partial(support.curated, lr=0.5, estimator="calibrated_lai")


def slopes(model, batch):
    """Fit, through zero, the slope of Ghost's part on LAI's over all pairs of samples, layer by layer."""
    trace, found = lai_torch.trace(model, LOSS, *batch, gradients="all"), []
    layers = [layer for layer in trace.layers if isinstance(layer, lai.LayerTrace)]
    alone, apart = lai.Trace(layers), ~torch.eye(len(batch[1]), dtype=torch.bool)
    for layer, only in zip(layers, torch.eye(len(layers)).tolist(), strict=True):
        part = lai.lai_kernel(alone, alone, layer_weights=only)[apart]
        ghost = lai.ghost_kernel(lai.Trace([layer]), lai.Trace([layer]))[apart]
        found.append((ghost @ part) / (part @ part))
    return torch.stack(found)


@pytest.mark.parametrize(("size", "rows"), [(7, [0, 2, 5, 8, 11, 14, 17]), (1, [0, 10])])
def test_weights_fit_on_a_batchs_worth(size, rows):
    model = network(nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8))
    validation, batch = data(20), data(size)
    report = curated(model, validation).score(*batch)[1]
    expected = slopes(model, tuple(side[rows] for side in validation))  # at equal distances
    torch.testing.assert_close(report.layer_weights, expected, rtol=1e-10, atol=0)
    sides = [lai_torch.trace(model, LOSS, *side) for side in (validation, batch)]
    scores = lai.lai_scores(*sides, layer_weights=expected.tolist())
    torch.testing.assert_close(report.scores, scores, rtol=1e-10, atol=1e-12)
    assert expected[-1] == pytest.approx(1.0)
    assert bool(((expected[:-1] - 1.0).abs() > 0.1).all())
    assert lai_torch.Curator(model, LOSS, None, validation).score(*batch)[1].layer_weights is None


KINDS = (lai_torch.LAI, lai_torch.LLI, lai_torch.Ghost, lai_torch.PreconditionedLAI, lai_torch.CalibratedLAI)
ESTIMATORS = (*(kind(parts=4) for kind in KINDS), lai_torch.LAI(chunk=2, parts=4))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_scores_of_parts(estimator):
    model, validation, batch = network(), data(11), data(7)
    options = {"estimator": estimator, "policy": functools.partial(lai.drop_harmful, rate=0.5)}
    _, report = support.curated(model, validation, **options).score(*batch)
    assert report.sizes == (2, 3, 3, 3)
    torch.testing.assert_close(report.parts.sum(0), report.scores)
    expected = lai.drop_harmful(report.parts, rate=0.5, sizes=report.sizes)
    torch.testing.assert_close(report.weights, expected)
    if estimator.name == "calibrated_lai":  # whose weights are fitted on the whole set
        return
    parts = zip(*(side.split(report.sizes) for side in validation), strict=True)
    for part, scores in zip(parts, report.parts, strict=True):
        _, alone = support.curated(model, part, estimator=replace(estimator, parts=None)).score(*batch)
        torch.testing.assert_close(scores, alone.scores)
