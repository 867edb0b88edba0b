"""Random networks of random shapes: widths, positions and samples as alike as chance makes them."""

import random

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.support import LOSS


def swapped(function, hidden):
    """Apply a function to positions on the first axis, samples on the second."""
    return function(hidden.transpose(0, 1)).transpose(0, 1)


def merged(function, hidden):
    return function(hidden.reshape(-1, hidden.shape[-1])).reshape(hidden.shape)


# what to build from (positions t, width d), and how to apply it to hidden (n, t, d)
STEPS = {
    "linear": (lambda t, d: nn.Linear(d, d), lambda m, h: m(h)),
    "twice": (lambda t, d: nn.Linear(d, d, bias=False), lambda m, h: m(torch.tanh(m(h)))),
    "time first, merged": (
        lambda t, d: nn.Linear(d, d),
        lambda m, h: swapped(lambda s: merged(m, s), h),
    ),
    "layer norm": (lambda t, d: nn.LayerNorm(d), lambda m, h: m(h)),
    "rms norm": (lambda t, d: nn.RMSNorm(d), lambda m, h: m(h)),
    "group norm": (lambda t, d: nn.GroupNorm(1, t), lambda m, h: m(h)),
    "attention": (lambda t, d: nn.MultiheadAttention(d, 1, batch_first=True), lambda m, h: h + m(h, h, h)[0]),
    "attention, time first": (
        lambda t, d: nn.MultiheadAttention(d, 1),
        lambda m, h: h + swapped(lambda s: m(s, s, s)[0], h),
    ),
    "convolution": (
        lambda t, d: nn.Conv1d(d, d, 3, padding=1),
        lambda m, h: m(h.transpose(1, 2)).transpose(1, 2),
    ),
    "depthwise": (
        lambda t, d: nn.Conv1d(d, d, 3, padding=1, groups=d),
        lambda m, h: m(h.transpose(1, 2)).transpose(1, 2),
    ),
    "mix positions": (lambda t, d: nn.Conv1d(t, t, 1), lambda m, h: m(h)),
    "positions": (lambda t, d: nn.Embedding(t + 1, d), lambda m, h: h + m(torch.arange(h.shape[1]))),
    "gain": (lambda t, d: torch.randn(d), lambda p, h: h * p),
    "table": (lambda t, d: torch.randn(t, d), lambda p, h: h + p),
    "column": (lambda t, d: torch.randn(t, 1), lambda p, h: h - p),
    "scalar": (lambda t, d: torch.randn(()), lambda p, h: h * p.exp()),
    "product": (lambda t, d: torch.randn(d, d), lambda p, h: h @ p),
    "affine": (lambda t, d: torch.randn(d, d), lambda p, h: merged(lambda s: torch.addmm(p[0], s, p), h)),
    "expanded": (lambda t, d: torch.randn(1, 1, d), lambda p, h: h + p.expand(*h.shape)),
    "where": (lambda t, d: torch.randn(d), lambda p, h: torch.where(h > 0, h, p)),
}


class Random(nn.Module):
    """A few random steps, a tanh before each, and a linear head on the mean over positions."""

    def __init__(self, names, positions, width):
        super().__init__()
        self.names, self.parts, self.values = names, nn.ModuleDict(), nn.ParameterDict()
        for index, name in enumerate(names):
            part = STEPS[name][0](positions, width)
            owner = self.parts if isinstance(part, nn.Module) else self.values
            owner[str(index)] = part if isinstance(part, nn.Module) else nn.Parameter(part)
        self.head = nn.Linear(width, 3)

    def forward(self, hidden):
        for index, name in enumerate(self.names):
            key = str(index)
            part = self.parts[key] if key in self.parts else self.values[key]
            hidden = STEPS[name][1](part, torch.tanh(hidden))
        return functional.linear(hidden.mean(1), self.head.weight, self.head.bias)


@pytest.mark.parametrize("seed", range(80))
def test_a_random_network_is_exact_and_both_traces_agree(seed):
    draw = random.Random(seed)
    samples, positions, width = draw.randint(1, 5), draw.randint(1, 5), draw.randint(2, 5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Random(draw.choices(sorted(STEPS), k=draw.randint(1, 5)), positions, width).double()
        inputs = torch.randn(samples, positions, width, dtype=torch.float64)
    targets = torch.arange(samples) % 3
    found = lai_torch.selfcheck(model, LOSS, inputs, targets)
    assert found.relative_error < 1e-11
    assert max(found.layers.values()) < 1e-6
    whole = lai_torch.trace(model, LOSS, inputs, targets, gradients="all")
    layers = [layer for layer in whole.layers if hasattr(layer, "activations")]
    for layer, other in zip(lai_torch.trace(model, LOSS, inputs, targets).layers, layers, strict=True):
        torch.testing.assert_close(layer.activations, other.activations)
