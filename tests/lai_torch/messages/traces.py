"""Mistakes with a trace or exact scores: batches, losses, models and options that do not fit."""

import warnings

import lai_torch
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.support import LOSS, curated, data, network, randn
from tests.support.torch_modules import Part
from tests.support.torch_parts import linear

X, Y = data(6)
SQUARES = nn.MSELoss(reduction="none")


def traced(model=None, loss=LOSS, inputs=X, targets=Y, **options):
    return lai_torch.trace(network() if model is None else model, loss, inputs, targets, **options)


def gated(model, shape=(-1, 4)):
    return lambda: lai_torch.trace_gates(model.double(), LOSS, X.reshape(shape), Y)


def two_heads():
    return Part(lambda p, x: p.left(x) + p.right(x), left=linear(4, 3), right=linear(4, 3))


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def clipped():
    model = network()
    model[2].weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    return model


SCALAR = "loss: expected one number per sample, shape (6,), got"
INPUTS = "inputs: expected a tensor, a tuple or a mapping, got"
ENTRY = "with an entry for each; collate it to tensors"
MESSAGES = {
    f"TypeError: {INPUTS} list; pass a tuple, for model(*inputs)": (lambda: traced(inputs=[X, X])),
    f"TypeError: {INPUTS} ndarray; pass torch.as_tensor(inputs)": (lambda: traced(inputs=X.numpy())),
    "ValueError: …got none (ndarray, ndarray); pass torch.as_tensor(...) of each": (
        lambda: traced(inputs=X.numpy(), targets=Y.numpy())
    ),
    f"ValueError: {SCALAR} a scalar": lambda: traced(loss=nn.CrossEntropyLoss()),
    f"ValueError: {SCALAR} (6, 6): outputs and targets may have broadcast, as (n, 1) and (n,) do; give": (
        lambda: quietly(lambda: traced(linear(4, 1), SQUARES, X, randn(6)))
    ),
    f"ValueError: {SCALAR} (6, 1): sum over everything but the first axis": (
        lambda: traced(linear(4, 1), SQUARES, X, randn(6, 1))
    ),
    "TypeError: loss: expected a floating-point tensor": lambda: traced(loss=lambda *_: None),
    "ValueError: …it depends on none": lambda: traced(loss=lambda o, _: o.detach().sum(1)),
    "ValueError: inputs: expected at least one sample": lambda: traced(inputs=X[:0], targets=Y[:0]),
    "ValueError: …expected a tensor with a batch axis": lambda: traced(inputs=(), targets=None),
    "ValueError: …expected one final layer, found 2 …'left', 'right'…pass last='": lambda: traced(
        two_heads()
    ),
    "ValueError: last: expected the name of one layer …got 'body', not one of": (
        lambda: traced(two_heads(), last="body")
    ),
    "ValueError: …found 2 whose outputs reach the loss…pass last='left'…Ghost needs none": (
        lambda: lai.lai_kernel(*[traced(two_heads(), gradients="all")] * 2)
    ),
    "ValueError: …expected at least one trainable parameter for gradients='all'": (
        lambda: traced(network().requires_grad_(False), gradients="all")
    ),
    "ValueError: …of ['2.weight'] do not add up …: a hook": lambda: traced(clipped(), gradients="all"),
    "ValueError: layer 'last': expected a last layer … a transposed convolution": lambda: traced(
        Part(
            lambda p, x: p.last(p.first(x).view(6, 2, 4, 2)).mean((2, 3)),
            first=linear(4, 16),
            last=nn.ConvTranspose2d(2, 3, 3).double(),
        )
    ),
    f"ValueError: targets: …got a list {ENTRY}": lambda: traced(targets=[*Y]),
    f"ValueError: inputs: …got a ndarray {ENTRY}": lambda: traced(inputs=(X, X[:, 0].numpy())),
    "ValueError: inputs: expected dense tensors, …got a nested one; pad it": lambda: quietly(
        lambda: traced(inputs=torch.nested.nested_tensor([X[0], X[1]], layout=torch.jagged), targets=Y[:2])
    ),
    "ValueError: valid: expected shape (6, t), one row a sample, got (2, 4)": lambda: traced(valid=X[:2]),
    "TypeError: valid: expected a tensor (n, t), not zero where a position counts, or a function": (
        lambda: traced(valid=[1, 2])
    ),
    "ValueError: model: expected at least one trainable parameter, got none": [
        lambda: lai_torch.exact_scores(network().requires_grad_(False), LOSS, data(3), (X, Y)),
        lambda: lai_torch.selfcheck(network().requires_grad_(False), LOSS, X, Y),
    ],
    "ValueError: …'whole' expects …BatchNorm '1' in training mode does; use backward='kept'": (
        lambda: curated(network(nn.BatchNorm1d(8)), (X, Y), backward="whole").step(X, Y)
    ),
    "ValueError: …expected a sample whose loss and gradient are its own…in a batch of one": (
        lambda: traced(
            Part(lambda p, x: p.own(x) / (1 + (len(x) < 2)), own=network()), inputs=X[:1], targets=Y[:1]
        )
    ),
    "ValueError: …BatchNorm '1' normalises with the statistics of the batch…model.eval": (
        lambda: traced(network(nn.BatchNorm1d(8)))
    ),
    "ValueError: layer '1': …; its input goes into weights that do not train; use": (
        gated(nn.Sequential(linear(4, 3), linear(3, 3).requires_grad_(False)))
    ),
    "ValueError: layer 'last': …; its input does not come from the output of layer 'second' alone…; use": (
        gated(
            Part(
                lambda p, x: p.last((h := p.first(x).relu()) + p.second(h).relu()),
                first=nn.Linear(4, 4),
                second=nn.Linear(4, 4),
                last=nn.Linear(4, 3),
            )
        )
    ),
    "ValueError: layer '0': … has shape (6, 4, 1), not (6, d)…; use estimator='lai', or 'ghost'": (
        gated(nn.Sequential(nn.Linear(1, 2), nn.Flatten(), nn.Linear(8, 3)), (-1, 4, 1))
    ),
    "ValueError: layer '0': … goes into a convolution…; use estimator='lai', or 'ghost'": (
        gated(nn.Sequential(nn.Conv1d(1, 2, 2), nn.Flatten(), nn.Linear(6, 3)), (-1, 1, 4))
    ),
}
