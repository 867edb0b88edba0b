"""Several processes: a wrapped model is refused, and its parts of a batch are scored as the whole is."""

import lai_torch
import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing, nn

from tests.lai_torch.support import LOSS

PROCESSES = 2


def parts():
    """Return a model, a validation set and a batch, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    inputs = torch.randn(20, 4, dtype=torch.float64, generator=generator)
    targets = torch.randint(3, (20,), generator=generator)
    return model, (inputs[:12], targets[:12]), (inputs[12:], targets[12:])


def work(rank, folder):
    """Score a share of the batch, then train the wrapped model on its weighted losses."""
    store = dist.FileStore(f"{folder}/store", PROCESSES)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    model, validation, batch = parts()
    wrapped = nn.parallel.DistributedDataParallel(model)
    with pytest.raises(ValueError, match=r"got DistributedDataParallel: .* Score with Curator\(model.module"):
        lai_torch.Curator(wrapped, LOSS, None, validation)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    curator = lai_torch.Curator(wrapped.module, LOSS, None, validation)
    inputs, targets = (part[rank::PROCESSES] for part in batch)
    scores = []
    for _ in range(3):
        weights, report = curator.score(inputs, targets)
        scores.append(report.scores)
        optimizer.zero_grad()
        (LOSS(wrapped(inputs), targets) * weights).sum().backward()
        optimizer.step()
    torch.save({"scores": scores, "weight": model[0].weight.detach()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_each_process_scores_its_share_as_one_process_scores_the_whole(tmp_path):
    multiprocessing.spawn(work, (str(tmp_path),), PROCESSES)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(PROCESSES)]
    assert torch.equal(found[0]["weight"], found[1]["weight"])
    model, validation, (inputs, targets) = parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curator = lai_torch.Curator(model, LOSS, None, validation)
    for step in range(3):
        _, report = curator.score(inputs, targets)
        shares = [found[rank]["scores"][step] for rank in range(PROCESSES)]
        for rank, share in enumerate(shares):
            torch.testing.assert_close(share, report.scores[rank::PROCESSES])
        weights = torch.zeros(len(targets), dtype=torch.float64)
        for rank in range(PROCESSES):  # each process normalises over its own kept samples
            kept = (report.scores[rank::PROCESSES] > 0).double()
            weights[rank::PROCESSES] = kept / kept.sum().clamp(min=1) / PROCESSES
        optimizer.zero_grad()
        (LOSS(model(inputs), targets) * weights).sum().backward()
        optimizer.step()
    torch.testing.assert_close(found[0]["weight"], model[0].weight.detach())


def test_a_model_spread_over_devices_is_refused():
    model, validation, _ = parts()
    with pytest.raises(ValueError, match="model: expected one on this process alone, got DataParallel"):
        lai_torch.Curator(nn.DataParallel(model), LOSS, None, validation)
