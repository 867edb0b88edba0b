"""Mistakes with the selective pass: models and losses that a captured graph cannot follow."""

import warnings

import lai_torch
import torch
from torch import nn
from torch.nn import functional

import lai_core as lai
from tests.lai_torch.followed import N, behind, body, ended, layered
from tests.lai_torch.support import HALF, LOSS, batch, curated
from tests.support.torch_functions import ruled
from tests.support.torch_modules import Part


def stepped(make, loss=LOSS):
    """Return a call that scores and trains a model by a captured graph."""

    def call():
        model = make()
        own = loss(model) if loss is tempered else loss
        inputs, targets = batch(N, 4)
        options = {"backward": "selective", "policy": HALF}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LAI has no readout")
            curated(model.double(), (inputs.flip(0), targets), own, **options).step(inputs, targets)

    return call


def tempered(model):
    scale = nn.Parameter(torch.ones((), dtype=torch.float64))
    return Part(lambda own, o, t: LOSS(o * own.scale, t), scale=scale)


def trimmed(own, inputs):
    """Cut sequences to the longest of the batch."""
    longest = int(inputs[:, 0].round().clamp(2, 2).max())
    positions = inputs[:, None].expand(-1, 3, -1)[:, :longest]
    return own.head(torch.tanh(own.body(positions)).sum(1))


def masked():
    model = body()
    model.body.weight.register_hook(lambda gradient: gradient * 0)
    return model


def looked_up(own, inputs):
    """Read a table with sparse gradients, or rows by their number among all samples' rows."""
    hidden = torch.tanh(own.table(inputs.argsort(-1)))
    if own.table.sparse:
        return own.head(hidden.mean(1))
    return own.head(hidden.flatten(0, 1)[torch.arange(len(inputs)) * 4 + inputs.argmax(1)])


def table(sparse):
    return Part(looked_up, table=nn.Embedding(7, 4, sparse=sparse), head=nn.Linear(4, 3))


def written(outputs):
    with torch.no_grad():
        outputs.mul_(2)
    return outputs * outputs


def hooked(outputs, gain):
    outputs = outputs * gain
    if outputs.requires_grad:
        outputs.register_hook(lambda gradient: gradient * 0.2)
    return outputs


def against_a_summary():
    """Step on two last layers, of which a summary has one."""
    model = body(lambda own, x: layered(own, x) + own.other(x).tanh(), other=nn.Linear(4, 3)).double()
    summary = lai.summarize(lai_torch.trace(model, LOSS, *batch(N, 4), last="head"), "lai")
    curated(model, summary, backward="selective").step(*batch(N, 4))


MESSAGES = {
    "ValueError: …expects nothing random behind the last layer 'head'": (
        stepped(lambda: ended(lambda outputs: functional.dropout(outputs, 0.5)))
    ),
    "ValueError: …with a free batch size, got one that does not (Constraints violated": (
        stepped(lambda: body(lambda own, x: layered(own, x.view(N, -1))))
    ),
    "ValueError: …sizes that go by the shapes of the batch, this model has one that goes by its values": (
        stepped(lambda: body(trimmed))
    ),
    "ValueError: …expects a backward pass that runs on the kept rows alone, this one does not": (
        stepped(lambda: table(sparse=False))
    ),
    "ValueError: …expects differentiable outputs that share no memory": (
        stepped(
            lambda: ended(lambda outputs: (outputs, outputs.view(-1))),
            lambda outputs, targets: LOSS(outputs[0], targets),
        )
    ),
    "ValueError: …calls no hooks on gradients, parameter 'body.weight' has one": stepped(masked),
    "ValueError: …dense gradients, that of 'table.weight' is not": stepped(lambda: table(sparse=True)),
    "ValueError: …by the model's outputs alone, this one reads 'loss.scale' itself": stepped(body, tempered),
    "ValueError: …it writes, where gradients are off, to a tensor that requires one …use backward='kept'": (
        stepped(lambda: ended(written))
    ),
    "ValueError: …it registers a hook on a tensor's gradient": stepped(lambda: behind(hooked)),
    "ValueError: …no torch.autograd.Function behind the last layer 'head'": (
        stepped(lambda: ended(ruled(torch.round, lambda _, gradient: gradient).apply))
    ),
    "ValueError: …found 2: ['head', 'other']; pass last='head'": against_a_summary,
}
