"""Ghost and LLI against captum's TracIn at one checkpoint of learning rate 1, with its positive sign."""

import copy
from typing import Any

import pytest
import torch
from captum.influence import TracInCP, TracInCPFast
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.peers.cases import DTYPES, N_TRAIN, NETWORKS, SAMPLE_LOSSES, Case, agree, case, perturbed


def load(model: nn.Module, state: Any) -> float:
    """Load a checkpoint and return its learning rate, which multiplies the influence."""
    model.load_state_dict(state)
    return 1.0


def kernel(one: Case, *, last: bool = False) -> Tensor:
    """`(n_val, n_train)`: captum's influence over all parameters, or the last layer's."""
    layers = [str(len(one.model) - 1)] if last else None
    model, dataset = copy.deepcopy(one.model), TensorDataset(*one.training)
    found = TracInCP(
        model,
        dataset,
        [one.model.state_dict()],
        checkpoints_load_func=load,
        layers=layers,
        loss_fn=SAMPLE_LOSSES,
        batch_size=N_TRAIN,
    )
    return found.influence(one.validation)


def fast_kernel(one: Case) -> Tensor:
    """`(n_val, n_train)`: captum's fast influence, of the last layer's weights without its bias."""
    model = copy.deepcopy(one.model)
    found = TracInCPFast(
        model,
        model[-1],
        TensorDataset(*one.training),
        [one.model.state_dict()],
        checkpoints_load_func=load,
        loss_fn=nn.CrossEntropyLoss(reduction="sum"),
        batch_size=N_TRAIN,
    )
    return found.influence(one.validation)


def without_last_bias(one: Case) -> Case:
    one.model[-1].bias = None
    return one


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_ghost_is_captums_influence_over_all_parameters(name, dtype):
    one = case(name, dtype)
    assert agree(one.ghost(), kernel(one))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_lli_is_captums_influence_over_the_last_layer(name, dtype):
    one = case(name, dtype)
    assert agree(one.lli(), kernel(one, last=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_lli_is_captums_fast_influence_where_the_last_layer_has_no_bias(name, dtype):
    one = without_last_bias(case(name, dtype))
    assert agree(one.lli(), fast_kernel(one))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_weight_moved_by_a_hundredth_would_be_seen(name):
    one = case(name, torch.float32)
    ghost, lli = one.ghost(), one.lli()
    moved = perturbed(one)
    assert not agree(ghost, kernel(moved))
    assert not agree(lli, kernel(moved, last=True))


def test_a_missing_bias_would_be_seen():
    one = case("mlp", torch.float32)
    assert not agree(one.lli(), fast_kernel(one))
