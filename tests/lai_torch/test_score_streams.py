"""A table of a stream's scores: that of a data set, taken up where it stopped, refused where it changed."""

import lai_torch
import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from lai_storage.tables import read_scores
from torch.utils.data import DataLoader, TensorDataset

from tests.lai_torch.tables import COLUMNS, LOSS, NAMES, Stream, drawn, items, network, scored
from tests.support.torch_modules import held, holding


@pytest.mark.parametrize("rows", [9, 10, 20, 21])
def test_a_stream_has_the_table_of_a_data_set(tmp_path, rows):
    data, validation = drawn(20), drawn(8, 2)
    options = {"batch_size": 4, "rows_per_file": rows}
    whole = scored(tmp_path / "whole", TensorDataset(*data), validation, **options)
    pairs = Stream(zip(*data, strict=True))
    loader = DataLoader(pairs, batch_size=3)
    for name, stream in {"set": pairs, "loader": loader, "once": iter(pairs), "list": iter([*pairs])}.items():
        assert scored(tmp_path / name, stream, validation, **options) == whole


def test_items_that_are_dictionaries_have_ids_and_groups_in_a_stream_and_in_a_data_set(tmp_path):
    data, validation = drawn(20), drawn(8, 2)
    named = {"ids": NAMES, "groups": [name[0] for name in NAMES], "batch_size": 7, "rows_per_file": 8}
    whole = scored(tmp_path / "whole", data, validation, **named)
    found = items(data, NAMES)
    validations = {"pair": validation, "columns": dict(zip("xy", validation, strict=True))}
    validations["items"] = items(validation, NAMES[:8])
    for name, given in {
        "stream": iter(found),
        "set": found,
        "loader": DataLoader(found, batch_size=2),
        "rows of datasets": Dataset.from_list(found),
        "stream of datasets": Dataset.from_list(found).to_iterable_dataset(),
    }.items():
        for form, side in validations.items():
            assert scored(tmp_path / f"{name} {form}", given, side, **COLUMNS) == whole
            given = given if name.endswith("datasets") else found


def test_a_stream_goes_on_where_it_stopped_and_scores_nothing_twice(tmp_path):
    data, validation = drawn(20), drawn(8, 2)
    stream = Stream(items(data, NAMES))
    whole = scored(tmp_path / "whole", stream, validation, **COLUMNS)
    assert stream.read == 20
    scored(tmp_path / "whole", stream, validation, **COLUMNS)
    assert stream.read == 20  # the end is known, and nothing is missing
    folder = tmp_path / "stopped"

    def failing(outputs, targets):
        if (folder / "part-000001.parquet").exists():
            raise KeyboardInterrupt
        return LOSS(outputs, targets)

    with pytest.raises(KeyboardInterrupt):
        lai_torch.score_dataset(network(), failing, stream, validation, folder, progress=False, **COLUMNS)
    with pytest.raises(ValueError, match="a stream up to its end, which is missing: start the same"):
        read_scores(folder)
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    assert len(written) == 2
    assert scored(folder, stream, validation, **COLUMNS) == whole
    assert {path: path.stat().st_mtime_ns for path in written} == written


@pytest.mark.parametrize("change", ["order", "shorter", "longer"])
def test_a_stream_that_changed_is_refused_where_it_goes_on(tmp_path, change):
    validation, names = drawn(8, 2), [*NAMES]
    found = items(drawn(20), names)
    scored(tmp_path, Stream(found), validation, **COLUMNS)
    (tmp_path / "part-000001.parquet").unlink()
    if change == "order":
        found[3], found[5] = found[5], found[3]
    other = {"order": found, "shorter": found[:18], "longer": found + items(drawn(1), ["new"])}[change]
    row = {"order": "part-000000.parquet was made of.* from row 3", "shorter": "row 2", "longer": "row 4"}
    with pytest.raises(ValueError, match=f"^dataset: expected the stream to have .*{row[change]} "):
        scored(tmp_path, Stream(other), validation, **COLUMNS)


def test_a_stream_is_scored_with_several_checkpoints_and_its_bar_says_that_its_length_is_unknown(
    tmp_path, capsys
):
    stream, validation = Stream(items(drawn(20), NAMES)), drawn(8, 2)
    states = {str(seed): network(seed).state_dict() for seed in (5, 6)}
    lai_torch.score_dataset(network(), LOSS, stream, validation, tmp_path, checkpoints=states, **COLUMNS)
    shown = capsys.readouterr().err
    assert "stream of unknown length: 20 samples" in shown
    for seed in (5, 6):
        alone = scored(tmp_path.with_name(f"alone{seed}"), stream, validation, network(seed), **COLUMNS)
        table = read_scores(tmp_path).filter(pa.compute.field("checkpoint") == str(seed))
        assert table.drop_columns("checkpoint").to_pydict() == alone


def test_the_columns_of_names_are_no_inputs_of_validation_samples_either(tmp_path):
    def loss(outputs, batch):
        return LOSS(outputs, batch["y"])

    @holding(lambda: held(net=network()))
    def make_named(own, x, y):
        return own.net(x)

    data, validation = (items(drawn(8, seed), NAMES[:8]) for seed in (1, 2))
    options = {"ids": "uid", "groups": "kind", "progress": False}
    found = lai_torch.score_dataset(make_named(), loss, iter(data), validation, tmp_path / "named", **options)
    plain = scored(tmp_path / "plain", drawn(8, 1), drawn(8, 2))
    np.testing.assert_allclose(found["score"].to_numpy(), plain["score"], rtol=1e-10)
