"""Watching a run: which step is diagnosed, what is written of it, and what it trains on."""

import json
import math
from functools import partial
from types import SimpleNamespace

import lai_torch
import lightning.pytorch as pl
import pytest
import torch
import transformers
from lai_torch.integrations.lightning import SpikeWatch
from torch import nn

from tests.support.torch_modules import held, holding
from tests.support.workloads.trainers import arguments

N, STEPS, SPIKE, ROW = 16, 25, 20, 2


def squared(outputs, targets):
    return (outputs[:, 0] - targets) ** 2


def lying(inputs, targets):
    targets[ROW] = 500.0


def missing(inputs, targets):
    inputs[ROW, 0] = math.nan


def network(drop=0.0, norm=nn.Identity):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), norm(), nn.Dropout(drop), nn.ReLU(), nn.Linear(8, 1)).double()


def run(model, monitor=None, *, parts=1, plant=lambda *_: None, without=(), optimizer=None):
    """Train, and return what was found, step by step, with the norm of the gradient that then trains."""
    optimizer, found = optimizer or torch.optim.Adam(model.parameters(), 1e-2), []
    torch.manual_seed(1)
    for step in range(STEPS):
        inputs = torch.randn(N, 4).double()
        targets = inputs[:, 0] * 2
        if step == SPIKE:
            plant(inputs, targets)
        for part, chosen in enumerate(torch.arange(N).split(N // parts)):
            if monitor is not None:
                monitor.watch(
                    inputs[chosen], targets[chosen], ids=[f"{step}-{part}-{row}" for row in chosen.tolist()]
                )
            losses = squared(model(inputs[chosen]), targets[chosen])
            left = [row for row, one in enumerate(chosen.tolist()) if not (step == SPIKE and one in without)]
            (losses[left].sum() / N).backward()
        if monitor is not None:
            state = torch.get_rng_state()
            one = monitor.check(nn.utils.get_total_norm([one.grad for one in model.parameters()]))
            assert torch.equal(state, torch.get_rng_state())
            if one is not None:
                found.append((step, one))
        optimizer.step()
        optimizer.zero_grad()
    return found


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("options", [{}, {"drop": 0.3}, {"norm": lambda: nn.BatchNorm1d(8)}])
def test_a_spikes_row_is_written(tmp_path, parts, options):
    path, written = tmp_path / "spikes.jsonl", []
    model = network(**options)
    rule = lai_torch.SpikeRule(warmup=10)
    monitor = lai_torch.SpikeMonitor(model, squared, path=path, rule=rule, on_spike=written.append)
    ((step, found),) = run(model, monitor, parts=parts, plant=lying)
    assert (step, found.named[0], found.verdict) == (SPIKE, ROW, "rows")
    (line,) = map(json.loads, path.read_text().splitlines())
    assert written == [line]
    assert (line["step"], line["named"][0], line["rows"][0]["id"]) == (SPIKE, ROW, f"{SPIKE}-0-{ROW}")
    assert found.total_norm / N == pytest.approx(line["norm"], rel=1e-9)  # the gradient that training saw
    assert f"training saw {line['norm']:.3g}" in str(found)


def test_one_row_has_its_own_masks():
    """Two rows, as which one is read, draw others in the second dropout."""
    model = nn.Sequential(nn.Dropout(0.3), *network(drop=0.3))
    monitor = lai_torch.SpikeMonitor(model, squared, rule=lai_torch.SpikeRule(warmup=10))
    ((_, found),) = run(model, monitor, parts=N, plant=lying)
    assert found.named == (ROW,)
    assert found.total_norm == pytest.approx(found.trained_norm * N, rel=1e-9)


def test_spoilt_running_statistics_hide_no_row():
    model = network(norm=lambda: nn.BatchNorm1d(8))
    monitor = lai_torch.SpikeMonitor(model, squared, rule=lai_torch.SpikeRule(warmup=10))
    (_, found), *_ = run(model, monitor, plant=missing)
    assert found.nonfinite == {ROW: "inputs"}
    assert model[1].running_mean.isnan().all()  # as the step left them


def test_a_monitor_changes_no_run():
    watched, plain = network(drop=0.3), network(drop=0.3)
    assert run(watched, lai_torch.SpikeMonitor(watched, squared)) == []
    run(plain)
    for one, other in zip(watched.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("plant", [lying, missing])
def test_rows_left_out_do_not_train(parts, plant):
    curated, expected = network(), network()
    rule = lai_torch.SpikeRule(warmup=10)
    monitor = lai_torch.SpikeMonitor(curated, squared, rule=rule, leave_out=True)
    assert [one.named for _, one in run(curated, monitor, parts=parts, plant=plant)] == [(ROW,)]
    run(expected, without=(ROW,), parts=parts)
    for one, other in zip(curated.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("plant", "low", "resumed"), [(missing, False, False), (lying, True, False), (missing, False, True)]
)
def test_an_ordinary_step_tells_scales(tmp_path, plant, low, resumed):
    """Of a gradient that is no number, and where a spike's roundings are longer than all else in it."""
    torch.manual_seed(0)
    model, path = nn.Linear(4, 1), tmp_path / "spikes.jsonl"
    rule = lai_torch.SpikeRule(warmup=10)
    monitor = lai_torch.SpikeMonitor(model, squared, path=path, rule=rule, leave_out=True)
    for step in range(SPIKE + 1):
        inputs, targets = torch.randn(N, 4), torch.zeros(N)
        if step == SPIKE:
            plant(inputs, targets)
            if resumed:
                state = json.loads(json.dumps(monitor.state_dict()))
                monitor = lai_torch.SpikeMonitor(model, squared, path=path, rule=rule, leave_out=True)
                monitor.load_state_dict(state)
        monitor.watch(inputs, targets)
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            (3 * squared(model(inputs), targets).sum()).backward()
        found = monitor.check(nn.utils.get_total_norm([one.grad for one in model.parameters()]))
        given = model.weight.grad.clone()
        model.zero_grad()
    assert found.named == (ROW,)
    assert json.loads(path.read_text())["left_out"]
    others = torch.arange(N) != ROW
    (3 * squared(model(inputs[others]), targets[others]).sum()).backward()
    torch.testing.assert_close(given, model.weight.grad, rtol=0.01, atol=0.01)


def test_sparse_gradients_are_left_in(tmp_path):
    """A warning of the ordinary step, on which scales are told, would be an error here."""
    model, path = nn.EmbeddingBag(9, 1, sparse=True, mode="sum"), tmp_path / "spikes.jsonl"
    rule = lai_torch.SpikeRule(warmup=3)
    monitor = lai_torch.SpikeMonitor(model, squared, path=path, rule=rule, leave_out=True)
    for step in range(8):
        words, targets = torch.arange(N * 3).reshape(N, 3) % 9, torch.zeros(N)
        targets[ROW] = 500.0 * (step == 7)
        monitor.watch(words, targets)
        squared(model(words), targets).mean().backward()
        found = monitor.check(model.weight.grad.to_dense().norm() * (1 + step / 100))
        model.zero_grad()
    assert found.named == (ROW,)
    assert not json.loads(path.read_text())["left_out"]


def test_other_losses_gradients_are_left(tmp_path):
    model, path = network(), tmp_path / "spikes.jsonl"
    monitor = lai_torch.SpikeMonitor(
        model, squared, path=path, rule=lai_torch.SpikeRule(threshold=1.0), leave_out=True
    )
    inputs = torch.randn(N, 4).double()
    targets = torch.zeros(N).double()
    lying(inputs, targets)
    monitor.watch(inputs, targets)
    loss = squared(model(inputs), targets).mean() + 1e3 * sum(one.abs().sum() for one in model.parameters())
    loss.backward()
    before = [one.grad.clone() for one in model.parameters()]
    assert monitor.check(nn.utils.get_total_norm([one.grad for one in model.parameters()])).named == (ROW,)
    assert not json.loads(path.read_text())["left_out"]
    for one, other in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(one.grad, other, rtol=0.0, atol=0.0)


def test_monitors_resume():
    rule = partial(lai_torch.SpikeRule, warmup=40)
    first, second = (lai_torch.SpikeMonitor(network(), squared, rule=rule()) for _ in range(2))
    for step in range(30):
        first.check(1.0 + 0.01 * step)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    assert second.log.step == 30


@holding(lambda: held(body=network(drop=0.2).float()))
def returning(own, inputs, labels=None, num_items_in_batch=None):
    """Return what a Trainer wants: the loss over the labels of all micro-batches."""
    outputs = own.body(inputs)[:, 0]
    return {"loss": ((outputs - labels) ** 2).sum() / (num_items_in_batch or len(labels)), "logits": outputs}


def drawn(batches):
    torch.manual_seed(2)
    inputs = torch.randn(N * batches, 4)
    targets = inputs[:, 0] * 2
    targets[N * SPIKE + ROW] = 500.0
    return inputs, targets


@pytest.mark.filterwarnings("default")  # the trainer's own
@pytest.mark.parametrize(("parts", "leave_out"), [(1, False), (4, True)])
def test_trainers_write_and_train_on(tmp_path, parts, leave_out):
    inputs, targets = drawn(STEPS)
    data = [{"inputs": one, "labels": target} for one, target in zip(inputs, targets, strict=True)]
    model, path = returning(), tmp_path / "spikes.jsonl"
    settings = arguments(
        str(tmp_path / "run"),
        parts=parts,
        max_steps=STEPS,
        per_device_train_batch_size=N // parts,
        max_grad_norm=1.0,
        logging_steps=1,
    )
    trainer = transformers.Trainer(model, settings, train_dataset=data)
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(data)
    rule = lai_torch.SpikeRule(warmup=10)

    def loss(outputs, batch):
        return (outputs["logits"] - batch["labels"]) ** 2

    lai_torch.SpikeMonitor(model, loss, path=path, rule=rule, leave_out=leave_out).attach(trainer)
    trainer.train()
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["step"], line["named"], line["left_out"]) == (SPIKE, [ROW], leave_out)
    assert line["total_norm"] / N == pytest.approx(line["norm"], rel=1e-4)
    assert trainer.state.global_step == STEPS
    assert [one["spike/norm"] for one in trainer.state.log_history if "spike/norm" in one] == [line["norm"]]
    steepest = max(one["grad_norm"] for one in trainer.state.log_history if "grad_norm" in one)
    assert (steepest < line["norm"] / 2) == leave_out


def test_trainers_must_clip(tmp_path):
    trainer = transformers.Trainer(returning(), arguments(str(tmp_path), max_grad_norm=0.0), train_dataset=[])
    with pytest.raises(
        ValueError, match=r"^trainer: expected max_grad_norm above 0, by which the norm is comp"
    ):
        lai_torch.SpikeMonitor(trainer.model, squared).attach(trainer)


def test_trainers_tell_their_processes(tmp_path, monkeypatch):
    trainer = transformers.Trainer(returning(), arguments(str(tmp_path)), train_dataset=[])
    monitor, told = lai_torch.SpikeMonitor(trainer.model, squared), []
    monkeypatch.setattr(monitor, "share", told.append)
    monitor.attach(trainer)
    SpikeWatch(monitor).on_fit_start(SimpleNamespace(world_size=2), None)
    assert told == [1, 2]


class Module(pl.LightningModule):
    """Trains a network on batches with two parts each."""

    def __init__(self):
        super().__init__()
        self.net = network(drop=0.2).float()

    def training_step(self, batch):
        return squared(self.net(batch[0]), batch[1]).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


@pytest.mark.filterwarnings("default")  # Lightning's own
@pytest.mark.parametrize("parts", [1, 2])
def test_lightning_writes_and_trains_on(tmp_path, parts):
    inputs, targets = drawn(STEPS)
    pairs = list(zip(inputs.split(N // parts), targets.split(N // parts), strict=True))
    module, path = Module(), tmp_path / "spikes.jsonl"
    rule = lai_torch.SpikeRule(warmup=10)
    watch = SpikeWatch(lai_torch.SpikeMonitor(module.net, squared, path=path, rule=rule))
    trainer = pl.Trainer(
        max_epochs=1,
        accumulate_grad_batches=parts,
        callbacks=[watch],
        accelerator="cpu",
        gradient_clip_val=1.0,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(pairs, batch_size=None))
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["step"], line["named"], line["verdict"]) == (SPIKE, [ROW], "rows")
    assert line["total_norm"] / N == pytest.approx(line["norm"], rel=1e-4)


def test_failed_diagnoses_stop_no_run():
    model = network()

    def failing(outputs, targets):
        raise KeyError(outputs.shape)

    monitor = lai_torch.SpikeMonitor(model, failing, rule=lai_torch.SpikeRule(threshold=1.0))
    monitor.watch(torch.randn(N, 4).double(), torch.zeros(N))
    with pytest.warns(UserWarning, match=r"^SpikeMonitor: no diagnosis of a norm of 5: "):
        assert monitor.check(5.0) is None


def test_lost_second_moments_show_early():
    model, lines = network(), []
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rule = lai_torch.SpikeRule(warmup=10)
    monitor = lai_torch.SpikeMonitor(model, squared, rule=rule, optimizer=optimizer, on_spike=lines.append)

    def lose(*_):
        for state in optimizer.state.values():
            state["exp_avg_sq"].zero_()

    (step, found), *_ = run(model, monitor, optimizer=optimizer, plant=lose)
    assert (step, found.verdict) == (SPIKE, "no single row")
    assert lines[0]["update_excess"] > 10
    assert "the optimizer's step is " in str(found)
    assert monitor.updates.state_dict() == monitor.state_dict()["updates"]


def test_undiagnosable_runs_are_told_early():
    model = network()
    rule = lai_torch.SpikeRule(warmup=3)
    unseen = lai_torch.SpikeMonitor(model, squared, rule=rule)
    with pytest.warns(UserWarning, match="expected a batch in `watch` before `check`, got none"):
        assert [unseen.check(1.0) for _ in range(4)] == [None] * 4
    scalar = lai_torch.SpikeMonitor(
        model, lambda *both: squared(*both).mean(), rule=lai_torch.SpikeRule(warmup=3)
    )
    inputs = torch.randn(N, 4).double()

    def check_again():
        scalar.watch(inputs, inputs[:, 0])
        return scalar.check(1.0)

    with pytest.warns(UserWarning, match="no spike can be diagnosed: loss: expected one number per sample"):
        assert [check_again() for _ in range(4)] == [None] * 4


def test_exploded_runs_are_diagnosed_thrice():
    model = network()
    monitor = lai_torch.SpikeMonitor(model, squared, rule=lai_torch.SpikeRule(threshold=1e-9), most=3)
    assert [step for step, _ in run(model, monitor)] == [0, 1, 2]
