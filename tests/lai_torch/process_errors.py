"""What one of two processes does and the other does not, and what both then raise."""

from tempfile import mkdtemp

import lai_torch
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import lai_core as lai
from tests.lai_torch.process_support import PROCESSES, curated, raises_on_one, stepped
from tests.support.torch_modules import Part
from tests.support.workloads.torch_processes import LOSS, batch, network, wrapped


def raising(rank, error, model=None):
    """Return a loss that raises on process 1: wherever it runs, or where a model that is given trains."""
    fails = raises_on_one(rank, error)

    def loss(outputs, targets):
        if model is None or model.training:
            fails()
        return LOSS(outputs, targets)

    return loss


def sharded(model=None):
    return wrapped(model or network(), "fsdp2", PROCESSES)[0]


def raises_in_training(rank, error):
    """Raise between the forward pass of a wrapped model and its backward pass, which communicates."""
    model = network()
    loss = raising(rank, error, model)
    return stepped(rank, model=nn.parallel.DistributedDataParallel(model), process_group=None, loss=loss)


def a_loader_raises(rank):
    def loader():
        raises_on_one(rank, FileNotFoundError("this file is missing"))()
        yield batch(6, 3)

    return stepped(rank, validation=loader())


def some_parameters_are_whole(rank):
    model = network()
    fully_shard(model[0], mesh=init_device_mesh("cpu", (PROCESSES,)))
    return stepped(rank, model=model, process_group=None)


def balance_has_other_shapes(rank):
    """Give a network, which reads the first eight numbers of each sample, more of them on process 1."""
    model = Part(lambda own, inputs: own.network(inputs[:, :8]), network=network())
    options = {"validation": batch(6, 3), "backward": lai_torch.KeptOptions(balance=True)}
    curator, (inputs, targets) = curated(rank, model=model, **options)
    return curator.step(nn.functional.pad(inputs, (0, rank)), targets)


def a_rate_changes_on_one(rank):
    curator, part = curated(rank)
    curator._updater.optimizer.param_groups[0]["lr"] /= 1 + rank
    return curator.step(*part)


def an_optimizer_raises(rank):
    curator, part = curated(rank)
    fails = raises_on_one(rank, RuntimeError("this optimizer cannot step"))
    curator._updater.optimizer.register_step_post_hook(lambda *_: (fails(), None)[1])
    try:
        return curator.step(*part)
    finally:
        assert curator.steps == 1  # every parameter has moved


def another_is_frozen(rank):
    model = network()
    model[0].weight.requires_grad_(rank == 0)
    return stepped(rank, model=model)


def one_scores_alone(rank):
    curator, part = curated(rank)
    return curator.score(*part) if rank == 0 else curator.step(*part)


def one_takes_up_a_state(rank):
    state = curated(rank, refresh=3)[0].state_dict()
    curator, part = curated(rank, refresh=3)
    if rank == 0:
        curator.load_state_dict({**state, "steps": 7})
    return curator.step(*part)


def hooked(rank):
    model = nn.parallel.DistributedDataParallel(network())
    model.register_comm_hook(None, lambda _, bucket: None)
    return stepped(rank, model=model, process_group=None)


def copies_without_a_group(rank):
    mesh = init_device_mesh("cpu", (1, PROCESSES), mesh_dim_names=("copies", "shards"))
    return stepped(rank, model=fully_shard(network(), mesh=mesh), process_group=None)


def features_are_spread(rank):
    mesh = init_device_mesh("cpu", (PROCESSES,))
    model = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return stepped(rank, model=model, process_group=None)


def not_synchronised(rank):
    model = nn.parallel.DistributedDataParallel(network())
    with model.no_sync():
        return stepped(rank, model=model, process_group=None)


def shards_that_are_summed(rank):
    model = sharded()
    model.set_gradient_divide_factor(1.0)
    return stepped(rank, model=model, process_group=None)


class Merging(nn.Sequential):
    """Merges something into a weight in eval mode."""

    def train(self, mode=True):
        if not mode:
            self[0].weight.data.mul_(2.0)
        return super().train(mode)


def a_forward_pass_writes_shards(rank, write=lambda layer: layer.weight.data.clamp_(-0.1, 0.1), **options):
    """Write as autograd counts no writes, unless told another way."""
    model = sharded()
    model[2].register_forward_pre_hook(lambda module, _: [write(module)].clear())
    return stepped(rank, model=model, process_group=None, **options)


APART = "ValueError: step: expected every process to be where the others are, but they differ in "
ERRORS = {
    "ArithmeticError: no weights from this policy": (
        lambda rank: stepped(rank, policy=raises_on_one(rank, ArithmeticError("no weights from this policy")))
    ),
    "ValueError: policy: expected the same weights from the same scores on every process": (
        lambda rank: stepped(rank, policy=lambda scores: lai.keep_top(scores, fraction=0.3 + 0.3 * rank))
    ),
    "this loss cannot be computed": (
        lambda rank: stepped(rank, loss=raising(rank, RuntimeError("this loss cannot be computed")))
    ),
    "RuntimeError: this loss cannot be trained on": (
        lambda rank: raises_in_training(rank, RuntimeError("this loss cannot be trained on"))
    ),
    "FileNotFoundError: this file is missing": a_loader_raises,
    "ValueError: ids: expected one per sample (4), got 3": (
        lambda rank: stepped(rank, given={"ids": range(4 - rank)})
    ),
    "ValueError: groups: expected whole numbers on every process, as on one, got None": (
        lambda rank: stepped(rank, given={"groups": torch.zeros(4, dtype=torch.int64) if rank else None})
    ),
    "validation: expected at least one sample with a finite loss, got none": (
        lambda rank: stepped(rank, validation=(batch(6, 3)[0] * torch.nan, batch(6, 3)[1]))
    ),
    "ValueError: model: expected the same parameters on every process, got others": (
        lambda rank: stepped(rank, model=network(rank))
    ),
    "ValueError: validation: expected the same (inputs, targets) on every process": (
        lambda rank: stepped(rank, validation=batch(6, rank))
    ),
    "ValueError: process_group: torch.distributed runs 2 processes and the model has no wrapper": (
        lambda rank: stepped(rank, process_group=None)
    ),
    "ValueError: estimator: 'midpoint' needs the gradient of the whole batch before it scores": (
        lambda rank: stepped(rank, estimator="midpoint")
    ),
    "ValueError: validation: estimator 'exact' has nothing to add up over processes": (
        lambda rank: stepped(rank, estimator="exact", validation=[batch(6, 3)])
    ),
    "ValueError: validation: estimator 'lai' with positions='flatten' has nothing to": (
        lambda rank: stepped(rank, estimator=lai_torch.LAI(positions="flatten"), validation="batch")
    ),
    "ValueError: backward: 'whole' goes around what gathers sharded parameters; use 'kept'": (
        lambda rank: curated(rank, model=sharded(), process_group=None, backward="whole")
    ),
    "ValueError: model: expected shards of every parameter that trains, got '2.w": some_parameters_are_whole,
    "ValueError: model: expected its wrapper to average gradients over the 2": [
        hooked,
        not_synchronised,
        shards_that_are_summed,
    ],
    "ValueError: model: expected train() and eval() that leave parameters as they are, got ones that": (
        lambda rank: stepped(rank, model=sharded(Merging(*network())), process_group=None)
    ),
    "model: a forward pass wrote the sharded parameter 'weight' of a": [
        a_forward_pass_writes_shards,
        lambda rank: a_forward_pass_writes_shards(rank, estimator="exact"),
    ],
    "model: a forward pass wrote the sharded parameter 'bias' of a": (  # the value that it has
        lambda rank: a_forward_pass_writes_shards(rank, torch.no_grad()(lambda layer: layer.bias.mul_(1.0)))
    ),
    "ValueError: model: expected whole parameters, got sharded ones (fully_shard); pass a model": (
        lambda rank: lai_torch.score_dataset(sharded(), LOSS, batch(6, 3), batch(6, 3), mkdtemp())
    ),
    "ValueError: balance: expected the processes' batches to have the same shape": balance_has_other_shapes,
    "ValueError: validation: expected the same summary on every process, got others": (
        lambda rank: stepped(
            rank, validation=lai.summarize(lai_torch.trace(network(), LOSS, *batch(6, rank)), "lai")
        )
    ),
    "ValueError: warmup: expected a whole number >= 0, got -1": (lambda rank: stepped(rank, warmup=-rank)),
    f"{APART}curated": (
        lambda rank: stepped(rank, policy=lai_torch.Scheduled(lai.keep_positive, lambda step: rank == 0))
    ),
    f"{APART}which parameters train": another_is_frozen,
    f"{APART}the learning rates": a_rate_changes_on_one,
    f"{APART.removeprefix('ValueError: step: ')}which call": one_scores_alone,
    f"{APART}steps": one_takes_up_a_state,
    "RuntimeError: this optimizer cannot step": an_optimizer_raises,
    "KeyboardInterrupt": [
        lambda rank: stepped(rank, loss=raising(rank, KeyboardInterrupt())),
        lambda rank: raises_in_training(rank, KeyboardInterrupt()),
    ],
    "ValueError: process_group: the parameters lie on a mesh of 2 dimensions": copies_without_a_group,
    "model: expected layers that run whole on each process, got '0' spread": features_are_spread,
    "ids: expected one for each of the 16 samples, got 15": (
        lambda rank: lai_torch.diagnose(
            network(), LOSS, *batch(16, 2), ids=range(16 - rank), process_group=dist.group.WORLD
        )
    ),
    "ValueError: process_group: torch.distributed runs 2 processes; pass torch.distributed.group.WORLD": (
        lambda rank: lai_torch.SpikeMonitor(network(), LOSS).watch(*batch(16, 2))
    ),
    "leave_out: expected False with a process group or a sharded": (
        lambda rank: lai_torch.SpikeMonitor(sharded(), LOSS, leave_out=True)
    ),
}
"""By the words of what all raise: what one process does, as functions of its rank."""
