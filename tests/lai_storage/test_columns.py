"""Batches of columns, as engines hand them over: what is an array of numbers, and what is a list."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lai_storage.columns import NUMBERS, columns_of, joined, paired, rows_of, scored

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
def test_numbers_of_one_shape_are_an_array_of_the_columns_type(case):
    given, expected = ARRAYS[case]
    found = rows_of(given)
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", LISTS)
def test_all_else_is_a_list(case):
    given, expected = LISTS[case]
    assert rows_of(given) == expected


def test_columns_have_names_in_tables_frames_and_mappings_alone():
    columns = {"a": [1, 2], "b": ["x", "y"]}
    for batch in (pa.table(columns), pa.RecordBatch.from_pydict(columns), pd.DataFrame(columns), columns):
        found = columns_of(batch)
        assert {name: list(rows_of(values)) for name, values in found.items()} == columns
    for batch in ((np.ones(2), np.ones(2)), [1, 2], np.ones(2), "ab"):
        assert columns_of(batch) is None


def test_the_columns_of_names_are_left_out_and_stand_around_the_numbers():
    seen = []

    def score(columns):
        seen.append(list(columns))
        return {name: np.full(2, place) for place, name in enumerate(reversed(NUMBERS))}

    columns = {"a": [1, 2], "b": ["x", "y"], "c": [3, 4]}
    found = scored(pa.table(columns), score, ids="b", groups="a")
    assert found.column_names == ["id", *NUMBERS, "group"]
    assert found.select(["id", "score", "group"]).to_pydict() == {
        "id": ["x", "y"],
        "score": [3, 3],
        "group": [1, 2],
    }
    assert list(scored(columns, score, ids="b", groups="b")) == ["id", *NUMBERS, "group"]
    assert seen == [["c"], ["a", "c"]]


def test_a_mapping_is_inputs_and_targets_and_a_function_sees_all_columns():
    columns = {"a": [1, 2], "b": ["x", "y"]}
    inputs, targets = paired({"a": [1, 2]}, None, list)
    assert inputs is targets
    assert inputs == {"a": [1, 2]}
    assert paired(columns, ("a", "a"), list) == ([1, 2], [1, 2])
    assert paired(columns, lambda given: (given["b"], given["a"]), list) == (["x", "y"], [1, 2])


def test_joined_batches_are_one():
    batches = {"a": np.array([1.0, 2.0]), "b": ["x", "y"]}, {"a": np.array([3.0]), "b": ["z"]}
    assert joined(batches[1:]) == {"a": [3.0], "b": ["z"]}
    assert joined(iter(batches)) == {"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]}
