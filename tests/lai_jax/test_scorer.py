"""A scorer travels, loads in its worker, and gives the table's numbers whatever holds the batch."""

import pickle

import jax
import jax.numpy as jnp
import lai_jax
import lai_storage
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lai_storage.tables import read_scores

from tests.lai_jax.test_dataset import DATA, VALIDATION, apply, loss, scored, weights

COLUMNS = {
    "uid": [f"s{n}" for n in range(11)],
    "x": DATA[0].tolist(),
    "y": DATA[1].tolist(),
    "kind": [*"abcdefghijk"],
}
OPTIONS = {"collate": ("x", "y"), "ids": "uid", "groups": "kind", "batch_size": 4}
NUMBERS = ["score", "standard_error", "loss", "gradient_norm"]


def scorer(validation=VALIDATION, params=weights, **options):
    return lai_jax.Scorer(apply, params, loss, validation, **(OPTIONS | options))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    names = {"ids": COLUMNS["uid"], "groups": COLUMNS["kind"]}
    found = scored(tmp_path_factory.mktemp("table"), rows_per_file=11, **names)
    return {name: values for name, values in found.items() if name != "rank"}


@pytest.mark.parametrize(
    "make", [pa.table, pd.DataFrame, dict, lambda columns: columns | {"x": jnp.asarray(DATA[0])}]
)
def test_a_batch_of_any_form_has_the_tables_numbers_in_its_own_form(make, table):
    batch = make(COLUMNS)
    found = scorer()(batch)
    assert isinstance(found, type(batch))
    read = found if isinstance(found, pa.Table) else pa.table(dict(found))
    assert read.to_pydict() == table
    assert read.column_names == ["id", *NUMBERS, "group"]


@pytest.mark.parametrize("estimator", ["lai", "ghost", "lli", "exact", "gate_lai", "calibrated_lai"])
def test_what_was_saved_or_pickled_scores_alike(estimator, tmp_path):
    here = scorer(estimator=estimator, parts=3, params=weights())
    expected = here(COLUMNS)
    here.save(tmp_path / "saved")
    saved = scorer(tmp_path / "saved", estimator=estimator)
    for other in (saved, *(pickle.loads(pickle.dumps(each)) for each in (here, saved))):
        found = other(COLUMNS)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
    assert not isinstance(pickle.loads(pickle.dumps(here)).validation, tuple)


def test_what_was_summarized_has_its_own_parts_and_sketch(tmp_path, table):
    validation = tuple(map(jnp.asarray, VALIDATION))
    side = lai_jax.summarize(apply, weights(), loss, *validation, parts=6)
    for given in (side, tmp_path / "side"):
        lai_storage.save(tmp_path / "side", side)
        np.testing.assert_array_equal(scorer(given)(COLUMNS)["standard_error"], table["standard_error"])
    sketch = lai_jax.draw_sketch(jax.random.key(0), 3, 2)
    side = lai_jax.summarize(apply, weights(), loss, *validation, sketch=sketch)
    found = scorer(side)(COLUMNS)
    assert np.isfinite(found["score"]).all()
    assert np.isnan(found["gradient_norm"]).all()  # of a sketch, no norm is stated


def test_one_program_scores_batches_of_every_size_and_frames_may_be_empty(table):
    traced = []

    def counting(outputs, targets):
        traced.append(outputs.shape)
        return loss(outputs, targets)

    one = lai_jax.Scorer(apply, weights, counting, VALIDATION, **OPTIONS)
    frame = pd.DataFrame(COLUMNS)
    found = [one(frame[:4])]
    before = len(traced)
    found += map(one, iter([frame[4:4], frame[4:7], frame[7:]]))
    assert len(traced) == before
    assert pd.concat(found).reset_index(drop=True).to_dict("list") == table


class Stream:
    """Samples one after the other."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(self.samples)


def test_a_stream_has_the_table_of_a_data_set_goes_on_and_is_refused_where_it_changed(tmp_path, table):
    items = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    pairs = Stream(list(zip(*DATA, strict=True)))
    numbered = {**table, "id": list(range(11))}
    named = {"collate": ("x", "y"), "ids": "uid", "groups": "kind", "batch_size": 4, "progress": False}

    def run(stream, folder, **options):
        found = lai_jax.score_dataset(
            apply, weights(), loss, stream, VALIDATION, tmp_path / folder, **options
        )
        return {name: values for name, values in found.to_pydict().items() if name != "rank"}

    found = run(pairs, "pairs", batch_size=4, progress=False)
    assert found == {name: values for name, values in numbered.items() if name != "group"}
    options = named | {"rows_per_file": 4}
    assert run(Stream(items), "items", **options) == table
    (tmp_path / "items" / "part-000001.parquet").unlink()
    with pytest.raises(ValueError, match=r"dataset: expected the stream to have the samples .* from row 1 "):
        run(Stream(items[:1] + items[2:]), "items", **options)
    assert run(iter(items), "items", **options) == table
    assert read_scores(tmp_path / "items")["group"].to_pylist() == COLUMNS["kind"]


WRONG = {
    "no columns": ({"batch": DATA}, "ids: expected a batch with a column 'uid', got tuple"),
    "another side": (
        {"estimator": "exact", "validation": "lai"},
        "expects a ValidationGradient, got Validation",
    ),
    "another file": (
        {"validation": "other"},
        "to hold what Scorer.save wrote, or a ValidationSummary, got dict",
    ),
    "of a run": ({"estimator": "preconditioned_lai"}, "expected one that scores a sample by itself"),
    "no batch size": ({"batch_size": 0}, "batch_size: expected a whole number"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_named(case, tmp_path):
    options, message = WRONG[case]
    options = {"batch": COLUMNS, **options}
    scorer().save(tmp_path / "lai")
    lai_storage.save(tmp_path / "other", {"a": np.ones(1)})
    name = options.pop("validation", None)
    batch = options.pop("batch")
    with pytest.raises((TypeError, ValueError), match=message):
        scorer(VALIDATION if name is None else tmp_path / name, **options)(batch)
