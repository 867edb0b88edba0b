"""What one of two processes does and the other does not, and what both then raise."""

import lai_torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import lai_core as lai
from tests.lai_torch.process_support import curated, raises_on_one, stepped
from workloads.torch_features import Counting, parallel
from workloads.torch_processes import LOSS, batch, network


def options_differ(rank):
    return stepped(rank, refresh=1 + rank)


def estimators_differ(rank):
    return stepped(rank, estimator=lai_torch.LAI(sketch=2 + rank))


def learning_rates_differ(rank):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + rank))
    return lai_torch.Curator(model, LOSS, optimizer, batch(12, 1), group=dist.group.WORLD)


def kinds_of_validation_differ(rank):
    return stepped(rank, validation=[batch(6, 3)] if rank else batch(6, 3))


def summaries_differ(rank):
    traced = lai_torch.trace(network(), LOSS, *batch(6, rank))
    return stepped(rank, validation=lai.summarize(traced, "lai"))


def an_option_is_wrong_on_one(rank):
    return stepped(rank, warmup=-rank)


def an_optimizer_is_missing_on_one(rank):
    model = network()
    optimizer = None if rank else torch.optim.SGD(model.parameters(), lr=0.1)
    return lai_torch.Curator(model, LOSS, optimizer, batch(12, 1), group=dist.group.WORLD)


def a_schedule_differs(rank):
    return stepped(rank, policy=lai_torch.Scheduled(lai.keep_positive, lambda step: rank == 0))


def types_differ(rank):
    return stepped(rank, model=network().float() if rank else network())


def a_batch_is_of_another_type(rank):
    curator, (inputs, targets) = curated(rank)
    return curator.step(inputs.float() if rank else inputs, targets)


def another_is_frozen(rank):
    model = network()
    model[0].weight.requires_grad_(rank == 0)
    return stepped(rank, model=model)


def all_are_frozen_on_one(rank):
    return stepped(rank, model=network().requires_grad_(rank == 0))


def a_rate_changes_on_one(rank):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curator = lai_torch.Curator(model, LOSS, optimizer, batch(12, 1), group=dist.group.WORLD)
    optimizer.param_groups[0]["lr"] /= 1 + rank
    return curator.step(*batch(4, 2))


def one_scores_alone(rank):
    curator, part = curated(rank)
    return curator.score(*part) if rank == 0 else curator.step(*part)


def one_takes_up_a_state(rank):
    state = curated(rank, refresh=3)[0].state_dict()
    curator, part = curated(rank, refresh=3)
    if rank == 0:
        curator.load_state_dict({**state, "steps": 7})
    return curator.step(*part)


def gradients_are_off_on_one(rank):
    with torch.set_grad_enabled(rank == 0):
        return stepped(rank)


def a_batch_is_empty_on_one(rank):
    curator, (inputs, targets) = curated(rank)
    return curator.step(inputs[: 4 * (1 - rank)], targets[: 4 * (1 - rank)])


def an_optimizer_raises(rank):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    fails = raises_on_one(rank, RuntimeError("this optimizer cannot step"))

    def raising(*_):
        fails()

    optimizer.register_step_post_hook(raising)
    curator = lai_torch.Curator(model, LOSS, optimizer, batch(12, 1), group=dist.group.WORLD)
    try:
        return curator.step(*batch(4, 2))
    finally:
        assert curator.steps == 0


def one_is_interrupted_when_scoring(rank):
    fails = raises_on_one(rank, KeyboardInterrupt())
    return stepped(rank, loss=lambda outputs, targets: (fails(), LOSS(outputs, targets))[1])


def one_is_interrupted_in_training(rank):
    model = network()
    fails = raises_on_one(rank, KeyboardInterrupt())

    def loss(outputs, targets):
        if model.training:
            fails()
        return LOSS(outputs, targets)

    return stepped(rank, model=nn.parallel.DistributedDataParallel(model), group=None, loss=loss)


def features_and_rows_are_said_to_be_of_the_same_processes(rank):
    model = parallel(network(), init_device_mesh("cpu", (2,)))
    return stepped(rank, model=model)


def code_reads_how_layers_are_spread(rank):
    return stepped(rank, model=Counting(init_device_mesh("cpu", (2,))), group=None)


APART = "ValueError: step: expected every process to be where the others are, but they differ in "
DIFFERENCES = {
    options_differ: "refresh: expected the same on every process, got 1 on process 0 and 2 on process 1",
    estimators_differ: "estimator: expected the same on every process, got LAI(sketch=2) on process 0",
    learning_rates_differ: "optimizer.param_groups[0]['lr']: expected the same on every process, got 0.1 on",
    kinds_of_validation_differ: "validation: expected the same on every process, got 'a set'",
    summaries_differ: "ValueError: validation: expected the same summary on every process, got others",
    an_option_is_wrong_on_one: "ValueError: warmup: expected a whole number, 0 or more, got -1",
    an_optimizer_is_missing_on_one: "optimizer: expected the same on every process, got 'SGD of 1 groups' on",
    a_schedule_differs: f"{APART}curated",
    types_differ: "ValueError: model: expected the same parameters on every process, got others",
    a_batch_is_of_another_type: "RuntimeError: mat1 and mat2 must have the same dtype",
    another_is_frozen: f"{APART}which parameters train",
    all_are_frozen_on_one: "ValueError: model: expected at least one trainable parameter to step on",
    a_rate_changes_on_one: f"{APART}the learning rates",
    one_scores_alone: "expected every process to be where the others are, but they differ in which call",
    one_takes_up_a_state: f"{APART}steps",
    gradients_are_off_on_one: "ValueError: step: expected gradients to be on, got a call",
    a_batch_is_empty_on_one: "ValueError: inputs: expected at least one sample",
    an_optimizer_raises: "RuntimeError: this optimizer cannot step",
    one_is_interrupted_when_scoring: "KeyboardInterrupt",
    one_is_interrupted_in_training: "KeyboardInterrupt",
    features_and_rows_are_said_to_be_of_the_same_processes: "group: expected processes that have different",
    code_reads_how_layers_are_spread: "model: expected one that finds the same losses with its layers",
}
