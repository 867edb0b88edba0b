"""Tables of a data set's scores, in parts that appear whole or not at all: a run goes on where it stopped.

Needs `pip install "lai-core[dataset]"`.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tqdm import tqdm

from lai_storage._files import check_run, write_whole

__all__ = ["read_scores", "score_parts", "score_stream"]

Columns = Mapping[str, Any]
"""Names and numpy arrays or lists, one entry a sample."""

RUN, END = "run.json", "end.json"
"""What the scores are of; of a stream, how many samples it had."""


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

    `score_dataset` of both adapters calls it; for scores of one's own.

    Parameters
    ----------
    folder
        Of the parts, made where it is missing.
    settings
        What the scores are of, as plain values; a run that goes on must have the same.
    score
        From consecutive sample numbers to their columns, `score` among them.
    samples
        How many samples the data set has.
    rows
        How many rows one part has.
    process
        Which process this is, and how many there are: part k is written by process `k mod count`.
    progress
        Whether to show a bar.
    checkpoint
        What the parameters are called: a folder of its own, and a column.
    ids
        What the samples are called; None: their numbers.
    groups
        To what the samples belong; None: no column.
    """
    named = {"id": range(samples) if ids is None else ids} | ({} if groups is None else {"group": groups})
    for name, values in named.items():
        if len(values) != samples:
            msg = f"{name}s: expected one per sample, {samples}, got {len(values)}"
            raise ValueError(msg)
    folder = _begun(folder, checkpoint, {"samples": samples, "rows": rows, **settings})
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
            bar.update(_write(_path(folder, part), columns, checkpoint))


def score_stream(
    folder: str | os.PathLike[str],
    settings: Mapping[str, Any],
    score: Callable[[Iterator[Any]], Columns],
    stream: Iterable[Any],
    *,
    rows: int,
    process: tuple[int, int] = (0, 1),
    progress: bool = True,
    checkpoint: str = "",
    name: Callable[[Any], Any] | None = None,
) -> None:
    """Score the samples of a stream without a length, and write them as `score_parts` does.

    A run that is started again reads the stream from its start, and scores the missing parts only. The table
    is then the same if the stream has the same samples in the same order: the ids of parts that are written
    are compared with those of the stream.

    Parameters
    ----------
    folder, settings, rows, progress, checkpoint
        As for `score_parts`.
    score
        From consecutive samples to their columns, `score` among them; reads all that it is given.
    stream
        Of samples.
    process
        Which process this is, and how many there are: each reads the whole stream.
    name
        From a sample to the id that `score` returns for it in a column `id`. None: the id is the sample's
        number, by which only a stream that became shorter is noticed.
    """
    folder = _begun(folder, checkpoint, {"samples": None, "rows": rows, **settings})
    index, count = process
    seen, samples = 0, _length(folder)
    if samples is not None and all(
        _path(folder, part).exists() for part in range(index, -(-samples // rows), count)
    ):
        return
    items = iter(stream)
    with tqdm(desc="stream of unknown length", unit=" samples", disable=not progress) as bar:
        while True:
            path, taken = _path(folder, seen // rows), islice(items, rows)
            numbers = range(seen, seen + rows)
            if path.exists() or seen // rows % count != index:
                pairs = zip(numbers, taken, strict=False)
                found = [number if name is None else name(item) for number, item in pairs]
                if path.exists():
                    _check_same(path, found)
                read = len(found)
            elif first := list(islice(taken, 1)):
                columns = score(chain(first, taken))
                read = len(columns["score"])
                read = _write(path, {"id": numbers[:read], **columns}, checkpoint)
            else:
                read = 0
            bar.update(read)
            seen += read
            if read < rows:
                break
    if not seen:
        msg = "dataset: expected at least one sample, got none"
        raise ValueError(msg)
    check_run(folder / END, {"samples": seen})


def _begun(folder: str | os.PathLike[str], checkpoint: str, run: Mapping[str, Any]) -> Path:
    """Return the folder of a checkpoint's parts, after checking that they are of this run."""
    folder = Path(folder, checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    check_run(folder / RUN, run)
    return folder


def _write(path: Path, columns: dict[str, Any], checkpoint: str) -> int:
    """Write a part, and return how many samples it has."""
    if "group" in columns:
        columns["group"] = columns.pop("group")  # behind the numbers
    table = pa.table(columns)
    if checkpoint:
        table = table.append_column("checkpoint", [[checkpoint] * len(table)])
    write_whole(path, partial(pq.write_table, table))
    return len(table)


def _check_same(path: Path, ids: Sequence[Any]) -> None:
    """Raise unless a part is of the samples that a stream has in its place."""
    before = pq.read_table(path, columns=["id"])["id"].to_pylist()
    if before != list(ids):
        pairs = enumerate(zip(before, ids, strict=False))
        place = next((at for at, (one, other) in pairs if one != other), min(len(before), len(ids)))
        msg = (
            f"dataset: expected the stream to have the samples that {path} was made of, in their order, got "
            f"others from row {place} of it on; pass the stream as it was, or another folder"
        )
        raise ValueError(msg)


def _length(folder: Path) -> int | None:
    """Return how many samples a stream had; None before a run has come to its end."""
    end = folder / END
    return int(json.loads(end.read_text())["samples"]) if end.exists() else None


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
    samples = run["samples"] if run["samples"] is not None else _length(folder)
    if samples is None:
        msg = (
            f"{folder}: expected the scores of a stream up to its end, which is missing: start the same "
            "score_dataset again, it goes on where it stopped"
        )
        raise ValueError(msg)
    paths = [_path(folder, part) for part in range(-(-samples // run["rows"]))]
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
