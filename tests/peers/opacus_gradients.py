"""The per-sample gradients of opacus."""

import copy

import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor

from tests.peers.cases import SAMPLE_LOSSES, Case


def gradients(one: Case, batch: tuple[Tensor, Tensor], *, last: bool) -> Tensor:
    """`(n, parameters)`: what opacus finds for each sample, of all parameters or the last layer's."""
    wrapped = GradSampleModule(copy.deepcopy(one.model), loss_reduction="sum")
    inputs, targets = batch
    SAMPLE_LOSSES(wrapped(inputs), targets).sum().backward()
    parameters = list((wrapped._module[-1] if last else wrapped).parameters())
    return torch.cat([parameter.grad_sample.flatten(1) for parameter in parameters], dim=1)
