"""Tables of a data set's scores, in parts that appear whole or not at all: a run goes on where it stopped.

Needs `pip install "lai-core[dataset]"`.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from lai_core.storage._files import check_run, write_whole

__all__ = ["read_scores", "score_parts"]

Columns = Mapping[str, Any]
"""Names and numpy arrays or lists, one entry a sample."""

RUN = "run.json"


def score_parts(
    folder: str | os.PathLike[str],
    settings: Mapping[str, Any],
    score: Callable[[range], Columns],
    *,
    samples: int,
    rows: int,
    process: tuple[int, int] = (0, 1),
    progress: bool = True,
    checkpoint: str = "",
    ids: Sequence[Any] | None = None,
    groups: Sequence[Any] | None = None,
) -> None:
    """Score what is missing of a data set's parts, and write each as one Parquet file.

    What `score_dataset` of both adapters stands on; for scores of one's own.

    Parameters
    ----------
    folder
        Of the parts, made where it is missing.
    settings
        What the scores are of, as plain values; a run that goes on must have the same.
    score
        From consecutive sample numbers to their columns, `score` among them.
    samples, rows
        Of the data set, and of one part.
    process
        Which process this is, and how many there are: part k is written by process `k mod count`.
    progress
        Whether to show a bar.
    checkpoint
        What the parameters are called: a folder of its own, and a column.
    ids, groups
        What the samples are called, and to what they belong; None: their numbers, no column.

    Raises
    ------
    ValueError
        If there is not one id or group per sample, or the folder holds scores of other settings.
    """
    named = {"id": range(samples) if ids is None else ids} | ({} if groups is None else {"group": groups})
    for name, values in named.items():
        if len(values) != samples:
            msg = f"{name}s: expected one per sample, {samples}, got {len(values)}"
            raise ValueError(msg)
    folder = Path(folder, checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    check_run(folder / RUN, {"samples": samples, "rows": rows, **settings})
    index, count = process
    own = [part for part in range(-(-samples // rows)) if part % count == index]
    spans = {part: range(part * rows, min((part + 1) * rows, samples)) for part in own}
    missing = [part for part in own if not _path(folder, part).exists()]
    done = sum(len(spans[part]) for part in own if part not in missing)
    total = sum(map(len, spans.values()))
    with tqdm(total=total, initial=done, unit=" samples", disable=not progress) as bar:
        for part in missing:
            given = {name: [values[index] for index in spans[part]] for name, values in named.items()}
            columns = {"id": given.pop("id"), **score(spans[part]), **given}
            if checkpoint:
                columns["checkpoint"] = [checkpoint] * len(spans[part])
            write_whole(_path(folder, part), partial(pq.write_table, pa.table(columns)))
            bar.update(len(spans[part]))


def digest(arrays: Iterable[tuple[str, Any]]) -> str:
    """Return what tells one set of arrays from another, from their kinds and bytes."""
    found = sha256()
    for kind, content in arrays:
        found.update(kind.encode())
        found.update(content)
    return found.hexdigest()


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
    FileNotFoundError
        If it is no such folder.
    ValueError
        If parts are missing: the run was interrupted and goes on when it is started again.
    """
    folders = sorted(path.parent for path in Path(folder).rglob(RUN))
    if not folders:
        msg = f"{folder}: expected a folder that score_dataset wrote, found no {RUN} in it"
        raise FileNotFoundError(msg)
    tables = [pa.concat_tables(_parts(each)) for each in folders]
    if average:
        return _ranked(_averaged(pa.concat_tables(tables)))
    return pa.concat_tables([_ranked(table) for table in tables])


def _parts(folder: Path) -> Iterator[pa.Table]:
    run = json.loads((folder / RUN).read_text())
    paths = [_path(folder, part) for part in range(-(-run["samples"] // run["rows"]))]
    missing = [path for path in paths if not path.exists()]
    if missing:
        msg = (
            f"{folder}: expected {len(paths)} parts, {len(missing)} are missing ({missing[0].name} first): "
            "start the same score_dataset again, it goes on where it stopped"
        )
        raise ValueError(msg)
    yield from (pq.read_table(path) for path in paths)


def _ranked(table: pa.Table) -> pa.Table:
    scores = pc.if_else(pc.is_nan(table["score"]), None, table["score"])
    ranks = pc.rank(scores, sort_keys="ascending", tiebreaker="min")
    return table.append_column("rank", pc.if_else(pc.is_null(scores), None, pc.cast(ranks, pa.int64())))


def _averaged(table: pa.Table) -> pa.Table:
    """Return each sample's means over the checkpoints; a standard error as if all were of one sample set."""
    numbers = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    others = [name for name in table.column_names if name not in (*numbers, "id", "checkpoint")]
    grouped = table.group_by("id", use_threads=False).aggregate(
        [(name, "mean") for name in numbers] + [(name, "first") for name in others]
    )
    names = {f"{name}_mean": name for name in numbers} | {f"{name}_first": name for name in others}
    return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])


def _path(folder: Path, part: int) -> Path:
    return folder / f"part-{part:06d}.parquet"
