"""The studies' static methods against dattri: explicit influence, LiSSA, DataInf and TRAK."""

import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

from experiments.methods.attribution import (
    curvature_product,
    last_layer,
    margin,
    mean_of_inverses,
    projected_values,
    sample_gradients,
    series,
)
from experiments.methods.base import LOSS
from lai_core import influence

with warnings.catch_warnings():  # dattri compiles a function when imported, which loads torch's own old ones
    warnings.filterwarnings("ignore", message=r"`torch.jit.script_method` is deprecated")
    from dattri.algorithm import trak
    from dattri.algorithm.influence_function import (
        IFAttributorDataInf,
        IFAttributorExplicit,
        IFAttributorLiSSA,
    )
    from dattri.task import AttributionTask

DAMPING, N_TRAIN, N_VAL = 0.05, 40, 5
ROUNDING = 1e-5
"""dattri answers in single precision."""


def drawn(count, seed):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 4, generator=generator)
    return inputs, torch.randint(3, (count,), generator=generator)


OWN, HELD = drawn(N_TRAIN, 1), drawn(N_VAL, 2)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def mean_loss(model):
    """Return dattri's loss: of parameters, on a batch."""

    def loss(parameters, batch):
        return LOSS(functional_call(model, parameters, (batch[0],)), batch[1].long()).mean()

    return loss


def loaders():
    return [DataLoader(TensorDataset(*part), batch_size=len(part[1])) for part in (OWN, HELD)]


@pytest.fixture(autouse=True)
def _ways_of_dattri():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*`torch.jit.script.*` is deprecated")
        yield


def influences(make, model, **options):
    """`(n_val, n_train)`: dattri's answer."""
    task = AttributionTask(loss_func=mean_loss(model), model=model, checkpoints=model.state_dict())
    attributor, (own, held) = make(task=task, **options), loaders()
    attributor.cache(own)
    return attributor.attribute(own, held).T.detach()


def error(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


def test_explicit_influence_of_the_last_layer_is_dattris(network):
    (validation, _), (training, hessian) = (last_layer(network, part) for part in (HELD, OWN))
    expected = influences(
        IFAttributorExplicit, network, layer_name=["2.weight", "2.bias"], regularization=DAMPING
    )
    found = influence.removal_influence(validation, training, hessian, damping=DAMPING * N_TRAIN)
    assert error(N_TRAIN * found, expected.sum(0)) < ROUNDING
    moved = influence.removal_influence(validation, training, hessian, damping=1.1 * DAMPING * N_TRAIN)
    assert error(N_TRAIN * moved, expected.sum(0)) > 1e-3


def flat(model, loss, batch):
    return torch.cat([each.flatten(1) for each in sample_gradients(model, loss, batch).values()], 1)


def test_lissa_is_dattris():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)  # where the Gauss-Newton matrix is the Hessian
    solved = series(curvature_product(model, OWN), flat(model, LOSS, HELD).sum(0), damping=DAMPING, steps=400)
    expected = influences(
        IFAttributorLiSSA,
        model,
        batch_size=N_TRAIN,
        recursion_depth=400,
        damping=DAMPING / 5.0,  # of the Hessian over the scaling
        scaling=5.0,
    )
    assert error(flat(model, LOSS, OWN) @ solved, expected.sum(0)) < ROUNDING


def test_datainf_is_dattris(network):
    """Dattri takes a layer's weights and biases together; the study each by itself."""
    held, own = (sample_gradients(network, LOSS, part) for part in (HELD, OWN))
    found = 0.0
    for layer in ("0", "2"):
        toward, gradients = (
            torch.cat([of[f"{layer}.{name}"].flatten(1) for name in ("weight", "bias")], 1)
            for of in (held, own)
        )
        found = found + mean_of_inverses(toward.sum(0), gradients, damping=DAMPING)
    expected = influences(IFAttributorDataInf, network, regularization=DAMPING)
    assert error(found, expected.sum(0)) < ROUNDING


def test_trak_is_dattris_with_the_same_projection(network, monkeypatch):
    width = 12

    def odds(parameters, batch):
        inputs, labels = (each[None] for each in batch)
        return margin(functional_call(network, parameters, (inputs,)), labels.long())[0]

    def chance(parameters, batch):
        return odds(parameters, batch).sigmoid()

    def projected(gradients, *args, **options):
        generator = torch.Generator().manual_seed(7)
        projection = torch.randn(gradients.shape[1], width, generator=generator)
        return lambda given, ensemble_id: given @ projection

    monkeypatch.setattr(trak, "random_project", projected)
    task = AttributionTask(loss_func=odds, target_func=odds, model=network, checkpoints=network.state_dict())
    attributor, (own, held) = trak.TRAKAttributor(task=task, correct_probability_func=chance), loaders()
    attributor.cache(own)
    expected = attributor.attribute(held).T.detach()
    found = projected_values(network, OWN, HELD, width=width, seed=7)
    assert error(found, expected.sum(0)) < 1e-3  # dattri inverts the features' square, in single precision
    moved = projected_values(network, OWN, HELD, width=width, seed=8)
    assert error(moved, expected.sum(0)) > 0.1
