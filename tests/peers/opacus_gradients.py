"""The per-sample gradients of opacus."""

import copy

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from torch import Tensor

from tests.peers.cases import SAMPLE_LOSSES, Case


def gradients(one: Case, batch: tuple[Tensor, Tensor], *, last: bool) -> Tensor:
    """`(n, parameters)`: what opacus finds for each sample, of all parameters or the last layer's."""
    wrapped = GradSampleModule(copy.deepcopy(one.model), loss_reduction="sum")
    inputs, targets = batch
    SAMPLE_LOSSES(wrapped(inputs), targets).sum().backward()
    parameters = list((wrapped._module[-1] if last else wrapped).parameters())
    return torch.cat([parameter.grad_sample.flatten(1) for parameter in parameters], dim=1)


def norms(model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """`(n,)`: the norms by which opacus clips without building gradients."""
    wrapped = GradSampleModuleFastGradientClipping(
        copy.deepcopy(model), max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="sum"
    )
    inputs, targets = batch
    SAMPLE_LOSSES(wrapped(inputs), targets).sum().backward()
    return wrapped.get_norm_sample()
