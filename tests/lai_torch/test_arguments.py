"""What a curator is given is checked by name before anything changes."""

import copy
import json
import math
import re

import lai_torch
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.lai_torch.support import HALF, curated, data, network


def weighing(weigh):
    """Return a call of a step whose policy is `weigh`."""
    return lambda curator, batch: (setattr(curator, "policy", weigh), curator.step(*batch))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            weighing(lambda s: s > 0),
            TypeError,
            "expected weights as a floating-point tensor, got torch.bool",
        ),
        (weighing(lambda s: s.argsort()), TypeError, "floating-point tensor, got torch.int64"),
        (weighing(lambda s: s.tolist()), TypeError, "one per sample, got list"),
        (weighing(lambda s: s.mean()), ValueError, "tensor of shape (6,), got ()"),
        (weighing(lambda s: s[:3]), ValueError, "tensor of shape (6,), got (3,)"),
        (weighing(lambda s: -torch.ones_like(s)), ValueError, "finite and not negative, got -1"),
        (weighing(lambda s: torch.full_like(s, math.inf)), ValueError, "finite and not negative, got inf"),
        (lambda c, b: c.step(*b, groups=[0] * 6), TypeError, "groups: expected a tensor of whole numbers"),
        (lambda c, b: c.step(*b, groups=torch.ones(6)), TypeError, "groups: expected whole numbers, got"),
        (lambda c, b: c.step(*b, groups=torch.ones(2)), ValueError, "groups: expected shape (6,), got (2,)"),
        (
            lambda c, b: c.step(*b, ids=iter("abcdef")),
            TypeError,
            "ids: expected a tensor, an array or a",
        ),
        (lambda c, b: c.step(*b, ids="abc"), ValueError, "ids: expected one per sample (6), got 3"),
    ],
)
def test_a_step_that_is_refused_changes_nothing(call, error, message):
    model = network()
    curator = curated(model, data(9))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=re.escape(message)):
        call(curator, data(6))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert curator.steps == 0
    assert curator.state_dict()["summary"]["served"] == 0


def test_a_shuffling_loader_leaves_training_its_random_stream():
    def streams(validation):
        torch.manual_seed(4)
        curator = curated(network(nn.Dropout(0.5)), validation, policy=HALF)
        for _ in range(3):
            curator.step(*data(6))
        return torch.get_rng_state()

    validation = data(10)
    loader = DataLoader(TensorDataset(*validation), batch_size=5, shuffle=True)
    assert torch.equal(streams(loader), streams([validation]))


def test_a_shuffling_loader_goes_by_torchs_seed_and_shuffles_anew():
    validation, batch, model = data(12), data(6), network()

    def scores(seed):
        torch.manual_seed(seed)
        loader = DataLoader(TensorDataset(*validation), batch_size=6, shuffle=True)
        curator = curated(model, loader)
        return torch.stack([curator.score(*batch)[1].scores for _ in range(6)])

    one, again, other = scores(1), scores(1), scores(2)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.allclose(one[0], one[2])  # another epoch of the loader, in another order


def test_a_state_that_is_broken_is_not_half_taken_up():
    model = network()
    saved, curator = (curated(model, data(9)) for _ in range(2))
    saved.step(*data(6))
    state = saved.state_dict()
    del state["scorer"]["last"]
    with pytest.raises(KeyError):
        curator.load_state_dict(state)
    assert curator.steps == 0
    assert curator.state_dict()["summary"]["served"] == 0


def test_rows_are_plain_and_a_log_takes_all_of_them_or_none(tmp_path):
    model, (inputs, targets) = network(), data(3)
    inputs[1] = math.nan
    report = curated(model, data(9)).step(inputs, targets)
    rows = report.rows(torch.tensor([4, 5, 6]).numpy())
    assert [row["id"] for row in rows] == [4, 5, 6]
    assert (rows[1]["score"], rows[1]["loss"], rows[1]["weight"], rows[1]["decision"]) == (
        None,
        None,
        0.0,
        "dropped",
    )
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert [row["id"] for row in report.rows()] == [0, 1, 2]
    path = tmp_path / "audit.jsonl"
    with lai_torch.AuditLog(path) as log:
        assert path.exists()
        log.append(rows)
        with pytest.raises(ValueError, match="JSON"):
            log.append([{"score": 1.0}, {"score": math.nan}])
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows
    with pytest.raises(ValueError, match="closed"):
        log.append(rows)


def test_scoring_counts_nothing_and_moves_no_second_moment():
    model, batch = network(), data(6)
    curator = curated(model, data(9), estimator="preconditioned_lai", refresh=100)
    curator.step(*batch)
    moment = curator.state_dict()["scorer"]["second_moment"].clone()
    for _ in range(2):
        curator.score(*data(5))
    assert torch.equal(curator.state_dict()["scorer"]["second_moment"], moment)
    assert curator.steps == 1
