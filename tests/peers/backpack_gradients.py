"""The per-sample gradients of BackPACK.

BackPACK has no rule for layer norm, group norm or a mean over positions: those networks are not asked.
"""

import copy

import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad
from torch import Tensor, nn

from tests.peers.cases import Case

NETWORKS = ("mlp", "cnn")


def gradients(one: Case, batch: tuple[Tensor, Tensor], *, last: bool) -> Tensor:
    """`(n, parameters)`: what BackPACK finds for each sample, of all parameters or the last layer's."""
    # BackPACK wants a loss module that reduces; a sum leaves each sample's gradient unscaled.
    model, loss = extend(copy.deepcopy(one.model)), extend(nn.CrossEntropyLoss(reduction="sum"))
    inputs, targets = batch
    with backpack(BatchGrad()):
        loss(model(inputs), targets).backward()
    parameters = list((model[-1] if last else model).parameters())
    return torch.cat([parameter.grad_batch.flatten(1) for parameter in parameters], dim=1)
