"""EKFAC, the studies' method, against kronfluence's, which draws labels where the study takes their mean."""

import torch
from kronfluence import FactorArguments, ScoreArguments
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from experiments.methods.attribution import kronecker_values
from tests.peers.cases import N_TRAIN, N_VAL, SAMPLE_LOSSES, case
from tests.peers.test_kronfluence import SummedLoss, analyzer_of

REPEATED = 10_000
"""How often each sample is looked at, with a label drawn anew; kronfluence looks at 100,000 at most."""


class Sampled(SummedLoss):
    """The same loss, where asked with labels drawn from the network."""

    def compute_train_loss(self, batch, model: nn.Module, sample: bool = False):
        inputs, targets = batch
        logits = model(inputs)
        if sample:
            targets = torch.multinomial(functional.softmax(logits.detach(), 1), 1).flatten()
        return SAMPLE_LOSSES(logits, targets).sum()


def kronfluences(one, folder, strategy):
    """`(n_train,)`: kronfluence's scores, of the summed validation gradient."""
    task = Sampled(None)
    analyzer = analyzer_of(one, task, folder)
    torch.manual_seed(0)
    repeated = TensorDataset(*(each.repeat_interleave(REPEATED, 0) for each in one.training))
    kinds = dict.fromkeys(
        (
            "activation_covariance_dtype",
            "gradient_covariance_dtype",
            "lambda_dtype",
            "per_sample_gradient_dtype",
        ),
        one.dtype,
    )
    analyzer.fit_all_factors(
        strategy,
        repeated,
        per_device_batch_size=N_TRAIN * REPEATED,
        factor_args=FactorArguments(strategy=strategy, eigendecomposition_dtype=one.dtype, **kinds),
    )
    analyzer.compute_pairwise_scores(
        strategy,
        strategy,
        TensorDataset(*one.validation),
        TensorDataset(*one.training),
        per_device_query_batch_size=N_VAL,
        per_device_train_batch_size=N_TRAIN,
        score_args=ScoreArguments(
            damping_factor=None,  # a tenth of the mean eigenvalue
            score_dtype=one.dtype,
            per_sample_gradient_dtype=one.dtype,
            precondition_dtype=one.dtype,
        ),
    )
    return analyzer.load_pairwise_scores(strategy)["all_modules"].sum(0)


def error(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


def test_ekfac_is_kronfluences_and_not_kfac(tmp_path):
    one = case("mlp", torch.float64)
    found = kronecker_values(one.model, one.training, one.validation, damping=0.1)
    errors = {
        strategy: error(found, kronfluences(one, tmp_path / strategy, strategy))
        for strategy in ("ekfac", "kfac")
    }
    assert errors["ekfac"] < 0.03
    assert errors["kfac"] > 0.2
