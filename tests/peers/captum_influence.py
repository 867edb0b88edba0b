"""The influence of captum's TracIn at one checkpoint of learning rate 1, with its positive sign."""

import copy
from typing import Any

from captum.influence import TracInCP, TracInCPFast
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.peers.cases import N_TRAIN, SAMPLE_LOSSES, Case


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
