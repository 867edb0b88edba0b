"""A scorer travels, loads in its worker, and gives the table's numbers whatever holds the batch."""

import pickle

import lai_storage
import lai_torch
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import lai_core as lai
from tests.lai_torch.support import LOSS, drawn
from tests.lai_torch.tables import network
from tests.support.torch_modules import Part

NUMBERS = ["score", "standard_error", "loss", "gradient_norm"]
NAMES = [f"s{number}" for number in range(10)]
DATA, VALIDATION = drawn(10), drawn(12, 2)
COLUMNS = {"uid": NAMES, "x": DATA[0].tolist(), "y": DATA[1].tolist(), "kind": [*"ab"] * 5}
OPTIONS = {"collate": ("x", "y"), "ids": "uid", "groups": "kind", "batch_size": 4}


def scorer(model=network, **options):
    return lai_torch.Scorer(model, LOSS, VALIDATION, **(OPTIONS | options))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    options = {"ids": NAMES, "groups": COLUMNS["kind"], "batch_size": 4, "progress": False}
    folder = tmp_path_factory.mktemp("table")
    return lai_torch.score_dataset(network(), LOSS, DATA, VALIDATION, folder, **options).drop_columns("rank")


FORMS = {
    "table of Arrow": (pa.table, lambda found: found),
    "DataFrame": (pd.DataFrame, lambda found: pa.Table.from_pandas(found, preserve_index=False)),
    "lists": (dict, pa.table),
    "tensors": (lambda columns: columns | dict(zip("xy", DATA, strict=True)), pa.table),
    "numpy": (lambda columns: {name: np.array(values) for name, values in columns.items()}, pa.table),
    "rows of numpy": (lambda columns: columns | {"x": [row.numpy() for row in DATA[0]]}, pa.table),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_of_any_form(form, table):
    make, read = FORMS[form]
    batch = make(COLUMNS)
    found = scorer()(batch)
    assert isinstance(found, type(batch))
    assert read(found).to_pydict() == table.to_pydict()


def test_pairs_of_tensors(table):
    found = lai_torch.Scorer(network(), LOSS, VALIDATION, batch_size=4)(DATA)
    assert list(found) == NUMBERS
    for name in NUMBERS:
        np.testing.assert_array_equal(found[name], table[name].to_numpy())
    other = lai_torch.Scorer(network(), LOSS, VALIDATION)(DATA)
    np.testing.assert_allclose(other["score"], found["score"], rtol=1e-12)


KINDS = [
    "lai", "ghost", "lli", "exact", "gate_lai", "calibrated_lai", lai_torch.LAI(sketch=2, positions="mean")
]  # fmt: skip


def quiet():
    """Return the model, and leave the stream where it was."""
    with torch.random.fork_rng(devices=[]):
        return network()


@pytest.mark.parametrize("estimator", KINDS, ids=str)
def test_saved_or_pickled_scorers(estimator, tmp_path):
    torch.manual_seed(3)
    here = scorer(quiet, estimator=estimator, parts=3)
    expected = here(COLUMNS)
    here.save(tmp_path / "validation.safetensors")
    saved = lai_torch.Scorer(quiet, LOSS, tmp_path / "validation.safetensors", estimator=estimator, **OPTIONS)
    for other in (saved, pickle.loads(pickle.dumps(here)), pickle.loads(pickle.dumps(saved))):
        torch.manual_seed(4)  # a worker's stream is another
        found = other(COLUMNS)
        assert list(found) == list(expected)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


def test_only_the_summary_travels(tmp_path):
    here = scorer(model=network())
    assert not isinstance(pickle.loads(pickle.dumps(here)).validation, tuple)
    path = tmp_path / "later.safetensors"
    late = pickle.loads(pickle.dumps(lai_torch.Scorer(network, LOSS, path, **OPTIONS)))
    here.save(path)
    assert late(COLUMNS)["score"].shape == (10,)


def test_own_summaries_without_standard_errors(tmp_path):
    summary = lai.summarize(lai_torch.trace(network(), LOSS, *VALIDATION), "lai")
    lai_storage.save(tmp_path / "summary", summary)
    expected = scorer()(COLUMNS)
    for given in (summary, tmp_path / "summary"):
        found = lai_torch.Scorer(network, LOSS, given, **OPTIONS)(COLUMNS)
        np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-12)
        assert np.isnan(found["standard_error"]).all()


def test_functions_collate_and_mappings():
    def words(columns):
        assert columns["word"] == ["a"] * 10  # no numbers: a list
        return {"input": columns["x"], "y": columns["y"]}

    def named():
        return Part(lambda own, input, y: own.net(input), net=network())

    def loss(outputs, batch):
        return LOSS(outputs, batch["y"])

    validation = {"input": VALIDATION[0], "y": VALIDATION[1]}
    expected = lai_torch.Scorer(network, LOSS, VALIDATION)(DATA)
    found = lai_torch.Scorer(named, loss, validation)({"input": DATA[0], "y": DATA[1]})
    worded = lai_torch.Scorer(named, loss, (validation, validation), collate=words)
    for other in (found, worded(COLUMNS | {"word": ["a"] * 10})):
        np.testing.assert_array_equal(other["score"], expected["score"])


def test_fractions_take_the_models_type(table):
    validation = dict(zip("xy", VALIDATION, strict=True)) | {"x": VALIDATION[0].numpy()}
    options = {"collate": ("x", "y"), "batch_size": 4}
    found = lai_torch.Scorer(lambda: network().float(), LOSS, validation, **options)(COLUMNS)
    np.testing.assert_allclose(found["score"], table["score"].to_numpy(), rtol=1e-4)


CHANGES = {
    "a value": lambda model: model[0].weight[0, 0].add_(0.5),
    "a buffer": lambda model: model[3].running_mean[0].add_(0.5),
}


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_changed_models_are_summed_anew(change, tmp_path):
    def make():
        return network().append(torch.nn.BatchNorm1d(3).double())

    model = make()
    scorers = [lai_torch.Scorer(model, LOSS, VALIDATION, batch_size=4)]
    scorers[0].save(tmp_path / "saved")
    scorers.append(lai_torch.Scorer(model, LOSS, tmp_path / "saved", batch_size=4))
    before = [scorer(DATA)["score"] for scorer in scorers]
    np.testing.assert_array_equal(*before)
    CHANGES[change](model)
    anew = lai_torch.Scorer(model, LOSS, VALIDATION, batch_size=4)(DATA)["score"]
    np.testing.assert_array_equal(scorers[0](DATA)["score"], anew)
    assert not np.allclose(anew, before[0])
    with pytest.raises(ValueError, match=r"^model: expected the parameters at which .validation. was summed"):
        scorers[1](DATA)
    late = lai_torch.Scorer(model, LOSS, tmp_path / "saved", batch_size=4)
    with pytest.raises(ValueError, match=r"^validation: expected a summary .* model had other "):
        late(DATA)
    other = lai_torch.Scorer(make(), torch.nn.MSELoss(), tmp_path / "saved")
    with pytest.raises(ValueError, match=r"^validation: expected a summary .* loss had another name or"):
        other(DATA)
