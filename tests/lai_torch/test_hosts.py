"""Every option on every host of a curator: it changes what happens, or the host refuses it by its name."""

import itertools
import re
from dataclasses import fields

import lai_torch
import lightning.pytorch as pl
import pytest
import torch
from lai_torch.integrations._options import KEYWORDS
from lai_torch.integrations.lightning import Curation
from lai_torch.integrations.transformers import CuratedTrainer
from lai_torch.options.estimators import ESTIMATORS
from lai_torch.options.keywords import HEADS, REFUSED
from torch import nn
from torch.utils.data import DataLoader
from transformers import TrainingArguments

import lai_core as lai
from tests.lai_torch.support import HALF, LOSS

pytestmark = pytest.mark.filterwarnings("default")
STEPS, ROWS, HELD = 4, 6, 9


class Model(nn.Module):
    """A small network that writes down how it is run; with an axis of positions, or without."""

    def __init__(self, positions):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.positions = nn.Linear(4, 5), nn.Linear(5, 3), positions
        self.runs = []

    def forward(self, x):
        if not torch.compiler.is_compiling():
            self.runs.append((len(x), torch.is_autocast_enabled("cpu"), self.training))
        outputs = self.head(torch.tanh(self.body(x)))
        return outputs.mean(1) if self.positions else outputs


def drawn(rows, seed, positions):
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, *((2, 4) if positions else (4,)), generator=draw)
    return inputs, torch.randint(3, (rows,), generator=draw)


def seen(report):
    return [
        *(report.step, report.backward, report.method, report.age, report.updated),
        *(None if one is None else one.tolist() for one in (report.scores, report.weights, report.parts)),
    ]


def stepped(model, options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    curator = lai_torch.Curator(model, LOSS, optimizer, drawn(HELD, 9, model.positions), **options)
    return [seen(curator.step(*drawn(ROWS, step, model.positions))) for step in range(STEPS)]


def scored(model, options):
    curator = lai_torch.Curator(model, LOSS, None, drawn(HELD, 9, model.positions), **options)
    return [seen(curator.score(*drawn(ROWS, step, model.positions))[1]) for step in range(STEPS)]


def by_transformers(model, options, folder):
    class Rows(torch.utils.data.Dataset):
        def __init__(self, batches):
            self.rows = [{"x": x, "labels": y} for batch in batches for x, y in zip(*batch, strict=True)]

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index]

    settings = {"per_device_train_batch_size": ROWS, "max_steps": STEPS, "optim": "sgd", "report_to": []}
    settings |= {"use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "max_grad_norm": 0.0}
    model.config = type("Config", (), {"is_encoder_decoder": False, "to_dict": lambda self: {}})()
    trainer = CuratedTrainer(
        model,
        TrainingArguments(output_dir=str(folder), remove_unused_columns=False, **settings),
        train_dataset=Rows([drawn(ROWS, step, model.positions) for step in range(STEPS)]),
        validation=Rows([drawn(HELD, 9, model.positions)]),
        sample_loss=lambda outputs, batch: LOSS(outputs, batch["labels"]),
        curation=options,
    )
    reports = []
    trainer.shown.add = reports.append
    trainer.train()
    return [seen(report) for report in reports]


def by_lightning(model, options, folder):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model

        def training_step(self, batch, index):
            return curation.objective(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.5)

    validation = drawn(HELD, 9, model.positions)
    curation = Curation(LOSS, validation, model=lambda module: module.net, **options)
    reports = []
    curation.shown.add = reports.append
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[curation], default_root_dir=folder, **quiet
    )
    batches = [drawn(ROWS, step, model.positions) for step in range(STEPS)]
    trainer.fit(Module(), DataLoader(batches, batch_size=None))
    return [seen(report) for report in reports]


def by_data_set(model, options, folder):
    data, validation = drawn(STEPS * ROWS, 0, model.positions), drawn(HELD, 9, model.positions)
    scores = folder / str(next(COUNT))
    table = lai_torch.score_dataset(
        model, LOSS, data, validation, scores, batch_size=ROWS, progress=False, **options
    )
    return repr(table.to_pydict())


COUNT = itertools.count()
HOSTS = {
    "step": lambda model, options, folder: stepped(model, options),
    "score": lambda model, options, folder: scored(model, options),
    "CuratedTrainer": by_transformers,
    "Curation": by_lightning,
    "score_dataset": by_data_set,
}

VALUES = {
    "chunk": 2,
    "memory_budget": 8,
    "parts": 3,
    "autocast": torch.bfloat16,
    "last": "no layer",
    "positions": "mean",
    "valid": lambda inputs: torch.tensor([[1, 0]]).expand(
        len(inputs["x"] if isinstance(inputs, dict) else inputs), 2
    ),
    "sketch": 2,
    "decay": 0.1,
    "exponent": 0.5,
    "scale_inputs": True,
    "method": "double backward",
    "of": "optimizer",
}
"""Of each option of an estimator, a value that is not the usual one."""

BESIDE = {"parts": {"policy": lai.drop_harmful}, "generator": ("share",), "backward: auto": ("policy",)}
"""What an option needs beside itself to mean something."""


def reference(outputs, targets):
    return LOSS(outputs, targets["labels"] if isinstance(targets, dict) else targets)


OWN = {
    "policy: keep_top": {"policy": HALF},
    "policy: reweight": {"policy": lai.reweight},
    "policy: KeepAbove": {"policy": lai_torch.KeepAbove(-100.0)},
    "policy: Scheduled": {"policy": lai_torch.Scheduled(lai.keep_positive, lambda step: step > 1)},
    "policy: step": {"policy": lambda scores, step: torch.full_like(scores, 1.0 + step)},
    "policy: KeepBelowLoss": {"policy": lai_torch.KeepBelowLoss(0.3)},
    "policy: measured": {"policy": lai_torch.KeepReducible(Model(True), reference)},
    "policy: GroupFloor": {"policy": lai_torch.GroupFloor(0.9)},
    "warmup": {"warmup": 2},
    "refresh": {"refresh": 3},
    "share": {"share": 0.5},
    "generator": {"share": 0.5, "generator": torch.Generator().manual_seed(5)},
    "accumulate": {"accumulate": 2},
    "max_norm": {"max_norm": 1e-3},
    "backward: selective": {"backward": "selective"},
    "backward: whole": {"backward": "whole"},
    "backward: auto": {"backward": "auto", "policy": torch.ones_like},
    "balance": {"backward": lai_torch.Kept(balance=True)},
    "autocast": {"backward": lai_torch.Kept(autocast=torch.bfloat16)},
    "scaler": {"backward": lai_torch.Kept(scaler=torch.amp.GradScaler("cpu", init_scale=float("inf")))},
    "auxiliary": {"backward": lai_torch.Kept(auxiliary=lambda outputs, _: outputs.square().sum())},
    "group": {"group": torch},
}
"""Options of a curator itself; policies and passes are options, too."""


NEUTRAL = {("step", "balance")}
"""One process has no rows to share out: what runs on several should run on one."""

CASES = [f"{name}.{field.name}" for name, kind in ESTIMATORS.items() for field in fields(kind)]
CASES += [f"curator.{name}" for name in OWN]


def options_of(case):
    """Return the options of a case, and those that it is compared with."""
    kind, _, name = case.partition(".")
    if kind == "curator":
        beside = {key: value for key, value in OWN[name].items() if key in BESIDE.get(name, ())}
        return dict(OWN[name]), beside
    given = {"estimator": ESTIMATORS[kind](**{name: VALUES[name]}), **BESIDE.get(name, {})}
    return given, {"estimator": ESTIMATORS[kind]()}


def happened(host, options, folder, *, positions):
    """Return what a host does under options, or the error with which it refuses them."""
    model = Model(positions)
    try:
        found = HOSTS[host](model, options, folder)
    except (TypeError, ValueError) as error:
        return error
    return repr(found), model.runs, [one.detach().tolist() for one in model.parameters()]


@pytest.fixture(scope="module")
def usually():
    """Remember what hosts do without an option."""
    return {}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("host", HOSTS)
def test_an_option_has_an_effect_or_is_refused_by_its_name(host, case, usually, tmp_path):
    given, plain = options_of(case)
    kind, _, name = case.partition(".")
    if host == "score_dataset" and kind != "curator":
        given.pop("policy", None)  # which it does not take
    positions = kind != "gate_lai"
    found = happened(host, given, tmp_path, positions=positions)
    key = host, kind, tuple(plain)
    if key not in usually:
        usually[key] = happened(host, plain, tmp_path, positions=positions)
    if isinstance(usually[key], Exception):  # what the option is of is itself refused there
        assert isinstance(found, Exception)
    elif isinstance(found, Exception):
        words = {*re.findall(r"\w+", name), *(given if kind == "curator" else ())}
        assert words & set(re.findall(r"\w+", str(found))), str(found)
    elif (host, name) not in NEUTRAL:
        assert found != usually[key]


def test_every_option_is_a_case():
    names = {case.partition(".")[2].partition(":")[0] for case in CASES}
    assert names >= KEYWORDS - {"estimator"}
    assert names >= {field.name for field in fields(lai_torch.Kept)}
    assert set(HEADS) < set(HOSTS)
    assert {option.rpartition(".")[2] for option in REFUSED} <= names
