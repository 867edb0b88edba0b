"""Sharded parameters are gathered block by block while a batch is scored."""

import pytest
import torch
from lai_torch._curation.processes.blocks import Gathered, gathered
from lai_torch._curation.processes.group import Group
from lai_torch._graph.prove import SMALL, Sketch
from lai_torch._model.preserve import evaluating
from torch import nn

from tests.lai_torch.process_support import PROCESSES
from tests.support.workloads.torch_shards import shard_figures

BOUND = 1e-12


def in_parts(values):
    """Return a parameter that looks as if it lay in parts on several processes."""
    made = nn.Parameter(values)
    made.full_tensor, made.to_local, made.detach = values.clone, lambda: values, lambda: made
    return made


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    for module in made:
        for name, parameter in module.named_parameters():
            module._parameters[name] = in_parts(parameter.detach())
    return made


def whole(model, **options):
    return gathered(list(model.modules()), lambda module: isinstance(module, nn.Linear), Group(), **options)


def test_a_model_finds_the_same_outputs_and_gradients_block_by_block(model):
    inputs, found = torch.randn(5, 3, dtype=torch.float64), []
    for by_block in (False, True):
        with whole(model, by_block=by_block):
            outputs = model(inputs)
            gradients = torch.autograd.grad(outputs.square().sum(), list(model.parameters()))
            assert all(isinstance(each, Gathered) is by_block for each in model.parameters())
        found.append([outputs.detach(), *gradients])
    assert all(map(torch.equal, *found))
    assert not any(isinstance(each, Gathered) for each in model.parameters())


@pytest.mark.parametrize("shape", [(200, 300), (20, 40, 30), (64, 32, 3, 3), (20_000, 2), (3, 5)])
def test_sketches_of_gradients_are_as_far_apart_as_the_gradients(shape):
    torch.manual_seed(1)
    gradient = torch.randn(shape, dtype=torch.float64)
    small, column = gradient.clone(), gradient.clone()
    small.view(-1)[-1] += 1e-6
    column[..., 0] *= 1.001
    own = Sketch.of(gradient)
    assert own.values.numel() <= max(SMALL, gradient.numel() // 20)
    assert own.distance(Sketch.of(gradient.clone())) == 0.0
    assert own.size() == pytest.approx(float(gradient.norm()), rel=0.35)
    for other in (small, column):
        apart = float((gradient - other).norm())
        assert own.distance(Sketch.of(other)) == pytest.approx(apart, rel=0.5)
        assert own.compare(other, "weight") == pytest.approx(apart, rel=0.5)
    if len(shape) == 2:  # a record of the transposed matrix
        assert own.compare(gradient.mT, "weight") < 1e-10
    if len(shape) == 3:  # a record of one of the matrices
        assert own.compare(gradient[2].mT, "weight[2]") < 1e-10
        assert own.compare(gradient[2], "weight[1]") > 1.0
    assert own.distance(Sketch()) == own.size()  # nothing arrives at the parameter


def writes(weight):
    weight.mul_(0.5)


def writes_data(weight):
    weight.data.mul_(0.5)


def assigns_data(weight):
    weight.data = weight.data * 0.5


@pytest.mark.parametrize("write", [writes, writes_data, assigns_data])
def test_a_forward_pass_that_writes_a_parameter_is_refused(model, write):
    with (
        pytest.raises(ValueError, match="wrote the sharded parameter 'weight' of a Linear"),
        torch.no_grad(),
        whole(model, by_block=True),
    ):
        write(model[2].weight)


class Merging(nn.Sequential):
    """Has a `train()` of its own, that may write."""

    merges = False

    def train(self, mode=True):
        super().train(mode)
        if self.merges and not mode:
            self[0].weight.data.mul_(2.0)
        return self


def test_a_model_with_a_train_of_its_own_is_switched_unless_that_writes(model):
    model = Merging(*model)
    with whole(model, by_block=True), evaluating(model):
        model(torch.randn(5, 3, dtype=torch.float64))
    model.merges = True
    with (
        pytest.raises(ValueError, match=r"got ones that write '0\.weight'"),
        whole(model, by_block=True),
        evaluating(model),
    ):
        pass


def test_hooks_of_a_compiled_block_are_taken_out_and_put_back_where_they_were(model):
    def hook(*_):
        message = "communicates"
        raise AssertionError(message)

    hook.__module__ = "torch.distributed.fsdp"
    inner = model[2]
    model[2] = torch.compile(inner, backend="eager")
    model[2].register_forward_pre_hook(hook)
    with whole(model, by_block=True):
        assert not vars(model[2])["_forward_pre_hooks"]
    assert list(vars(model[2])["_forward_pre_hooks"].values()) == [hook]
    assert not inner._forward_pre_hooks


@pytest.mark.slow
def test_a_scored_step_takes_the_memory_of_a_plain_one_and_finds_what_one_process_finds():
    for name, found in shard_figures(PROCESSES, timeout=300).items():
        assert all(found[each] <= BOUND for each in ("parameters", "scores", "weights", "reports")), name
        assert found["memory_ratio"] <= (1.1 if name != "ghost" else 3.0), name
