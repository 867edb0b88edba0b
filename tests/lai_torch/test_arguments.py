"""What a curator is given is checked by name before anything changes."""

import copy
import inspect
import json
import math
import re

import lai_torch
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lai_core as lai
from tests.lai_torch.support import HALF, LOSS, curated, data, network, sgd


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


@pytest.mark.parametrize("policy", [lai.keep_positive, lai_torch.Scheduled(lai.keep_positive, bool)])
def test_scores_against_parts_need_a_policy_that_takes_them(policy):
    message = "policy: .* got keep_positive .*; give it the rest, such as the sizes of the parts, as"
    with pytest.raises(TypeError, match=message):
        curated(network(), data(9), estimator=lai_torch.LAI(parts=3), policy=policy)
    curated(network(), data(9), estimator=lai_torch.LAI(parts=3), policy=lai.drop_harmful).step(*data(5))


@pytest.mark.parametrize("count", [-1, 1.5, "3", None])
def test_counters_of_a_state_are_numbers(count):
    curator = curated(network(), data(9))
    with pytest.raises(
        ValueError, match=f"state: expected a whole number of 'steps', 0 or more, got {count!r}"
    ):
        curator.load_state_dict(curator.state_dict() | {"steps": count})


class Closed(torch.optim.LBFGS):
    """Steps on a closure."""


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda m: lai_torch.Curator(m, LOSS, sgd(network()), data(3)),
            ValueError,
            "optimizer: expected one that holds parameters of the model, got one that holds none",
        ),
        (
            lambda m: lai_torch.Curator(m, LOSS, Closed(m.parameters()), data(3)),
            ValueError,
            "optimizer: expected one that steps on gradients, got Closed, which needs a closure",
        ),
        (
            lambda m: lai_torch.Curator(m, LOSS, None, data(3), max_norm=0.5),
            ValueError,
            "max_norm: expected an optimizer beside max_norm=0.5, got None: score() and weigh() train",
        ),
        (
            lambda m: lai_torch.Curator(m, LOSS, None, data(3), accumulate=2),
            ValueError,
            "accumulate: expected an optimizer beside accumulate=2, got None",
        ),
        (
            lambda m: curated(m, data(3), policy="keep_positive"),
            TypeError,
            "function from scores to weights, got 'keep_positive'; pass lai_core.keep_positive",
        ),
        (lambda m: curated(m, data(3), estimator=lai_torch.LAI), TypeError, "got the class LAI; call it"),
        (lambda m: curated(m, data(3), backward="Whole"), ValueError, "did you mean 'whole'?"),
    ],
)
def test_a_curator_that_cannot_be_is_not_made(make, error, message):
    with pytest.raises(error, match=re.escape(message)):
        make(network())


def test_an_error_on_the_validation_set_says_so():
    inputs, targets = data(9)
    curator = curated(network(), (inputs[:, :3], targets))
    with pytest.raises(RuntimeError, match="while tracing the validation set: mat1 and mat2 shapes"):
        curator.step(*data(6))


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


@pytest.mark.parametrize(("own", "other"), [("lai", "ghost"), ("exact", "lai")])
def test_a_state_of_another_estimator_is_refused_whole(own, other):
    model = network()
    saved, curator = (curated(model, data(9), estimator=name) for name in (other, own))
    saved.step(*data(6))
    with pytest.raises(ValueError, match=f"state: expected that of a curator with estimator '{own}', got"):
        curator.load_state_dict(saved.state_dict())
    assert curator.steps == 0


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
    with pytest.raises(ValueError, match="path: expected a file in a folder that exists, got"):
        lai_torch.AuditLog(tmp_path / "nowhere" / "audit.jsonl")
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


def test_a_curator_takes_at_most_fourteen_arguments_and_an_estimator_its_own():
    assert len(inspect.signature(lai_torch.Curator).parameters) <= 14
    assert lai_torch.LAI() == lai_torch.LAI(positions=None)
    assert lai.keep_positive is curated(network(), data(3)).policy


def test_a_summary_that_is_larger_than_its_budget_is_refused():
    model = torch.nn.Linear(4, 3)
    batch = torch.randn(6, 4), torch.arange(6) % 3
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    for budget in (32, 2**10):
        estimator = lai_torch.LAI(memory_budget=budget)
        curator = lai_torch.Curator(model, loss, None, batch, estimator=estimator)
        if budget == 32:
            with pytest.raises(ValueError, match="memory_budget: expected at least"):
                curator.score(*batch)
        else:
            assert len(curator.score(*batch)[0]) == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lai_torch.KeepAbove(float("nan")), "threshold: expected a number, got nan"),
        (lambda: lai_torch.KeepAbove("1"), "threshold: expected a number, got '1'"),
        (lambda: lai_torch.Kept(autocast="bfloat16"), "autocast: expected a floating-point type"),
        (lambda: lai_torch.Kept(scaler=3), "scaler: expected a torch.amp.GradScaler, or None, got int"),
    ],
)
def test_options_are_checked_where_they_are_given(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_parameter_without_a_shape_is_named():
    model = nn.Sequential(nn.LazyLinear(3)).double()
    with pytest.raises(
        ValueError, match=r"parameter '0\.weight' has no shape yet; run the model on one batch"
    ):
        lai_torch.exact_scores(model, LOSS, data(5), data(6))


def test_losses_that_depend_on_no_parameter_are_named():
    def detached(outputs, targets):
        return LOSS(outputs.detach(), targets)

    with pytest.raises(ValueError, match="loss: expected one that depends on a parameter that trains"):
        lai_torch.exact_scores(network(), detached, data(5), data(6))


def test_a_learning_rate_is_a_number():
    options = {"at": "midpoint", "learning_rate": "0.1"}
    with pytest.raises(TypeError, match=r"learning_rate: expected a number, or None, got '0\.1'"):
        lai_torch.exact_scores(network(), LOSS, data(5), data(6), **options)


@pytest.mark.parametrize("state", [{"estimator": "lai"}, {}, None])
def test_a_state_with_parts_missing_is_named(state):
    with pytest.raises(
        ValueError, match="state: expected what state_dict of a curator returned, got one wit"
    ):
        curated(network(), data(5)).load_state_dict(state)
