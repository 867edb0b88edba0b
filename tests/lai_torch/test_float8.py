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

import lai_core as lai

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
ESTIMATORS = ("lai", "lli", "ghost", "exact")
HALF = functools.partial(lai.keep_top, fraction=0.5)


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 16))


class Transformer(nn.Module):
    """One block of a language model, its head in float8 as well."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(16, 16), nn.LayerNorm(16)
        self.head = nn.Linear(16, 16, bias=False)
        self.mixed, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, ids):
        hidden = self.table(ids)
        heads = [one.unflatten(-1, (2, 8)).mT for one in self.mixed(self.norm(hidden)).chunk(3, -1)]
        query, key, value = (one.transpose(1, 3) for one in heads)
        found = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(found.transpose(1, 2).flatten(2))
        return self.head(self.norm(hidden + self.down(nn.functional.gelu(self.up(hidden)))))


def loss(outputs, targets):
    outputs = outputs.float().mT if outputs.ndim == 3 else outputs.float()
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return losses if losses.ndim == 1 else losses.mean(1)


def model_of(name, recipe=None):
    torch.manual_seed(0)
    model = {"mlp": mlp, "transformer": Transformer}[name]()
    return model if recipe is None else rounded(model, recipe)


def rounded(model, recipe):
    config = Float8LinearConfig.from_recipe_name(recipe)
    return convert_to_float8_training(model, config=dataclasses.replace(config, emulate=True))


def batch(name, samples, seed):
    generator = torch.Generator().manual_seed(seed)
    if name == "mlp":
        targets = torch.randint(16, (samples,), generator=generator)
        return torch.randn(samples, 16, generator=generator), targets
    ids = torch.randint(16, (samples, 9), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def curator(name, model, estimator="lai", **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lai_torch.Curator(model, loss, optimizer, batch(name, 12, 1), estimator=estimator, **options)


@pytest.mark.parametrize("name", ["mlp", "transformer"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_scores_are_those_of_the_layers_in_float32(name, recipe):
    training = batch(name, 16, 2)
    plain, model = model_of(name), model_of(name, recipe)
    assert not torch.equal(plain(training[0]), model(training[0]))
    for estimator in ESTIMATORS:
        expected = curator(name, plain, estimator).score(*training)[1].scores
        found = curator(name, model, estimator).score(*training)[1].scores
        assert torch.equal(found, expected)
    read = [[layer.name for layer in lai_torch.trace(one, loss, *training).layers] for one in (plain, model)]
    assert read[0] == read[1]
    assert set(read[1]) == {key for key, one in model.named_modules() if isinstance(one, Float8Linear)}


@pytest.mark.parametrize("name", ["mlp", "transformer"])
@pytest.mark.parametrize("recipe", RECIPES[:2])
def test_the_kept_rows_train_in_float8(name, recipe):
    model, training = model_of(name, recipe), batch(name, 16, 2)
    start = copy.deepcopy(model)
    report = curator(name, model, policy=HALF).step(*training)
    kept = report.weights > 0
    inputs, targets = (one[kept] for one in training)
    losses = (loss(start(inputs), targets) * report.weights[kept]).sum()
    gradients = torch.autograd.grad(losses, list(start.parameters()))
    for now, before, gradient in zip(model.parameters(), start.parameters(), gradients, strict=True):
        torch.testing.assert_close(now.detach(), before.detach() - 0.1 * gradient, rtol=0, atol=1e-7)


@pytest.mark.parametrize("backward", ["selective", "whole"])
def test_passes_that_score_what_trains_refuse_them_by_name(backward):
    model = nn.Sequential(*mlp()[:4], rounded(mlp()[4:], "tensorwise")[0])
    with pytest.raises(ValueError, match=rf"'{backward}' .* '4' rounds to float8; use backward='kept'"):
        curator("mlp", model, backward=backward).step(*batch("mlp", 16, 2))


def test_auto_keeps_to_the_pass_that_scores_without_rounding():
    auto = curator(
        "mlp",
        model_of("mlp", "tensorwise"),
        backward="auto",
        policy=functools.partial(lai.keep_top, fraction=1.0),
    )
    assert {auto.step(*batch("mlp", 16, seed)).backward for seed in range(3)} == {"kept"}


def test_inputs_that_are_float8_already_are_refused_and_nothing_is_left_behind():
    model = model_of("mlp", "tensorwise")

    def cast(module, given):
        from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic

        return hp_tensor_to_float8_dynamic(given[0], torch.float8_e4m3fn, module.linear_mm_config)

    model[2].register_forward_pre_hook(cast)
    with pytest.raises(ValueError, match="expected float8 layers that cast inputs and weights by themselves"):
        curator("mlp", model).score(*batch("mlp", 16, 2))
    assert not any("forward" in vars(layer) for layer in model)


def test_a_layer_with_a_forward_function_of_its_own_is_refused():
    model = model_of("mlp", "tensorwise")
    own = model[2].forward
    model[2].forward = lambda inputs: own(inputs)
    with pytest.raises(ValueError, match="expected float8 layers that run torchao's forward function"):
        curator("mlp", model).score(*batch("mlp", 16, 2))


@pytest.mark.parametrize("name", ["mlp", "transformer"])
@pytest.mark.parametrize("kind", ["bfloat16", "autocast", "float8"])
def test_selfcheck_says_how_scores_and_gradients_agree_with_float32(name, kind):
    model, (inputs, targets) = model_of(name, "tensorwise" if kind == "float8" else None), batch(name, 10, 2)
    if kind == "bfloat16":
        model, inputs = model.bfloat16(), inputs.bfloat16() if name == "mlp" else inputs
    estimator = lai_torch.LAI(autocast=torch.bfloat16 if kind == "autocast" else None)
    found = lai_torch.selfcheck(model, loss, inputs, targets, float32=estimator).float32
    assert 0.999 < found["scores"] <= 1.0 + 1e-12
    assert 0.99 < found["gradients"] <= 1.0 + 1e-12
    assert (found["scores"] > 1.0 - 1e-9) == (kind == "float8")
    assert (found["gradients"] > 1.0 - 1e-9) == (kind == "autocast")


def test_selfcheck_compares_with_float32_where_asked_and_on_three_samples():
    assert lai_torch.selfcheck(mlp(), loss, *batch("mlp", 3, 2)).float32 is None
    with pytest.raises(
        ValueError, match="inputs: expected three samples or more, whose scores correlate, got 2"
    ):
        lai_torch.selfcheck(mlp(), loss, *batch("mlp", 2, 2), float32="lai")
