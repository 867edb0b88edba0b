"""Samples whose gradients nearly cancel in the sum, or are one vector: no check refuses them for roundings.

And no check loses sight of a single sample among many.
"""

from unittest import mock

import pytest
import torch
from lai_torch._captured import run
from torch import nn

from tests.lai_torch.support import curated

WIDTH = 24


def squares(outputs, targets):
    return (outputs - targets).square().sum(1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 33), nn.LayerNorm(33), nn.GELU(), nn.Linear(33, 5)).float()


def paired(model, samples):
    """Return a batch in which every two samples have gradients that add up to zero, but for roundings."""
    inputs = torch.randn(samples // 2, WIDTH).repeat(2, 1)
    away = torch.randn(samples // 2, 5)
    with torch.no_grad():
        return inputs, model(inputs) + torch.cat([away, -away])


def stepped(model, inputs, targets, kept):
    """Take a step of the selective pass on chosen rows."""
    options = {"backward": "selective", "estimator": "lli", "policy": lambda scores: kept / kept.sum()}
    return curated(model, (inputs[:9], targets[:9]), squares, **options).step(inputs, targets)


def test_a_selective_gradient_that_cancels_is_not_refused():
    model = network()
    assert stepped(model, *paired(model, 512), (torch.rand(256).repeat(2) < 0.5).float()).updated


def test_one_percent_of_one_row_in_a_selective_gradient_is_seen():
    inputs, own = torch.randn(1, WIDTH) + 0.1 * torch.randn(512, WIDTH), run.weigh_rows
    targets = torch.full((512, 5), 3.0)  # all push one way

    def wrong(place, value, weights):
        changed = weights.clone()
        changed[3] *= 1.01 if len(weights) < 512 else 1.0
        return own(place, value, changed)

    with (
        mock.patch.object(run, "weigh_rows", wrong),
        pytest.raises(ValueError, match="differs from the"),
    ):
        stepped(network(), inputs, targets, (torch.arange(512) % 2 == 0).float())
