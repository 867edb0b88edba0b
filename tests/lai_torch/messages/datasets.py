"""Mistakes with data: sets that cannot be scored, columns that do not fit, other numbers of samples."""

from pathlib import Path

import lai_storage
import lai_torch
from lai_storage.tables import read_scores
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lai_core as lai
from tests.lai_torch.support import LOSS, data, drawn, labels, sgd
from tests.lai_torch.tables import network

DATA, VALIDATION = drawn(10), drawn(8, 2)
NAMES = [f"s{number}" for number in range(10)]
COLUMNS = {"uid": NAMES, "x": DATA[0].tolist(), "y": DATA[1].tolist(), "text": NAMES}
STREAM = lai_torch.MixtureStream([[*zip(*DATA, strict=True)]], [1], 2)


def table(data=DATA, validation=VALIDATION, **options):
    """Return a call that scores a data set, and writes nothing where it is refused."""

    def call():
        try:
            options.setdefault("progress", False)
            lai_torch.score_dataset(network(), LOSS, data, validation, "scores", **options)
        finally:
            assert not Path("scores").exists()

    return call


def summarized(checkpoints):
    lai_torch.Scorer(network(), LOSS, VALIDATION).save("validation")
    table(validation=Path("validation"), checkpoints=checkpoints)()


def scorer(validation=VALIDATION, model=network, batch=COLUMNS, **options):
    """Return a call that scores a batch; a text names what a file of the validation set holds."""
    given = {"collate": ("x", "y"), "ids": "uid", "batch_size": 4} | options

    def call():
        held = validation
        if isinstance(validation, str):
            held = Path(validation)
            trace = lai_torch.trace(network(), LOSS, *VALIDATION)
            if validation == "scorer":
                lai_torch.Scorer(network(), LOSS, VALIDATION, collate=("x", "y")).save(held)
            else:
                lai_storage.save(held, trace if validation == "trace" else lai.summarize(trace, "lai"))
        lai_torch.Scorer(model, LOSS, held, **given)(batch)

    return call


SETS = {
    "ValueError: chunk: expected no chunk of the estimator, …pass batch_size= beside": (
        table(estimator=lai_torch.LAI(chunk=2))
    ),
    "TypeError: dataset: expected a pair": table("abcd"),
    "ValueError: …got num_workers=1; pass the stream itself": (table(DataLoader(STREAM, num_workers=1))),
    "ValueError: dataset: expected a DataLoader": (
        lambda: lai_torch.score_dataset(
            network(), LOSS, DataLoader(TensorDataset(*DATA), batch_size=None), VALIDATION, "unread"
        )
    ),
    "TypeError: ids: expected the name of a column of the stream's items, got list": table(STREAM, ids=[1]),
    "ValueError: validation: expected samples to sum up with each … got a summary": (
        lambda: summarized({"a": network().state_dict()})
    ),
    "ValueError: estimator: expected one that scores a sample by itself": table(estimator="midpoint"),
    "FileNotFoundError: …found no run.json": lambda: read_scores("nowhere"),
    "ValueError: …'text', got str; pass a function": scorer(collate=("text", "y")),
    "ValueError: …for Ghost(), got LAI()": scorer("scorer", estimator="ghost"),
    "TypeError: …expected … to hold what Scorer.save wrote, … got Trace": scorer("trace"),
    "ValueError: …has no ValidationSummary; pass": scorer("summary", estimator="exact"),
    "TypeError: model: expected a torch.nn.Module, or a function … 'gpt2'": scorer(model="gpt2"),
}


def shorter(outputs, targets):
    """Compute a loss of as many samples as both have, as `zip` would."""
    shared = min(len(outputs), len(targets))
    return LOSS(outputs[:shared], targets[:shared])


def curator_of(model, loss, validation=None, **options):
    return lai_torch.Curator(model, loss, sgd(model), validation or data(7), **options)


ENTRIES = [
    lai_torch.trace,
    lambda model, loss, *batch: curator_of(model, loss).step(*batch),
    lambda model, loss, *batch: curator_of(model, loss, warmup=9).step(*batch),
    lambda model, loss, *batch: curator_of(model, loss, batch).step(*data(7)),
    lambda model, loss, *batch: lai_torch.exact_scores(model, loss, data(7), batch),
    lambda model, loss, *batch: lai_torch.exact_scores(model, loss, batch, data(7)),
    lambda model, loss, *batch: lai_torch.score_dataset(model, loss, batch, data(7), "unwritten"),
]
UNEQUAL = [
    lambda entry=entry: entry(nn.Linear(4, 3).double(), shorter, data(6)[0], labels(5)) for entry in ENTRIES
]
MESSAGES = SETS | {"ValueError: …got 6 in inputs and 5 in targets": UNEQUAL}
