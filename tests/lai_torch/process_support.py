"""Curators of two processes, each with its own rows of a batch, of sharded parameters, too."""

import lai_torch
import torch
import torch.distributed as dist

from tests.support.workloads.torch_processes import LOSS, batch, network, wrapped

PROCESSES = 2


def curated(rank, model=None, validation=None, loss=LOSS, lr=0.1, **options):
    """Return a curator of two processes and this one's rows of a batch."""
    model = network() if model is None else model
    options.setdefault("process_group", dist.group.WORLD)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    validation = batch(12, 1) if validation is None else validation
    curator = lai_torch.Curator(model, loss, optimizer, validation, **options)
    inputs, targets = batch(8, 2)
    return curator, (inputs[rank::PROCESSES], targets[rank::PROCESSES])


def stepped(rank, given=None, **options):
    """Take one step; where it raises, what is trained is to be as before."""
    curator, part = curated(rank, **options)
    before = [parameter.detach().clone() for parameter in curator.model.parameters()]
    try:
        return curator.step(*part, **(given or {}))
    except BaseException:
        assert all(map(torch.equal, before, curator.model.parameters()))
        assert curator.steps == 0
        raise


def raises_on_one(rank, error):
    """Return what raises on process 1 alone."""

    def raising(*_):
        if rank == 1:
            raise error
        return torch.full((2 * 4,), 0.1)

    return raising


def scored_in_parts(rank, folder):
    """Score a data set as one of the processes that share it; say what the call returned."""
    data, validation = batch(40, 1), batch(12, 2)
    return lai_torch.score_dataset(network(), LOSS, data, validation, folder, rows_per_file=8, progress=False)


def a_block_raises_when_scored(rank):
    """Raise between two blocks of a scored pass on process 1 alone; then train on."""
    model, _ = wrapped(network(), "fsdp2", PROCESSES)
    broken = [False]

    def hook(module, _):
        if broken[0] and rank == 1 and not module.training:
            message = "this block cannot be computed"
            raise RuntimeError(message)

    model[2].register_forward_pre_hook(hook)
    curator, (inputs, targets) = curated(rank, model=model, process_group=None, refresh=2)
    said = []
    for broken[0] in (True, False, True, False):  # on the validation set; then on the batch
        try:
            curator.step(inputs[: 4 - rank], targets[: 4 - rank])
        except RuntimeError as error:
            said.append((str(error), *error.__notes__))
    return said, torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()])
