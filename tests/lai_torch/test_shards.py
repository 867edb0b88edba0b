"""Sharded parameters are gathered block by block while a batch is scored."""

import os
import signal

import pytest
import torch
from lai_torch._curation.processes.blocks import Blocks, Gathered, gathered
from lai_torch._curation.processes.group import Agreed, Alone
from torch import nn

from tests.lai_torch.process_support import PROCESSES, curated
from workloads.torch_processes import batch, largest, launch, network, wrapped
from workloads.torch_shards import shard_figures

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
    return gathered(list(model.modules()), lambda module: isinstance(module, nn.Linear), Alone(), **options)


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


def test_one_block_is_held_at_a_time_and_none_at_the_end(model, monkeypatch):
    held, read = [], Blocks.read

    def watched(blocks, index, place):
        values = read(blocks, index, place)
        held.append((index, len(blocks._held)))
        return values

    monkeypatch.setattr(Blocks, "read", watched)
    with whole(model, by_block=True):
        weight = model[0].weight
        model(torch.randn(5, 3, dtype=torch.float64)).sum().backward()
        blocks = weight._stored.blocks
    first, second = weight._stored.index, 1 - weight._stored.index
    assert held[:2] == [(first, 2)] * 2
    assert {index for index, _ in held[2:]} == {second}
    assert {count for _, count in held} == {2}
    assert not blocks._held


def test_views_of_a_gathered_parameter_have_no_values_until_they_are_read(model):
    with whole(model, by_block=True):
        weight = model[0].weight
        values = model[0].weight.clone()
        views = {
            "transposed": (weight.T, values.T),
            "a row": (weight[1], values[1]),
            "the second of two parts": (weight.chunk(2)[1], values.chunk(2)[1]),
            "a view of a view": (weight.view(-1)[2:8].view(2, 3).mT, values.view(-1)[2:8].view(2, 3).mT),
        }
        for name, (view, expected) in views.items():
            assert isinstance(view, Gathered), name
            assert view.stride() == expected.stride(), name
            assert torch.equal(view.clone(), expected), name
        assert repr(weight) == "Gathered(shape=(4, 3), dtype=torch.float64)"


def test_what_moves_a_parameter_for_a_proof_moves_what_reads_it(model):
    with whole(model, by_block=True):
        weight, before = model[0].weight, model[0].weight.clone()
        weight.data.copy_(before + 1.0)
        assert torch.equal(weight * 1.0, before + 1.0)
        assert torch.equal(weight.T[0] * 1.0, before[:, 0] + 1.0)
        weight.data.copy_(before)


def test_a_forward_pass_that_writes_a_parameter_is_refused(model):
    with (
        pytest.raises(ValueError, match="wrote the sharded parameter 'weight' of a Linear"),
        torch.no_grad(),
        whole(model, by_block=True),
    ):
        model[2].weight.mul_(0.5)


def a_block_raises_when_scored(rank):
    """Raise between two blocks of a scored pass on process 1 alone; then train on."""
    model, _ = wrapped(network(), "fsdp2", PROCESSES)
    broken = [False]

    def hook(module, _):
        if broken[0] and rank == 1 and not module.training:
            message = "this block cannot be computed"
            raise RuntimeError(message)

    model[2].register_forward_pre_hook(hook)
    curator, (inputs, targets) = curated(rank, model=model, group=None, refresh=2)
    said = []
    for broken[0] in (True, False, True, False):  # on the validation set; then on the batch
        try:
            curator.step(inputs[: 4 - rank], targets[: 4 - rank])
        except RuntimeError as error:
            said.append((str(error), *error.__notes__))
    return said, torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()])


def test_a_block_that_raises_on_one_process_raises_on_all_and_training_goes_on():
    curator, _ = curated(0, group=None, refresh=2)
    inputs, targets = batch(8, 2)
    rows = torch.tensor([0, 2, 4, 6, 1, 3, 5])
    for _ in range(2):
        curator.step(inputs[rows], targets[rows])
    expected = torch.cat([parameter.detach().flatten() for parameter in curator.model.parameters()])
    for found in launch(a_block_raises_when_scored, PROCESSES, timeout=60):
        assert not isinstance(found, str), found
        said, parameters = found
        assert len(said) == 2
        for (message, *notes), where in zip(said, ("while tracing the validation set: ", ""), strict=True):
            assert message == f"{where}this block cannot be computed"
            assert any("This happened on process 1 of 2" in note for note in notes)
        assert largest(parameters, expected) <= BOUND


def an_interruption_comes_in_a_round(rank):
    """Interrupt process 1 while it tells the others which block it needs; then train on."""
    model, _ = wrapped(network(), "fsdp2", PROCESSES)
    curator, part = curated(rank, model=model, group=None)
    curator.step(*part)
    largest, said = Agreed.largest, []

    def interrupted(group, numbers):
        found = largest(group, numbers)
        if rank == 1 and not said and numbers.dtype == torch.uint8:
            said.append("interrupted")
            os.kill(os.getpid(), signal.SIGINT)
        return found

    Agreed.largest = interrupted
    try:
        curator.step(*part)
    except (KeyboardInterrupt, RuntimeError) as error:
        said = [type(error).__name__, *error.__notes__]
    return said, curator.step(*part).updated, curator.steps


def test_an_interruption_in_a_round_is_raised_on_all_processes_and_training_goes_on():
    names = ("RuntimeError", "KeyboardInterrupt")
    for name, found in zip(
        names, launch(an_interruption_comes_in_a_round, PROCESSES, timeout=60), strict=True
    ):
        assert not isinstance(found, str), found
        (kind, note), updated, steps = found
        assert kind == name
        assert "This happened on process 1 of 2" in note
        assert updated
        assert steps == 2


@pytest.mark.slow
def test_a_scored_step_takes_the_memory_of_a_plain_one_and_finds_what_one_process_finds():
    for name, found in shard_figures(PROCESSES, timeout=300).items():
        assert all(found[each] <= BOUND for each in ("parameters", "scores", "weights", "reports")), name
        assert found["memory_ratio"] <= (1.1 if name != "ghost" else 3.0), name
