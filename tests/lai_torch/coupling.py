"""A small network with places where its samples may meet, from the start or from some batch on."""

import torch
from torch import nn
from torch.nn import functional

from tests.lai_torch.support import LOSS, drawn

WIDTH, CLASSES, SAMPLES, FAR = 4, 3, 6, 8.0
REFUSED = r"coupled|can be exchanged|moves? with the (other|number of) samples|add up|statistics of the batch"


def batch(seed, n=SAMPLES):
    return drawn(n, seed)


class Net(nn.Module):
    """Three layers; a place is a function of the network, of hidden values, and of the inputs."""

    def __init__(self, *places, front=None, noise=None):
        super().__init__()
        torch.manual_seed(0)
        self.places, self.front, self.noise = places, front, noise
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("gate", torch.zeros(()))
        self.register_buffer("table", torch.randn(SAMPLES, WIDTH))
        self.flags = [0] * max(1, len(places))
        self.double()

    def forward(self, inputs):
        hidden = torch.tanh(self.first(inputs if self.front is None else self.front(inputs)))
        if self.noise is not None:
            hidden = torch.tanh(hidden + 0.1 * self.noise(hidden))
        for place in self.places:
            hidden = place(self, hidden, inputs)
        return self.head(torch.tanh(self.second(hidden)))


def far(inputs):
    return inputs.abs().amax(1) > FAR


def written(net, hidden, inputs):
    hidden = hidden.clone()
    hidden[far(inputs)] -= hidden[far(inputs)].mean(0)
    return hidden


def attended(net, hidden, inputs):
    seen = far(inputs)[None, :] | torch.eye(len(hidden), dtype=torch.bool)
    return hidden + (hidden @ hidden.T).masked_fill(~seen, -torch.inf).softmax(1) @ hidden


def listed(net, hidden, inputs):
    return hidden + hidden[[row for row, one in enumerate(far(inputs).tolist()) if one]].sum(0)


def excess(inputs):
    """Return how far entries are beyond what earlier batches had: zeros, so far."""
    return functional.relu(inputs.abs() - FAR)


BY_VALUES = {
    "where": lambda net, h, x: torch.where(x > FAR, h - h.mean(0), h),
    "branch": lambda net, h, x: h - (h if x.max() > FAR else net.table).mean(0),
    "gate of values": lambda net, h, x: h - excess(x).amax(1, keepdim=True) * h.mean(0),
    "sum of zeros": lambda net, h, x: h + torch.cumsum(excess(x), 0),
    "product of zeros": lambda net, h, x: h + (excess(x) @ excess(x).T) @ h,
    "mean of a few": lambda net, h, x: h + (h * (x > FAR)).mean(0),
    "attention": attended,
    "written in place": written,
    "rows by their values": lambda net, h, x: h + h[(torch.arange(len(h)) + (x[:, 0] > FAR).long()) % len(h)],
    "a list of rows": listed,
    "a count": lambda net, h, x: h / (1 + (x > FAR).sum()),
    "a number of rows": lambda net, h, x: h / (1 + int((x > FAR).sum())),
    "a number": lambda net, h, x: h / max(1.0, x.abs().max().item() / FAR),
    "buffer": lambda net, h, x: h - net.gate * h.mean(0),
    "buffer within": lambda net, h, x: h - (net.gate * h).mean(0),
    "statistics": lambda net, h, x: h - torch.where(net.gate > 0, h.mean(0), net.table[0]),
}
"""Places where samples meet as soon as values are far out, or a buffer is no longer zero."""


def normalised(net, hidden, inputs):
    ones, zeros = hidden.new_ones(hidden.shape[1]), hidden.new_zeros(hidden.shape[1])
    return functional.batch_norm(hidden, zeros, ones, training=bool(net.flags[0]))


WIRED = {"mean of a few", "a list of rows", "buffer", "buffer within", "statistics", "a factor"}
"""Places of both kinds whose graph joins samples from the start, by numbers that are zero so far."""

BY_FLAG = {
    "an axis": lambda net, h, x: h - h.mean(1 - net.flags[0], keepdim=True),
    "a flag": normalised,
    "a call": lambda net, h, x: h - h.mean(0) if net.flags[0] else h,
    "a factor": lambda net, h, x: h - net.flags[0] * 0.5 * h.mean(0),
    "a cumulated sum": lambda net, h, x: h + torch.cumsum(h, 1 - net.flags[0]),
}
"""Places where samples meet as soon as the network's flag is 1: the code makes another call."""


def flagged(name, where):
    """Return a network and a loss: with the flag, samples meet within, in a hook, or in the loss."""
    place = BY_FLAG[name]
    net = Net(*([place] if where == "model" else []))
    if where == "hook":
        net.second.register_forward_hook(lambda _, __, outputs: place(net, outputs, None))

    def loss(outputs, targets):
        if where == "loss" and outputs.shape[1] == CLASSES:
            outputs = place(net, torch.cat([outputs, outputs[:, :1]], 1), None)
        return LOSS(outputs, targets)

    return net, loss


def meeting(net):
    """Let samples meet: open the gate, raise the flag, and return a batch with three samples far out."""
    net.gate.fill_(1.0)
    net.flags[0] = 1
    inputs, targets = batch(50)
    inputs[1], inputs[3, :2], inputs[4, 0] = 12.0, 9.0, -15.0
    return inputs, targets


def centred(values):
    return values - values.detach().mean(0)
