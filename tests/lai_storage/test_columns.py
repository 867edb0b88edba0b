"""Batches of columns, as engines hand them over: what is an array of numbers, and what is a list."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from lai_storage.columns import (
    NUMBERS,
    collate_items,
    columns_of,
    read_rows,
    rows_of,
    score_rows,
)

GRID = np.arange(8, dtype=np.float32).reshape(4, 2)
TENSORS = pa.FixedShapeTensorArray.from_numpy_ndarray(GRID)
ARRAYS = {
    "numbers": (pa.array([1, 2, 3, 4]), np.arange(1, 5)),
    "flags": (pa.array([True, False, True, True]), np.array([True, False, True, True])),
    "lists": (pa.array(list(GRID)), GRID),
    "lists of fixed length": (pa.FixedSizeListArray.from_arrays(GRID.reshape(-1), 2), GRID),
    "lists of lists": (
        pa.array([row.reshape(2, 1).tolist() for row in GRID]),
        GRID.reshape(4, 2, 1).astype(float),
    ),
    "tensors": (TENSORS, GRID),
    "a slice": (pa.array([[0.5, 0.5], *GRID.astype(float), [0.5, 0.5]])[1:5], GRID.astype(float)),
    "chunks": (pa.chunked_array([pa.array(list(GRID[:1])), pa.array(list(GRID[1:]))]), GRID),
    "a series": (pd.Series([1.5, 2.0]), np.array([1.5, 2.0])),
    "a series of lists": (pd.Series([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
    "a series of lists of lists": (
        pa.array([[[1.0], [2.0]]] * 2).to_pandas(),
        np.array([[[1.0], [2.0]]] * 2),
    ),
    "arrays": (list(GRID), GRID),
    "lists of numbers": (GRID.tolist(), GRID.astype(float)),
}
LISTS = {
    "text": (pa.array(["a", "b"]), ["a", "b"]),
    "missing numbers": (pa.array([1, None]), [1, None]),
    "a missing row": (pa.array([[1], None]), [[1], None]),
    "a missing number in a row": (pa.array([[1, None], [1, 2]]), [[1, None], [1, 2]]),
    "rows of several lengths": (pa.array([[1], [2, 3]]), [[1], [2, 3]]),
    "several lengths": ([[1], [2, 3]], [[1], [2, 3]]),
    "words": (np.array(["a", "b"]), ["a", "b"]),
    "mappings": ([{"a": 1}], [{"a": 1}]),
    "dates": (np.array(["2026-01-01"], "datetime64[D]"), [np.datetime64("2026-01-01")]),
    "nothing": ([], []),
    "no rows": (pa.array([], pa.list_(pa.float32())), []),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_equal_shapes_become_typed_arrays(case):
    given, expected = ARRAYS[case]
    found = rows_of(given)
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_foreign_arrays_are_left_unchanged():
    assert rows_of(values := torch.ones(2)) is values


@pytest.mark.parametrize("case", LISTS)
def test_all_else_is_a_list(case):
    given, expected = LISTS[case]
    assert rows_of(given) == expected


def test_tables_frames_and_mappings_name_columns():
    columns = {"a": [1, 2], "b": ["x", "y"]}
    made = pa.table, pa.RecordBatch.from_pydict, pd.DataFrame, Dataset.from_dict, dict
    for batch in (make(columns) for make in made):
        found = columns_of(batch)
        assert {name: list(rows_of(values)) for name, values in found.items()} == columns
    for batch in ((np.ones(2), np.ones(2)), [1, 2], np.ones(2), "ab"):
        assert columns_of(batch) is None


def read(batch, collate=None, **labels):
    def count(pair):
        return len(next(iter(pair[0].values())) if isinstance(pair[0], dict) else pair[0])

    options = {"collate": collate, "asarray": np.asarray, "count": count}
    return read_rows("batch", batch, **options, labels=labels)


def test_label_columns_are_left_out():
    columns = {"a": [1, 2], "b": ["x", "y"], "c": [3, 4]}
    for batch in (pa.table(columns), pd.DataFrame(columns), columns):
        samples, labels, (inputs, targets) = read(batch, ids="b", groups="a")
        assert (samples, labels) == (2, {"id": ["x", "y"], "group": [1, 2]})
        assert inputs is targets
        assert {name: values.tolist() for name, values in inputs.items()} == {"c": [3, 4]}


def test_tuples_and_functions_select_columns():
    columns = {"a": [1, 2], "b": ["x", "y"]}
    assert [side.tolist() for side in read(columns, ("a", "a")).pair] == [[1, 2], [1, 2]]
    assert read(columns, lambda given: (given["b"], given["a"])).pair[0] == ["x", "y"]
    assert read({"a": [], "b": []}, ("a", "b")) == (0, {}, None)


WRONG = {
    "a column": ({"a": [1]}, {"ids": "b"}, "ids: expected the name of one of the batch's columns ('a')"),
    "collate": ({"a": [1]}, {"collate": ("a", "b")}, "collate: expected the name of one of"),
    "text": ({"a": ["x"]}, {}, "collate: expected numbers of one shape in every row of column 'a', got str"),
    "rows": ({"a": [1, 2]}, {"collate": lambda given: ([1], [1])}, "as many samples as the batch has rows"),
    "no pair": ({"a": [1, 2]}, {"collate": lambda given: 1}, "collate: expected a pair (inputs, targets)"),
    "an array": (np.ones(2), {}, "batch: expected a pair (inputs, targets), got ndarray"),
    "labels": ({"a": [1.5]}, {"groups": "a"}, "groups: expected whole numbers for all samples, or text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_batch_is_named(case):
    batch, options, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        read(batch, **options)


UNLIKE = {
    "a key less": [{"a": 1, "b": 2}, {"a": 1}],
    "a key more": [{"a": 1}, {"a": 1, "b": 2}],
    "another kind": [{"a": 1}, (1, 2)],
    "no pair": [(1, 2), (1, 2, 3)],
    "numbers": [1, 2],
    "text": ["ab", "cd"],
}


@pytest.mark.parametrize("case", UNLIKE)
def test_uncollatable_samples_are_named(case):
    with pytest.raises(TypeError, match=r"^dataset: expected samples that are all pairs .* got .* and "):
        collate_items("dataset", np.stack, UNLIKE[case])
    assert collate_items("dataset", np.stack, [{"b": 2, "a": 1}, {"a": 3, "b": 4}]) == {
        "b": [2, 4],
        "a": [1, 3],
    }


def test_batches_may_be_single_or_empty():
    assert collate_items("dataset", lambda items: map(list, zip(*items, strict=True)), [(1, 2)]) == ([1], [2])
    assert collate_items("dataset", np.stack, [{"a": 1}]) == {"a": [1]}
    found = score_rows(read({"a": [], "b": []}, groups="a"), {}.__getitem__)
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys([*NUMBERS, "group"], 0)


def test_samples_of_several_shapes_are_named():
    with pytest.raises(ValueError, match=r"^dataset: expected samples of one shape, which stack to a batch"):
        collate_items("dataset", np.stack, [(np.ones(2), np.ones(3)), (np.ones(2), np.ones(4))])
