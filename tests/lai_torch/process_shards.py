"""What happens on one of two processes while sharded parameters are gathered block by block."""

import os
import signal

import torch
from lai_torch._curation.processes.group import Agreed

from tests.lai_torch.process_support import PROCESSES, curated
from workloads.torch_processes import LOSS, network, wrapped


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
    finally:
        Agreed.largest = largest
    return said, curator.step(*part).updated, curator.steps


def a_shard_goes_on_after_an_error(rank):
    """Raise in training on one process, and then train on."""
    model, _ = wrapped(network(), "fsdp2", PROCESSES)
    broken = [rank == 1]

    def loss(outputs, targets):
        if model.training and broken[0]:
            message = "this once"
            raise RuntimeError(message)
        return LOSS(outputs, targets)

    curator, part = curated(rank, model=model, group=None, loss=loss)
    try:
        curator.step(*part)
    except RuntimeError:
        broken[0] = False
    curator.step(*part)
    return torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()])
