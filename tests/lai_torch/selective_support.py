"""The small model that tests of the selective backward pass are built on, and its batches."""

import torch
from lai_torch._curation.passes.choice import made_pass
from lai_torch._curation.scorers.side import ValidationSide
from torch import nn

from tests.lai_torch import support
from tests.lai_torch.support import HALF, LOSS

__all__ = ["HALF", "LOSS", "Body", "N", "Selective", "T", "batch"]

N, T = 6, 4


class Body(nn.Module):
    """Two layers; `behind` does what follows the last."""

    def __init__(self, behind=None):
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)
        self.behind = nn.Identity() if behind is None else behind

    def forward(self, inputs):
        return self.behind(self.head(torch.tanh(self.body(inputs))))


def batch(shape, n=N):
    return support.batch(n, *shape)


class Selective:
    """The selective pass by itself: forward, then backward with weights."""

    def __init__(self, model, loss, last=None):
        self.model, self.loss = model, loss
        self.taken = made_pass(model, loss, "selective", last)
        self.forwarded = None

    @property
    def captures(self):
        return self.taken.captured.captures

    def forward(self, inputs, targets):
        self.forwarded = self.taken.forward((inputs, targets), ValidationSide(()))
        (reading,) = self.forwarded.readings
        return reading.seen, reading.losses

    def backward(self, weights):
        self.forwarded.backward(weights, 1)
