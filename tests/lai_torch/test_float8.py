"""torchao's float8 layers: scored as float32 layers are, trained in float8, and read as they train."""

import copy
import dataclasses
import functools

import lai_torch
import pytest
import torch
from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.float8.float8_linear import Float8Linear
from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic

from tests.lai_torch.support import HALF

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.float(), targets, reduction="none")


def model_of(recipe=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16))
    return model if recipe is None else rounded(model, recipe)


def rounded(model, recipe):
    config = Float8LinearConfig.from_recipe_name(recipe)
    return convert_to_float8_training(model, config=dataclasses.replace(config, emulate=True))


def batch(samples, seed):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(16, (samples,), generator=generator)
    return torch.randn(samples, 16, generator=generator), targets


def curator(model, estimator="lai", **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lai_torch.Curator(model, loss, optimizer, batch(12, 1), estimator=estimator, **options)


@pytest.mark.parametrize("recipe", RECIPES)
def test_scores_are_those_in_float32(recipe):
    training = batch(16, 2)
    plain, model = model_of(), model_of(recipe)
    assert not torch.equal(plain(training[0]), model(training[0]))
    for estimator in ("lai", "lli", "ghost", "exact"):
        expected = curator(plain, estimator).score(*training)[1].scores
        found = curator(model, estimator).score(*training)[1].scores
        assert torch.equal(found, expected)
    read = [[layer.name for layer in lai_torch.trace(one, loss, *training).layers] for one in (plain, model)]
    assert read[0] == read[1]
    assert set(read[1]) == {key for key, one in model.named_modules() if isinstance(one, Float8Linear)}


@pytest.mark.parametrize("recipe", RECIPES[:2])
def test_the_kept_rows_train_in_float8(recipe):
    model, training = model_of(recipe), batch(16, 2)
    start = copy.deepcopy(model)
    report = curator(model, policy=HALF).step(*training)
    kept = report.weights > 0
    inputs, targets = (one[kept] for one in training)
    (loss(start(inputs), targets) * report.weights[kept]).sum().backward()
    for now, before in zip(model.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(now, before - 0.1 * before.grad, rtol=0, atol=1e-7)


@pytest.mark.parametrize("backward", ["selective", "whole"])
def test_other_passes_refuse_them(backward):
    model = model_of()
    model[4] = rounded(model[4:], "tensorwise")[0]
    with pytest.raises(ValueError, match=rf"'{backward}' .* '4' rounds to float8; use backward='kept'"):
        curator(model, backward=backward).step(*batch(16, 2))


def cast_inputs(layer):
    """Cast the inputs before the layer does."""
    layer.register_forward_pre_hook(
        lambda own, given: hp_tensor_to_float8_dynamic(given[0], torch.float8_e4m3fn, own.linear_mm_config)
    )


CHANGES = {
    "cast inputs and weights by themselves": cast_inputs,
    "run torchao's forward function": lambda layer: setattr(
        layer, "forward", functools.partial(layer.forward)
    ),
}


@pytest.mark.parametrize("words", CHANGES)
def test_changed_float8_layers_are_refused(words):
    model = model_of("tensorwise")
    CHANGES[words](model[2])
    before = [vars(layer).copy().keys() for layer in model]
    with pytest.raises(ValueError, match=f"expected float8 layers that {words}"):
        curator(model).score(*batch(16, 2))
    assert [vars(layer).keys() for layer in model] == before


@pytest.mark.parametrize("kind", ["bfloat16", "autocast", "float8"])
def test_selfcheck_compares_with_float32(kind):
    model, (inputs, targets) = model_of("tensorwise" if kind == "float8" else None), batch(10, 2)
    if kind == "bfloat16":
        model, inputs = model.bfloat16(), inputs.bfloat16()
    estimator = lai_torch.LAI(autocast=torch.bfloat16 if kind == "autocast" else None)
    found = lai_torch.selfcheck(model, loss, inputs, targets, float32=estimator).float32
    assert 0.999 < found["scores"] <= 1.0 + 1e-12
    assert 0.99 < found["gradients"] <= 1.0 + 1e-12
    assert (found["scores"] > 1.0 - 1e-9) == (kind == "float8")
    assert (found["gradients"] > 1.0 - 1e-9) == (kind == "autocast")
