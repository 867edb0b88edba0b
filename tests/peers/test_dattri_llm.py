"""dattri-llm's inner products of gradients are Ghost's on layers that share no weight."""

import lai_torch
import torch
from dattri_llm import HookManager, HookManagerCallback
from torch import nn


class Kept(HookManagerCallback):
    """Holds the gradients of the last backward pass."""

    def on_step_end(self, record):
        self.gradient = record.gradient


def test_inner_products_of_gradients():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)
    model, loss = nn.Sequential(*layers).double(), nn.CrossEntropyLoss(reduction="none")
    sides = [(torch.randn(n, 3, 6, 6, dtype=torch.float64), torch.arange(n) % 4) for n in (7, 5)]
    curator = lai_torch.Curator(model, loss, None, sides[1], estimator="ghost")
    expected = curator.score(*sides[0])[1].scores

    found, kept = [], Kept()
    with HookManager(model, callbacks=[kept]).collect(deregister_on_exit=True):
        for inputs, targets in sides:
            loss(model(inputs), targets).sum().backward()
            found.append(kept.gradient)
    scores = found[0].similarity(found[1], reduce="all").sum(1)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)
