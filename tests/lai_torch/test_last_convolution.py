"""Models that end in a convolution: a matrix on every patch, in every way a step can take."""

import copy

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.support import HALF, LOSS
from tests.support.torch_modules import held, holding
from workloads.torch_oracle import exact_kernel, per_sample_gradients

N = 5


@holding(lambda body, last: held(body=body, last=last))
def pooled(own, inputs):
    """Average the output map of a last convolution."""
    return own.last(torch.tanh(own.body(inputs))).flatten(2).mean(2)


def shared(kernel, **options):
    convolution = nn.Conv2d(3, 3, kernel, **options)
    return pooled(convolution, convolution)


MODELS = {
    "1d": (lambda: pooled(nn.Conv1d(1, 4, 3), nn.Conv1d(4, 3, 2)), (1, 8)),
    "1d, as many channels as positions": (lambda: pooled(nn.Identity(), nn.Conv1d(3, 3, 2)), (3, 4)),
    "strided": (lambda: pooled(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 3, 3, 2, padding=1, dilation=2)), (1, 8, 7)),
    "grouped": (lambda: pooled(nn.Conv2d(1, 6, 3), nn.Conv2d(6, 3, 3, groups=3, bias=False)), (1, 7, 7)),
    "circular": (
        lambda: pooled(nn.Conv3d(1, 2, 2), nn.Conv3d(2, 3, 2, padding=1, padding_mode="circular")),
        (1, 4, 4, 3),
    ),
    "shared pixels": (lambda: shared(1), (3, 4, 4)),
    "shared patches": (lambda: shared(3), (3, 6, 6)),
}


def built(name):
    build, shape = MODELS[name]
    inputs = torch.randn(N, *shape, dtype=torch.float64)
    return build().double(), inputs, torch.arange(N) % 3


@pytest.mark.parametrize("name", MODELS)
def test_ghost_is_exact(name):
    model, inputs, targets = built(name)
    trace = lai_torch.trace(model, LOSS, inputs, targets, gradients="all")
    expected = exact_kernel(model, LOSS, inputs, targets, N)
    torch.testing.assert_close(lai.ghost_kernel(trace, trace), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in MODELS if "shared" not in name and name != "grouped"])
def test_the_last_layers_part_of_lai_is_that_of_its_own_parameters(name):
    model, inputs, targets = built(name)
    last = lai.Trace(lai_torch.trace(model, LOSS, inputs, targets).layers[-1:])
    model.body.requires_grad_(requires_grad=False)
    gradients = per_sample_gradients(model, LOSS, inputs, targets, N)
    for kernel in (lai.lai_kernel(last, last), lai.ghost_kernel(last, last)):
        torch.testing.assert_close(kernel, gradients @ gradients.T, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(lai.lli_scores(last, last), (gradients @ gradients.T).sum(0))


@pytest.mark.parametrize("name", MODELS)
def test_every_way_scores_and_trains_alike(name):
    model, *batch = built(name)
    found = []
    for backward in ("kept", "whole", "selective"):
        own = copy.deepcopy(model)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        curator = lai_torch.Curator(
            own,
            LOSS,
            optimizer,
            tuple(batch),
            estimator=lai_torch.LAI(positions="mean"),
            backward=backward,
            policy=HALF,
        )
        scores = [curator.step(*batch).scores for _ in range(2)]
        found.append((torch.stack(scores), *(parameter.detach() for parameter in own.parameters())))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-10, atol=1e-12)
