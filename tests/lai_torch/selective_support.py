"""The small model that tests of the selective backward pass are built on, and its batches."""

import torch
from torch import nn

from tests.lai_torch import support
from tests.lai_torch.support import HALF, LOSS

__all__ = ["HALF", "LOSS", "Body", "N", "T", "batch"]

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
