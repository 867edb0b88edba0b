"""Tables of a data set's scores, in parts that appear whole or not at all: a run goes on where it stopped.

A folder belongs to one run. Its manifest, `run.json`, says which options the scores are of and which tables
there are; each part says by fingerprints which model, loss, validation set and samples it is of. Readers read
what the manifest lists.

Needs the extra `dataset`.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lai_storage._files import write_whole
from lai_storage.columns import Rows
from lai_storage.identity import fingerprint

__all__ = ["read_scores"]

RUN, END = "run.json", "end.json"
"""What the scores are of; of a stream, how many samples it had."""
NUMBERED = "part-{:06d}.parquet"
MADE_OF = b"lai"
"""Where a part's metadata say what it is of."""
DIFFERS = {
    "model": "other parameters, buffers or classes, or another `valid`",
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
    settle(folder / RUN, run)


def settle(path: Path, run: Mapping[str, Any]) -> None:
    """Write plain values; where some are there already, raise unless they are the same."""
    if not path.exists():
        write_whole(path, lambda own: own.write_text(json.dumps(run, indent=1, default=int)))
    begun = json.loads(path.read_text())
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


def write_parts(
    folder: Path,
    parts: Iterable[tuple[int, Iterable[Rows]]],  # this process's parts by number, each in batches
    score: Callable[[Rows], Mapping[str, Any]],
    *,
    made_of: Mapping[str, str],  # fingerprints
    checkpoint: str,
    progress: Callable[[int], Any],
) -> None:
    """Score the parts that are missing; raise if one that is there is of something else."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob(NUMBERED.replace("{:06d}", "[0-9]" * 6)):
        _check_marks(folder, _read_marks(path), made_of)
    for number, batches in parts:
        path, content = folder / NUMBERED.format(number), blake2b(digest_size=16)

        def read(batches: Iterable[Rows] = batches, content: Any = content) -> Iterator[Rows]:
            for rows in batches:
                content.update(fingerprint(rows).encode())
                yield rows

        if path.exists():
            samples = sum(rows.samples for rows in read())
            if content.hexdigest() != _read_marks(path).get("samples"):
                msg = (
                    f"dataset: expected the samples that {path} was made of, in their order, got others; "
                    "pass the data as they were, or another folder"
                )
                raise ValueError(msg)
        else:
            scored = [*map(score, read())]  # of one batch at least
            columns = {name: [*chain.from_iterable(each[name] for each in scored)] for name in scored[0]}
            samples = len(columns["id"])
            if checkpoint:
                columns["checkpoint"] = [checkpoint] * samples
            marks = {**made_of, "samples": content.hexdigest()}
            table = pa.table(columns, metadata={MADE_OF: json.dumps(marks)})
            write_whole(path, partial(pq.write_table, table, write_page_checksum=True))
        progress(samples)


def _read_marks(path: Path) -> dict[str, Any]:
    """Return the fingerprints of what a part is of."""
    return dict(json.loads((pq.read_schema(path).metadata or {}).get(MADE_OF, "{}")))


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
        If parts are missing, for the run was interrupted and goes on when it is started again; if parts are
        of several models.
    """
    folder = Path(folder)
    if not (folder / RUN).exists():
        msg = f"{folder}: expected a folder that score_dataset wrote, found no {RUN} in it"
        raise FileNotFoundError(msg)
    run = json.loads((folder / RUN).read_text())
    tables = [_read_table(folder, name, run) for name in run["checkpoints"] or [""]]
    if not average:
        return pa.concat_tables(map(_rank, tables))
    # the means over the checkpoints, a standard error as if all were of one sample set
    first = tables[0]
    if "checkpoint" in first.column_names:
        first = first.drop_columns("checkpoint")
    means = {
        field.name: np.mean([table[field.name].to_numpy() for table in tables], axis=0)
        for field in first.schema
        if pa.types.is_floating(field.type)
    }
    return _rank(pa.table({name: means.get(name, first[name]) for name in first.column_names}))


def _read_table(folder: Path, checkpoint: str, run: Mapping[str, Any]) -> pa.Table:
    """Read the parts of one checkpoint, all of one run."""
    folder, samples = folder / checkpoint, run["samples"]
    if samples is None and (folder / END).exists():  # of a stream
        samples = json.loads((folder / END).read_text())["samples"]
    paths = [folder / NUMBERED.format(part) for part in range(-(-(samples or 0) // run["rows"]))]
    missing = [path.name for path in paths if not path.exists()]
    if missing or samples is None:
        lacks = f"{len(missing)} of {len(paths)} parts, {missing[0]} first" if missing else "a stream's end"
        msg = (
            f"{folder}: expected all scores, {lacks} missing: start the same score_dataset again, it goes on "
            "where it stopped"
        )
        raise ValueError(msg)
    marks = [_read_marks(path) for path in paths]
    for one in marks:
        _check_marks(folder, one, marks[0])
    parts = (pq.read_table(path, partitioning=None, page_checksum_verification=True) for path in paths)
    return pa.concat_tables(part.replace_schema_metadata() for part in parts)


def _rank(table: pa.Table) -> pa.Table:
    scores = pc.if_else(pc.is_nan(table["score"]), None, table["score"])
    ranks = pc.rank(scores, sort_keys="ascending", tiebreaker="min")
    return table.append_column("rank", pc.if_else(pc.is_null(scores), None, pc.cast(ranks, pa.int64())))
