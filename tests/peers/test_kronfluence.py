"""Ghost and LLI against kronfluence's influence without a Hessian: its `identity` strategy, no damping.

kronfluence tracks linear layers and 2-d convolutions alone. What else a network has is frozen, which
leaves it out of Ghost as well. In grouped convolutions it averages the input over the groups, which is
not the gradient (5% off on `grouped_cnn`): that network is asked about its last layer only.
"""

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from kronfluence import Analyzer, FactorArguments, ScoreArguments, Task, prepare_model
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tests.peers.cases import DTYPES, N_TRAIN, N_VAL, NETWORKS, SAMPLE_LOSSES, Case, agree, case, perturbed

EXACT = ("mlp", "cnn", "sequence")
TRACKED = (nn.Linear, nn.Conv2d)


class SummedLoss(Task):
    """The loss of a batch, summed, which leaves each sample's gradient unscaled; of all layers or some."""

    def __init__(self, layers: list[str] | None) -> None:
        self.layers = layers

    def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
        inputs, targets = batch
        return SAMPLE_LOSSES(model(inputs), targets).sum()

    def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
        return self.compute_train_loss(batch, model)

    def get_influence_tracked_modules(self) -> list[str] | None:
        return self.layers


def analyzer_of(one: Case, task: Task, folder: Path) -> Analyzer:
    """Return kronfluence's analyzer of a copy of the network."""
    return Analyzer(
        "peer",
        prepare_model(copy.deepcopy(one.model), task),
        task,
        cpu=True,
        log_level=logging.WARNING,
        disable_tqdm=True,
        output_dir=str(folder),
    )


def kernel(one: Case, folder: Path, *, last: bool = False) -> Tensor:
    """`(n_val, n_train)`: kronfluence's influence over all layers it tracks, or the last one."""
    task = SummedLoss([str(len(one.model) - 1)] if last else None)
    analyzer = analyzer_of(one, task, folder)
    batches = {"query_dataset": TensorDataset(*one.validation), "train_dataset": TensorDataset(*one.training)}
    factors = FactorArguments(strategy="identity")
    analyzer.fit_all_factors("none", batches["train_dataset"], factor_args=factors)
    analyzer.compute_pairwise_scores(
        "inner",
        "none",
        **batches,
        per_device_query_batch_size=N_VAL,
        per_device_train_batch_size=N_TRAIN,
        score_args=ScoreArguments(
            damping_factor=0.0,
            score_dtype=one.dtype,
            per_sample_gradient_dtype=one.dtype,
            precondition_dtype=one.dtype,
        ),
    )
    return analyzer.load_pairwise_scores("inner")["all_modules"]


def tracked(name: str, dtype: torch.dtype) -> Case:
    """Freeze what kronfluence does not track, and return the case."""
    one = case(name, dtype)
    for layer in one.model:
        if not isinstance(layer, TRACKED):
            layer.requires_grad_(False)
    return one


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_ghost_is_kronfluences_influence_over_the_layers_it_tracks(name, dtype, tmp_path):
    one = tracked(name, dtype)
    assert agree(one.ghost(), kernel(one, tmp_path))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_lli_is_kronfluences_influence_over_the_last_layer(name, dtype, tmp_path):
    one = case(name, dtype)
    assert agree(one.lli(), kernel(one, tmp_path, last=True))


@pytest.mark.parametrize("name", EXACT)
def test_one_weight_moved_by_a_hundredth_would_be_seen(name, tmp_path):
    one = tracked(name, torch.float32)
    ghost, lli = one.ghost(), one.lli()
    moved = perturbed(one)
    assert not agree(ghost, kernel(moved, tmp_path / "all"))
    assert not agree(lli, kernel(moved, tmp_path / "last", last=True))


def test_a_layer_left_out_would_be_seen(tmp_path):
    one = case("sequence", torch.float32)
    assert not agree(one.ghost(), kernel(one, tmp_path))


def test_a_convolution_averaged_over_its_groups_would_be_seen(tmp_path):
    one = tracked("grouped_cnn", torch.float32)
    assert not agree(one.ghost(), kernel(one, tmp_path))
