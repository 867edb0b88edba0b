"""Ghost and LLI against the per-sample gradients of opacus."""

import copy

import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor

from tests.peers.cases import DTYPES, NETWORKS, SAMPLE_LOSSES, Case, agree, case, perturbed


def gradients(one: Case, batch: tuple[Tensor, Tensor], *, last: bool) -> Tensor:
    """`(n, parameters)`: what opacus finds for each sample, of all parameters or the last layer's."""
    wrapped = GradSampleModule(copy.deepcopy(one.model), loss_reduction="sum")
    inputs, targets = batch
    SAMPLE_LOSSES(wrapped(inputs), targets).sum().backward()
    parameters = list((wrapped._module[-1] if last else wrapped).parameters())
    return torch.cat([parameter.grad_sample.flatten(1) for parameter in parameters], dim=1)


def kernel(one: Case, *, last: bool = False) -> Tensor:
    return gradients(one, one.validation, last=last) @ gradients(one, one.training, last=last).T


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_ghost_is_the_inner_product_of_opacus_gradients(name, dtype):
    one = case(name, dtype)
    assert agree(one.ghost(), kernel(one))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_lli_is_the_inner_product_of_opacus_gradients_of_the_last_layer(name, dtype):
    one = case(name, dtype)
    assert agree(one.lli(), kernel(one, last=True))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_weight_moved_by_a_hundredth_would_be_seen(name):
    one = case(name, torch.float32)
    ghost, lli = one.ghost(), one.lli()
    moved = perturbed(one)
    assert not agree(ghost, kernel(moved))
    assert not agree(lli, kernel(moved, last=True))
