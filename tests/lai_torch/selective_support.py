"""The small model that tests of the selective backward pass are built on, and its batches."""

import torch
from lai_torch._curation.passes.choice import made_pass
from lai_torch._curation.scorers.base import ValidationSide
from torch import nn

from tests.lai_torch import support
from tests.lai_torch.support import HALF, LOSS
from tests.support.torch_modules import Part

__all__ = ["HALF", "LOSS", "N", "Selective", "T", "batch", "body", "layered", "with_end"]

N, T = 6, 4


def layered(own, inputs):
    return own.head(torch.tanh(own.body(inputs)))


def body(computes=layered, **more):
    """Make two layers, and more: `computes` is a function of what it holds and of the inputs."""
    return Part(computes, body=nn.Linear(4, 5), head=nn.Linear(5, 3), **more)


def with_end(end):
    return body(lambda own, x: own.end(layered(own, x)), end=end)


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
