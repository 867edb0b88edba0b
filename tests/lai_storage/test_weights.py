"""Weights of samples as files: what stands in them, as which types, and what is none."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lai_storage.weights import write_weights

import lai_core as lai
from tests.support.backends import BACKENDS

ROWS = [{"index": 0, "weight": 0.5}, {"index": 1, "weight": 0.0}, {"index": 2, "weight": 0.5}]


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_both_file_formats_hold_policy_weights(backend, tmp_path):
    weights = lai.keep_positive(backend.array([1.0, -1.0, 3.0]))
    for given in (
        weights,
        np.float32([0.5, 0.0, 0.5]),
        [0.5, 0.0, 0.5],
        pa.chunked_array([[0.5], [0.0, 0.5]]),
    ):
        write_weights(given, tmp_path / "weights.parquet")
        write_weights(given, str(tmp_path / "weights.jsonl"))
        table = pq.read_table(tmp_path / "weights.parquet")
        assert table.to_pylist() == ROWS
        assert table.schema == pa.schema({"index": pa.int64(), "weight": pa.float64()})
        lines = (tmp_path / "weights.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == ROWS


def test_samples_have_the_hosts_names(tmp_path):
    path = tmp_path / "weights.jsonl"
    write_weights(np.array([1.0, 2.0]), path, ids=["é", "b"])
    assert path.read_text(encoding="utf-8").splitlines()[0] == '{"index": "é", "weight": 1.0}'
    write_weights(np.array([1.0, 2.0]), path, ids=pa.chunked_array([[9], [7]]))
    assert [json.loads(line)["index"] for line in path.read_text().splitlines()] == [9, 7]


@pytest.mark.parametrize(
    ("weights", "ids", "name", "message"),
    [
        ([1.0], None, "w.csv", "path: expected a name that ends in .parquet or .jsonl, got 'w.csv'"),
        (np.ones((2, 1)), None, "w.jsonl", r"weights: expected shape \(n,\), one number a sample, got shape"),
        ([1.0, -1e-9], None, "w.jsonl", "weights: expected finite numbers of at least 0, not all 0"),
        ([1.0, math.nan], None, "w.jsonl", "weights: expected finite numbers"),
        ([1.0, math.inf], None, "w.jsonl", "weights: expected finite numbers"),
        ([1.0, None], None, "w.jsonl", "weights: expected finite numbers"),
        ([0.0, 0.0], None, "w.jsonl", "weights: expected finite numbers"),
        ([], None, "w.jsonl", "weights: expected finite numbers"),
        ([1.0, 1.0], [3], "w.jsonl", "ids: expected 2, each once, got 1, 1 of them different"),
        ([1.0, 1.0], [3, 3], "w.jsonl", "ids: expected 2, each once, got 2, 1 of them different"),
    ],
)
def test_what_is_no_weight_is_named(weights, ids, name, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_weights(weights, tmp_path / name, ids=ids)
    assert not list(tmp_path.iterdir())
