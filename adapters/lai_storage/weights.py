"""Weights of samples as a file for other trainers. Needs the extra `dataset`."""

import json
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lai_storage._files import write_whole
from lai_storage._safetensors import to_numpy

__all__ = ["write_weights"]


def write_weights(weights: Any, path: str | PathLike[str], *, ids: Sequence[Any] | None = None) -> None:
    """Write one weight a sample, in columns `index` and `weight`, as hosts read them.

    Parameters
    ----------
    weights
        `(n,)`, finite and not negative, at least one positive: an array of any namespace, or numbers. What a
        policy makes of a table's scores: `lai_core.keep_top`, `reweight`, `sampling_probabilities`.
    path
        Of the file, which appears whole or not at all: `.parquet`, or `.jsonl` with an object a line.
    ids
        What the host calls the samples, each once; None: their numbers.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from lai_storage.weights import write_weights
    >>> path = Path(tempfile.mkdtemp(), "weights.jsonl")
    >>> write_weights([0.5, 0.0], path, ids=[7, 3])
    >>> print(path.read_text().strip())
    {"index": 7, "weight": 0.5}
    {"index": 3, "weight": 0.0}
    """
    write = {".parquet": pq.write_table, ".jsonl": _write_lines}.get(Path(path).suffix)
    if write is None:
        msg = f"path: expected a name that ends in .parquet or .jsonl, got {Path(path).name!r}"
        raise ValueError(msg)
    given = to_numpy(weights) if hasattr(weights, "shape") else weights
    if len(shape := getattr(given, "shape", (len(given),))) != 1:
        msg = f"weights: expected shape (n,), one number a sample, got shape {shape}"
        raise ValueError(msg)
    values = pa.array(given).cast(pa.float64())
    valid = pc.and_(pc.is_finite(values), pc.greater_equal(values, 0.0))
    if not (pc.all(valid, skip_nulls=False).as_py() and pc.sum(values).as_py()):
        msg = "weights: expected finite numbers of at least 0, not all 0; lai_core.keep_top makes them"
        raise ValueError(msg)
    index = pa.array(range(len(values)) if ids is None else ids)
    different = len(pc.unique(index))
    if not len(values) == len(index) == different:
        msg = f"ids: expected {len(values)}, each once, got {len(index)}, {different} of them different"
        raise ValueError(msg)
    write_whole(Path(path), partial(write, pa.table({"index": index, "weight": values})))


def _write_lines(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())
