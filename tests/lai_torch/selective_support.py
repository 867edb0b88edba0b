"""The small model that tests of the selective backward pass are built on, and its batches."""

import functools

import torch
from torch import nn

import lai_core as lai

LOSS = nn.CrossEntropyLoss(reduction="none")
N, T = 6, 4
HALF = functools.partial(lai.keep_top, fraction=0.5)


class Body(nn.Module):
    """Two layers; `behind` does what follows the last."""

    def __init__(self, behind=None):
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 3)
        self.behind = nn.Identity() if behind is None else behind

    def forward(self, inputs):
        return self.behind(self.head(torch.tanh(self.body(inputs))))


def batch(shape, n=N):
    return torch.randn(n, *shape, dtype=torch.float64), torch.arange(n) % 3
