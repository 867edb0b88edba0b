"""Selective backward behind the last layer where gradients are off, or are a function's own."""

import lai_torch
import pytest
import torch
from lai_torch._recording import averaging
from torch import nn
from torch.utils import checkpoint

from tests.lai_torch import support
from tests.lai_torch.selective_support import HALF, LOSS, N, Selective, batch, body, layered


def behind(function):
    """Do something with the last layer's outputs and a buffer of gains."""
    return body(lambda own, x: function(layered(own, x), own.gain), gain=torch.ones(3))


def norm(outputs, gain):
    with torch.no_grad():
        length = outputs.norm(dim=1, keepdim=True)
    return outputs / length


@torch.no_grad()
def warmth(outputs):
    return outputs.softmax(1).amax(1, keepdim=True)


@torch.no_grad()
def values(outputs):
    found, where = outputs.max(1, keepdim=True)
    return found + where


def inference(outputs, gain):
    with torch.inference_mode():
        length = outputs.norm(dim=1, keepdim=True)
    return outputs - length * torch.arange(3)


def nested(outputs, gain):
    with torch.no_grad():
        length = outputs.norm(dim=1, keepdim=True)
        with torch.enable_grad():
            scaled = outputs * length
        with torch.set_grad_enabled(False):
            offset = scaled + outputs
    torch.set_grad_enabled(False)
    grown = outputs.exp()
    torch.set_grad_enabled(True)
    return outputs * grown / offset + scaled * length


def view(outputs, gain):
    with torch.no_grad():
        first = outputs[:, :1]
    return outputs * first


def itself(outputs, gain):
    with torch.no_grad():
        same = outputs.to(outputs.dtype).contiguous()
    return outputs * same


def element(outputs, gain):
    found = outputs.max(1, keepdim=True)
    with torch.no_grad():
        largest = found[0] * 2
    return outputs * largest


def peak(outputs, gain):
    with torch.no_grad():
        largest = torch.zeros_like(outputs).copy_(outputs)
        largest += 1
        largest[:, 0] *= 2
        largest.clamp_(min=0.1)
    return outputs * largest


def filled(outputs, gain):
    room, square = torch.zeros_like(outputs), torch.zeros_like(outputs)
    with torch.no_grad():
        room.copy_(outputs)
        torch.mul(outputs, outputs, out=square)
    return outputs * room + square * outputs


def buffered(outputs, gain):
    with torch.no_grad():
        gain.copy_(torch.full_like(gain, 2.0))
    return outputs * gain


def checkpointed(outputs, gain):
    return checkpoint.checkpoint(norm, outputs, gain, use_reentrant=False)


CUT = {
    "norm": norm,
    "temperature": lambda outputs, gain: outputs * warmth(outputs),
    "tuple": lambda outputs, gain: outputs * values(outputs),
    "inference": inference,
    "nested": nested,
    "view": view,
    "itself": itself,
    "element": element,
    "peak": peak,
    "filled": filled,
    "buffered": buffered,
    "checkpointed": checkpointed,
}


@pytest.mark.parametrize("name", CUT)
def test_scores_and_gradients_are_those_of_kept(name):
    inputs, targets = batch((4,))
    found = []
    for backward in ("selective", "kept"):
        torch.manual_seed(0)
        model = behind(CUT[name]).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        validation = inputs.flip(0) + 1, targets.flip(0)
        curator = lai_torch.Curator(model, LOSS, optimizer, validation, backward=backward, policy=HALF)
        found.append([curator.step(inputs, targets).scores, *model.parameters()])
    torch.testing.assert_close(*found)


def written(outputs, gain):
    with torch.no_grad():
        outputs.mul_(2)
    return outputs * outputs


def written_in_part(outputs, gain):
    with torch.no_grad():
        outputs[:, 0] = 1
    return outputs.exp()


def written_through_a_view(outputs, gain):
    with torch.no_grad():
        first = outputs[:, 0]
        first += 1
    return outputs.exp()


class Rounded(torch.autograd.Function):
    """Rounds, and lets gradients through."""

    @staticmethod
    def forward(ctx, values):
        return values.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Identical(Rounded):
    """Changes nothing but gradients."""

    @staticmethod
    def forward(ctx, values):
        return values.view_as(values)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.2


def hooked(outputs, gain):
    outputs = outputs * gain
    if outputs.requires_grad:
        outputs.register_hook(lambda gradient: gradient * 0.2)
    return outputs


def hooked_in_a_checkpoint(outputs, gain):
    return checkpoint.checkpoint(hooked, outputs, gain, use_reentrant=False)


INSTANTIATED = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
"""What torch's compiler does with functions."""
OWN = "no torch.autograd.Function behind the last layer 'head'"
HOOKED = "it registers a hook on a tensor's gradient"
WRITES = r"it writes, where gradients are off, to a tensor that requires one .*; use backward='kept'"


@INSTANTIATED
@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (written, WRITES),
        (written_in_part, WRITES),
        (written_through_a_view, WRITES),
        (hooked, HOOKED),
        (hooked_in_a_checkpoint, HOOKED),
        (lambda outputs, gain: Rounded.apply(outputs), OWN),
        (lambda outputs, gain: Identical.apply(outputs), OWN),
    ],
)
def test_what_the_graph_does_not_hold_is_refused(ends, message):
    def step():
        selective = Selective(behind(ends).double(), LOSS)
        selective.forward(*batch((4,)))
        selective.backward((torch.arange(N) >= N // 2).double())

    with pytest.raises(ValueError, match=message):
        step()


@INSTANTIATED
def test_a_function_of_its_own_behind_averaged_outputs_is_refused(monkeypatch):
    monkeypatch.setattr(averaging, "FEWEST", 0)
    model = behind(lambda outputs, gain: Identical.apply(outputs)).double()
    inputs, targets = torch.randn(N, 7, 4, dtype=torch.float64), torch.arange(N * 7).view(N, 7) % 3

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs.mT, targets, reduction="none").mean(1)

    options = {"estimator": lai_torch.LAI(positions="mean"), "backward": "selective"}
    curator = lai_torch.Curator(model, loss, support.sgd(model, 0.1), (inputs, targets), **options)
    with pytest.raises(ValueError, match=OWN):
        curator.step(inputs, targets)
