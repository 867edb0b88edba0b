"""Ghost and LLI against the per-sample gradients of BackPACK.

BackPACK has no rule for layer norm, group norm or a mean over positions: those networks are not asked.
"""

import copy

import pytest
import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad
from torch import Tensor, nn

from tests.peers.cases import DTYPES, Case, agree, case, perturbed

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


def kernel(one: Case, *, last: bool = False) -> Tensor:
    return gradients(one, one.validation, last=last) @ gradients(one, one.training, last=last).T


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_ghost_is_the_inner_product_of_backpack_gradients(name, dtype):
    one = case(name, dtype)
    assert agree(one.ghost(), kernel(one))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_lli_is_the_inner_product_of_backpack_gradients_of_the_last_layer(name, dtype):
    one = case(name, dtype)
    assert agree(one.lli(), kernel(one, last=True))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_weight_moved_by_a_hundredth_would_be_seen(name):
    one = case(name, torch.float32)
    ghost, lli = one.ghost(), one.lli()
    moved = perturbed(one)
    assert not agree(ghost, kernel(moved))
    assert not agree(lli, kernel(moved, last=True))
