"""Mistakes with exact scores and per-sample gradients: options, models and losses that do not fit."""

import lai_torch
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.lai_torch.support import LOSS, data, network
from tests.support.torch_modules import Part
from tests.support.torch_parts import linear

X, Y = data(6)


def exact(model=None, loss=LOSS, training=(X, Y), validation=None, **options):
    validation = data(9) if validation is None else validation
    return lai_torch.exact_scores(
        network() if model is None else model, loss, validation, training, **options
    )


def stepping(kind, **options):
    model = network()
    return exact(model, optimizer=kind(model.parameters(), lr=0.1), **options)


def halved():
    model = network()
    model[2].weight.register_hook(lambda gradient: gradient * 0.5)
    return model


def counting(part, inputs):
    part.calls = getattr(part, "calls", 0) + 1
    return part.head(inputs) * part.calls


MESSAGES = {
    "ValueError: loss: expected one number a position, shape (n, t), where per_position=True, got (9,)": (
        lambda: exact(per_position=True)
    ),
    "ValueError: learning_rate: an optimizer has its own; leave it out": (
        lambda: stepping(torch.optim.SGD, at="midpoint", learning_rate=0.1)
    ),
    "ValueError: max_norm: expected a positive norm together with an optimizer": lambda: exact(max_norm=1.0),
    "TypeError: optimizer: expected one of SGD, Adam, AdamW": lambda: stepping(torch.optim.RMSprop),
    "ValueError: optimizer: expected one that steps on parameters that the": (
        lambda: exact(optimizer=torch.optim.SGD(network().parameters(), lr=0.1))
    ),
    "ValueError: …inputs: expected dense tensors, …sparse_coo one; pass .to_dense": (
        lambda: exact(training=(X.to_sparse(), Y))
    ),
    "ValueError: loss: expected one that depends on a parameter that trains": (
        lambda: exact(loss=lambda o, t: LOSS(o.detach(), t))
    ),
    "ValueError: validation: expected a finite gradient of the losses": (
        lambda: exact(validation=(torch.full((9, 4), torch.nan, dtype=torch.float64), data(9)[1]))
    ),
    "ValueError: …call model.eval() where a normalisation couples": lambda: exact(network(nn.BatchNorm1d(8))),
    "ValueError: …no way to compute them agrees with that…forward: off by": (
        lambda: exact(halved(), method="forward")
    ),
    "ValueError: …expected the same losses of the same batch": (
        lambda: exact(Part(counting, head=linear(4, 3)))
    ),
    "ValueError: …pass use_reentrant=False": (
        lambda: exact(
            Part(
                lambda own, x: own.head(checkpoint(own.body, own.first(x), use_reentrant=True)),
                first=linear(4),
                body=linear(4),
                head=linear(4, 3),
            )
        )
    ),
    "ValueError: …draws random numbers…model.eval()": (
        lambda: lai_torch.check_per_sample_gradients(network(nn.Dropout(0.3)), LOSS, (X, Y))
    ),
}
