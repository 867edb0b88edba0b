"""Scores of batches and of data sets: what `Scorer` and `score_dataset` of both adapters are made of."""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from lai_storage import load, save, storable


@storable
@dataclass(frozen=True)
class Sealed:
    """A validation set's summary, with the fingerprints of the model and the loss that it was made with."""

    summary: Any
    made_of: Mapping[str, str]


class BatchScorer(ABC):
    """Scores batches against a validation set; the adapters say how inputs and targets are scored."""

    _summaries: ClassVar[tuple[type, ...]]
    """What a validation set is summed up as."""
    _asarray: ClassVar[Callable[..., Any]]
    """Makes the framework's array of numpy's."""

    def __init__(self, validation: Any, batch_size: int, collate: Any, ids: Any, groups: Any) -> None:
        names = isinstance(collate, tuple) and len(collate) == 2
        if not (collate is None or callable(collate) or (names and all(isinstance(n, str) for n in collate))):
            msg = (
                "collate: expected the names of two columns, of inputs and of targets, or a function from "
                f"all columns to (inputs, targets), got {collate!r}"
            )
            raise TypeError(msg)
        self.validation, self.batch_size = validation, batch_size
        self.collate, self.ids, self.groups = collate, ids, groups

    def __getstate__(self) -> dict[str, Any]:
        """Return the options, with the summary of a validation set in the place of its samples."""
        is_path = isinstance(self.validation, str | PathLike)
        return self._options() | {"validation": self.validation if is_path else self._seal()}

    def _options(self) -> dict[str, Any]:
        """Return what the scorer was given, without what it was made into."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the validation set's summary to a file, which other scorers take as `validation`.

        The file says by fingerprints which model, parameters and loss it belongs to; a scorer of others
        refuses it.

        Parameters
        ----------
        path
            Of the file, in a folder that exists.
        """
        save(path, self._seal())

    def _seal(self) -> Any:
        """Return the summary with what it was made of; as it is where the user brought it."""
        held = self._read_side()
        return held if self._is_summary(held) else Sealed(self._summed, self._made_of)

    def __call__(self, batch: Any) -> Any:
        """Score a batch.

        Parameters
        ----------
        batch
            A table or record batch of Arrow, a DataFrame, a mapping of columns (arrays, lists), or a pair
            `(inputs, targets)`.

        Returns
        -------
        pyarrow.Table, pandas.DataFrame or dict
            The columns, in the form of the batch; of a mapping or a pair a dictionary.
        """
        from lai_storage.columns import put_back, score_rows  # needs numpy

        return put_back(batch, score_rows(self._read("batch", batch), self._numbers), self._labels)

    @classmethod
    def _is_summary(cls, validation: Any) -> bool:
        """Whether a validation side is summed up already, for the parameters that there were."""
        return isinstance(validation, (str, PathLike, Sealed, *cls._summaries))

    @property
    @abstractmethod
    def _summed(self) -> Any:
        """The validation set summed up."""

    @property
    @abstractmethod
    def _made_of(self) -> dict[str, str]:
        """Fingerprints of the `model`, with its parameters, and of the `loss`."""

    @abstractmethod
    def _numbers(self, pair: Any) -> Mapping[str, Any]:
        """Return the `NUMBERS` of inputs and targets, which are arrays of numpy."""

    @abstractmethod
    def _array(self, values: Any) -> Any:
        """Return a column of numbers as an array; numbers with a fraction in the model's type."""

    @abstractmethod
    def _count(self, pair: Any) -> int:
        """Return how many samples inputs and targets have, after checking them."""

    @property
    def _labels(self) -> dict[str, str | None]:
        return {"ids": self.ids, "groups": self.groups}

    def _read(self, role: str, batch: Any, labels: Mapping[str, str | None] | None = None) -> Any:
        """Return a batch as rows; without `labels`, those of `ids` and `groups` are read."""
        from lai_storage.columns import read_rows

        how: Any = {"collate": self.collate, "asarray": self._array, "count": self._count}
        return read_rows(role, batch, **how, labels=self._labels if labels is None else labels)

    def _read_side(self) -> Any:
        """Return what `validation` holds, read where it is a file."""
        held = self.validation
        if not isinstance(held, str | PathLike):
            return held
        held = load(held, asarray=self._asarray)
        if not self._is_summary(held):
            msg = (
                f"validation: expected {self.validation} to hold what Scorer.save wrote, or a "
                f"ValidationSummary, got {type(held).__name__}"
            )
            raise TypeError(msg)
        return held

    def _validation(self) -> Any:
        """Return inputs and targets of the validation set, or its summary, which is of this model."""
        held = self._read_side()
        if not self._is_summary(held):
            from lai_storage.columns import columns_of

            columns = columns_of(held)
            if columns is not None:
                held = {
                    name: values for name, values in columns.items() if name not in {self.ids, self.groups}
                }
            pair = self._read("validation", held, {}).pair
            if pair is None:
                msg = "validation: expected at least one sample, got none"
                raise ValueError(msg)
            return pair
        if not isinstance(held, Sealed):
            return held
        own = self._made_of
        for name, found in held.made_of.items():
            if own[name] != found:
                from lai_storage.tables import DIFFERS

                msg = (
                    "validation: expected a summary made with this model and loss, got one whose "
                    f"{name} had {DIFFERS[name]}; sum it up anew"
                )
                raise ValueError(msg)
        return held.summary


@dataclass(frozen=True)
class Indexed:
    """A data set whose samples have numbers."""

    samples: int
    size: int  # of a batch
    load: Callable[[range, int], Iterable[Any]]  # batches of consecutive samples, so many at a time

    def parts(self, rows: int, process: tuple[int, int]) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yield each part that is this process's own: its number, and its batches."""
        for part in range(process[0], -(-self.samples // rows), process[1]):
            yield part, self.load(range(part * rows, min((part + 1) * rows, self.samples)), self.size)


@dataclass
class Stream:
    """Samples that come one after the other; `samples` is their number once they were read."""

    items: Iterable[Any]
    size: int  # of a batch
    collate: Callable[[list[Any]], Any]
    samples: int | None = None
    read: int = 0  # how many samples were read so far

    def parts(self, rows: int, process: tuple[int, int]) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yield each part that is this process's own, and pass over the others."""
        self.read = 0

        def count_read() -> Iterator[Any]:
            for item in self.items:
                self.read += 1
                yield item

        items = count_read()
        for part in count():
            own: Iterator[Any] = islice(items, rows)
            if not (first := [*islice(own, 1)]):
                break
            own = chain(first, own)
            if part % process[1] == process[0]:
                yield part, map(self.collate, iter(partial(_take, own, self.size), []))
            deque(own, maxlen=0)
        if not self.read:
            msg = "dataset: expected at least one sample, got none"
            raise ValueError(msg)
        self.samples = self.read


def _take(items: Iterator[Any], size: int) -> list[Any]:
    return [*islice(items, size)]


def score_source(
    folder: str | PathLike[str],
    scorer: BatchScorer,
    source: Indexed | Stream,
    checkpoints: Mapping[str, Any] | None,
    at: Callable[[str, Any], BatchScorer],  # a scorer at a checkpoint
    settings: Mapping[str, Any],  # plain values that scores depend on
    labels: Mapping[str, Any],  # `ids` and `groups`
    *,
    rows: int,
    process: tuple[int, int],
    progress: bool,
) -> Any:
    """Score a data set with each checkpoint, into a folder of tables; return the table of all."""
    from tqdm import tqdm

    from lai_storage.columns import labels_of, score_rows
    from lai_storage.identity import fingerprint
    from lai_storage.tables import END, begin_run, read_scores, settle, write_parts

    pair = isinstance(process, tuple | list) and [type(number) for number in process] == [int, int]
    if not (pair and 0 <= process[0] < process[1]):
        msg = f"process: expected a pair (index, count) with 0 <= index < count, got {process!r}"
        raise ValueError(msg)
    names = None if checkpoints is None else _check_checkpoints(checkpoints, scorer)
    if isinstance(source, Stream):
        _check_stream(source.items, labels, names or [])
    own = {
        role.removesuffix("s"): labels_of(role, values, source.samples or 0)
        for role, values in labels.items()
        if not isinstance(values, str | None)
    }

    def read(one: BatchScorer, part: int, batches: Iterable[Any]) -> Iterator[Any]:
        start = part * rows
        for batch in batches:
            found = one._read("dataset", batch)
            span = range(start, start + found.samples)
            given = {name: values[span.start : span.stop] for name, values in own.items()}
            start = span.stop
            if isinstance(source, Stream):
                _check_collation(found.samples, source.read - span.start)
            yield found._replace(labels={"id": [*span], **found.labels, **given})
        if isinstance(source, Indexed):
            _check_collation(start - part * rows, min(rows, source.samples - part * rows))

    folder = Path(folder)
    run = {"samples": source.samples, "rows": rows, "checkpoints": names, **settings}
    validation = fingerprint(scorer._validation())
    begin_run(folder, run)
    for name in names or [""]:
        one = scorer if checkpoints is None else at(name, checkpoints[name])
        parts = ((part, read(one, part, batches)) for part, batches in source.parts(rows, process))
        shown = {"unit": " samples", "disable": not progress, "total": source.samples}
        shown |= {"desc": "stream of unknown length"} if isinstance(source, Stream) else {}
        with tqdm(**shown) as bar:
            write_parts(
                folder / name,
                parts,
                partial(score_rows, score=one._numbers),
                made_of={**one._made_of, "validation": validation},
                checkpoint=name,
                progress=bar.update,
            )
        if isinstance(source, Stream):
            settle(folder / name / END, {"samples": source.samples or 0})
    return read_scores(folder) if process[1] == 1 else None


def _check_collation(found: int, expected: int) -> None:
    if found != expected:
        msg = (
            f"dataset: expected a collation that keeps {expected} samples, got {found} from it; leave some "
            "out before they are collated, for their numbers tell them apart"
        )
        raise ValueError(msg)


_NAME = re.compile(r"(?!\.|run\.json$|end\.json$)[^/\\\x00]{1,200}")
"""What can name a checkpoint's folder."""


def _check_checkpoints(checkpoints: Any, scorer: BatchScorer) -> list[str]:
    """Return the names of checkpoints, each of which is a folder's."""
    if not isinstance(checkpoints, Mapping):
        msg = f"checkpoints: expected a mapping of names to parameters, got {type(checkpoints).__name__}"
        raise TypeError(msg)
    unfit = [name for name in checkpoints if not (isinstance(name, str) and _NAME.fullmatch(name))]
    if unfit or not checkpoints:
        got = f"{unfit[0]!r}" if unfit else "none"
        msg = f"checkpoints: expected names that can name a folder, at least one, got {got}"
        raise ValueError(msg)
    if scorer._is_summary(scorer.validation):
        msg = "validation: expected samples to sum up with each of the checkpoints, got a summary"
        raise ValueError(msg)
    return list(checkpoints)


def _check_stream(stream: Any, columns: Mapping[str, Any], states: list[str]) -> None:
    """Raise unless a stream's samples are named by columns, and it can be read once for each checkpoint."""
    for name, values in columns.items():
        if not isinstance(values, str | None):
            msg = f"{name}: expected the name of a column of the stream's items, got {type(values).__name__}"
            raise TypeError(msg)
    if isinstance(stream, Iterator) and len(states) > 1:
        msg = (
            f"dataset: expected a stream that can begin again for each of {len(states)} checkpoints, got "
            f"{type(stream).__name__}"
        )
        raise TypeError(msg)
