"""Tables of a data set's scores, in parts that appear whole or not at all: a run goes on where it stopped.

A folder belongs to one run. Its manifest, `run.json`, says which options the scores are of and which tables
there are; each part says by fingerprints which model, loss, validation set and samples it is of. Readers read
what the manifest lists.

Needs the extra `dataset`.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lai_storage._files import write_whole
from lai_storage.columns import Rows, join_columns
from lai_storage.identity import fingerprint

__all__ = ["read_scores"]

RUN, END = "run.json", "end.json"
"""What the scores are of; of a stream, how many samples it had."""
NUMBERED = "part-{:06d}.parquet"
MADE_OF = b"lai"
"""Where a part's metadata say what it is of."""
DIFFERS = {
    "model": "other parameters, buffers or classes",
    "loss": "another name or other parameters",
    "validation": "other samples, or a summary of others",
}
"""What another fingerprint means."""


def begin_run(folder: Path, run: Mapping[str, Any]) -> None:
    """Write a folder's manifest; where a run was begun before, raise unless it is the same one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        msg = f"folder: expected one that is there or can be made, got {str(folder)!r} ({error})"
        raise ValueError(msg) from error
    _settle(folder / RUN, run)


def end_stream(folder: Path, samples: int, rows: int) -> None:
    """Write how many samples a stream had; raise if it had another number before, or parts beyond."""
    beyond = folder / NUMBERED.format(-(-samples // rows))
    if beyond.exists() and not (folder / END).exists():
        raise _make_samples_error(beyond)
    _settle(folder / END, {"samples": samples})


def _settle(path: Path, run: Mapping[str, Any]) -> None:
    """Write plain values; where some are there already, raise unless they are the same."""
    if not path.exists():
        write_whole(path, lambda own: own.write_text(json.dumps(run, indent=1)))
    begun = _load(path)
    for name in {**begun, **run}:
        if begun.get(name) != run.get(name):
            argument = "rows_per_file" if name == "rows" else name
            msg = (
                f"{argument}: expected {begun.get(name)!r}, with which the scores in {path.parent} were "
                f"begun, got {run.get(name)!r}; pass another folder, or delete this one"
            )
            raise ValueError(msg)


def _check_marks(folder: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise if a part is of another model, loss or validation set than expected."""
    for name, differs in DIFFERS.items():
        if found.get(name) != expected.get(name):
            msg = (
                f"{name}: expected the one with which the scores in {folder} were begun, got one with "
                f"{differs}; pass another folder, or delete this one"
            )
            raise ValueError(msg)


def _load(path: Path) -> dict[str, Any]:
    """Read a file of plain values."""
    try:
        found = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise _broken(path, error) from error
    if not isinstance(found, dict) or not isinstance(found.get("samples", 0), int | None):
        raise _broken(path, "it holds other values")
    return found


def _broken(path: Path, why: object) -> ValueError:
    return ValueError(
        f"{path}: expected a whole file that score_dataset wrote, got one that cannot be read ({why}); "
        "delete it, and start the same score_dataset again"
    )


def write_parts(
    folder: Path,
    parts: Iterable[tuple[int, Iterable[Rows]]],  # this process's parts by number, each in batches
    score: Callable[[Rows], Mapping[str, Any]],
    *,
    rows: int,  # of a part
    made_of: Mapping[str, str],  # fingerprints
    checkpoint: str,
    progress: Callable[[int], Any],
) -> None:
    """Score the parts that are missing; raise if one that is there is of something else."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob(NUMBERED.replace("{:06d}", "[0-9]" * 6)):
        _check_marks(folder, _read_marks(path), made_of)
    length = _load(folder / END).get("samples", math.inf) if (folder / END).exists() else math.inf
    for number, batches in parts:
        if number * rows >= length:
            msg = f"samples: expected {length}, with which the scores in {folder} were begun, got more"
            raise ValueError(f"{msg}; pass another folder, or delete this one")
        path, content = folder / NUMBERED.format(number), blake2b(digest_size=16)

        def read(batches: Iterable[Rows] = batches, content: Any = content) -> Iterator[Rows]:
            for rows in batches:
                content.update(fingerprint(rows).encode())
                yield rows

        if path.exists():
            samples = sum(rows.samples for rows in read())
            if content.hexdigest() != _read_marks(path).get("samples"):
                raise _make_samples_error(path)
        else:
            columns = join_columns(map(score, read()))
            samples = len(columns["id"])
            if checkpoint:
                columns["checkpoint"] = [checkpoint] * samples
            marks = {"part": [checkpoint, number], **made_of, "samples": content.hexdigest()}
            table = pa.table(columns, metadata={MADE_OF: json.dumps(marks)})
            write_whole(path, partial(pq.write_table, table, write_page_checksum=True))
        progress(samples)


def _make_samples_error(path: Path) -> ValueError:
    return ValueError(
        f"dataset: expected the samples that {path} was made of, in their order, got others; pass the data "
        "as they were, or another folder"
    )


def _read_marks(path: Path) -> dict[str, Any]:
    """Return the fingerprints of what a part is of."""
    try:
        return dict(json.loads((pq.read_schema(path).metadata or {}).get(MADE_OF, "{}")))
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise _broken(path, error) from error


def _read_part(path: Path) -> pa.Table:
    try:
        found = pq.read_table(path, partitioning=None, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from error
    return found.replace_schema_metadata()


def read_scores(folder: str | os.PathLike[str], *, average: bool = False) -> pa.Table:
    """Read the table that `score_dataset` wrote, with the rank of every score.

    Parameters
    ----------
    folder
        The one it was written to.
    average
        Whether to average each sample's numbers over the checkpoints.

    Returns
    -------
    pyarrow.Table
        In the order of the data set, one checkpoint after the other: `.to_pandas()`, or
        `datasets.Dataset(table)`. `rank` counts from 1, the lowest score, which is the most harmful; none
        where the score is not a number.

    Raises
    ------
    ValueError
        If parts are missing, for the run was interrupted and goes on when it is started again; if a file
        is cut short, or parts are of several parameters.
    """
    folder = Path(folder)
    if not (folder / RUN).exists():
        msg = f"{folder}: expected a folder that score_dataset wrote, found no {RUN} in it"
        raise FileNotFoundError(msg)
    run = _load(folder / RUN)
    rows, names = run.get("rows"), run.get("checkpoints") or [""]
    if "samples" not in run or not isinstance(rows, int) or rows < 1 or not isinstance(names, list):
        raise _broken(folder / RUN, "it lacks a value")
    tables = [_read_table(folder, str(name), run) for name in names]
    return _rank(_average(tables)) if average else pa.concat_tables(map(_rank, tables))


def _read_table(folder: Path, checkpoint: str, run: Mapping[str, Any]) -> pa.Table:
    """Read the parts of one checkpoint, each of which says that it is in its place."""
    folder, samples, rows = folder / checkpoint, run["samples"], run["rows"]
    if samples is None and (folder / END).exists():
        samples = _load(folder / END).get("samples")
    if samples is None:
        msg = (
            f"{folder}: expected the scores of a stream up to its end, which is missing: start the same "
            "score_dataset again, it goes on where it stopped"
        )
        raise ValueError(msg)
    paths = [folder / NUMBERED.format(part) for part in range(-(-samples // rows))]
    missing = [path for path in paths if not path.exists()]
    if missing:
        msg = (
            f"{folder}: expected {len(paths)} parts, {len(missing)} are missing ({missing[0].name} first): "
            "start the same score_dataset again, it goes on where it stopped"
        )
        raise ValueError(msg)
    marks = [_read_marks(path) for path in paths]
    tables = list(map(_read_part, paths))
    for number, (one, path, table) in enumerate(zip(marks, paths, tables, strict=True)):
        _check_marks(folder, one, marks[0])
        if one.get("part", [checkpoint, number]) != [checkpoint, number]:
            raise _broken(path, "it is another part, copied here")
        if len(table) != min(rows, samples - number * rows):
            raise _broken(path, f"it has {len(table)} rows")
    return pa.concat_tables(tables)


def _rank(table: pa.Table) -> pa.Table:
    scores = pc.if_else(pc.is_nan(table["score"]), None, table["score"])
    ranks = pc.rank(scores, sort_keys="ascending", tiebreaker="min")
    return table.append_column("rank", pc.if_else(pc.is_null(scores), None, pc.cast(ranks, pa.int64())))


def _average(tables: Sequence[pa.Table]) -> pa.Table:
    """Return each sample's means over the checkpoints; a standard error as if all were of one sample set."""
    first = tables[0]
    if "checkpoint" in first.column_names:
        first = first.drop_columns("checkpoint")
    means = {
        field.name: np.mean([table[field.name].to_numpy() for table in tables], axis=0)
        for field in first.schema
        if pa.types.is_floating(field.type)
    }
    return pa.table({name: means.get(name, first[name]) for name in first.column_names})
