"""Scores of batches and of data sets: what `Scorer`, `score_dataset` and `top_samples` of the adapters share.

Options that mean the same in `lai_torch` and in `lai_jax`:

batch_size
    How many samples are scored, and in torch at most traced of the validation set, at once; larger batches
    are cut. Scores do not depend on it but for rounding; those of `calibrated_lai` do, which fits its weights
    on so many.
parts
    Into how many consecutive parts the validation set is cut for the standard error. Shuffle a set that is
    sorted. None: no standard error. Nor is there one for `exact` and `gate_lai`.
collate
    From a batch's columns to inputs and targets. Two names: the columns of inputs and of targets. A function
    of the columns, without those of `ids` and `groups`, that returns `(inputs, targets)` or a mapping. None:
    the model gets all columns as keyword arguments, and the loss the mapping. Columns of numbers come as
    tensors or arrays, floating-point ones in the type of the model's parameters; columns of anything else, or
    of rows with different shapes, as lists.
ids, groups
    The samples' ids and groups, whole numbers or text; or the names of the columns, the keys of items that
    are dictionaries, that hold them. None: the sample's number, if it has one; no column.
rows_per_file
    Samples in one file: what an interruption loses at most.
process
    Which process this is and how many there are; each reads the whole stream. None: from the framework where
    several processes are set up, else `(0, 1)`.
relative
    Whether `top_samples` divides each score by the norm of the training sample's gradient: what a step of
    unit length on it does (RelatIF of Barshan et al., 2020). Else samples with large gradients, such as wrong
    labels, stand first on both sides.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from os import PathLike
from typing import Any, ClassVar

from lai_storage import load, save

Contents = Iterable[tuple[str, Any]]
"""Of arrays: type and shape, and the bytes."""
Source = tuple[int | Iterable[Any], Callable[[Any], Iterable[Any]]]
"""How many samples there are, or a stream of them; what makes batches of a range of numbers, or of a part."""


class BatchScorer(ABC):
    """Scores batches against a validation set; the adapters say how inputs and targets are scored."""

    _summaries: ClassVar[tuple[type, ...]]
    """What a validation set is summed up as: kinds that `save` writes."""

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
        held = self.validation if self._is_summary(self.validation) else self._summed
        return self._options() | {"validation": held}

    def _options(self) -> dict[str, Any]:
        """Return what the scorer was given, without what it was made into."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def save(self, path: str | PathLike[str]) -> None:
        """Write the validation set's summary to a file, which other scorers take as `validation`.

        Parameters
        ----------
        path
            Of the file, in a folder that exists.
        """
        save(path, self._summed)

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

        Raises
        ------
        ValueError
            If a column is missing, `collate` changes the number of rows, or the summary is for another
            estimator.
        """
        from lai_storage.columns import scored  # needs numpy

        return scored(batch, partial(self._numbers, batch), ids=self.ids, groups=self.groups)

    @classmethod
    def _is_summary(cls, validation: Any) -> bool:
        """Whether a validation side is summed up already, for the parameters that there were."""
        return isinstance(validation, (str, PathLike, *cls._summaries))

    @property
    @abstractmethod
    def _summed(self) -> Any:
        """The validation set summed up."""

    @abstractmethod
    def _numbers(self, batch: Any, columns: dict[str, Any] | None) -> Mapping[str, Any]:
        """Return the `NUMBERS` of a batch, which are arrays of numpy."""

    @abstractmethod
    def _array(self, values: Any, model: Any) -> Any:
        """Return a column of numbers as an array; numbers with a fraction in the model's type."""

    @abstractmethod
    def _checked(self, role: str, batch: Any, model: Any) -> Any:
        """Return a pair of inputs and targets where the model is."""

    def _pair(self, role: str, batch: Any, columns: dict[str, Any] | None, model: Any) -> Any:
        """Return inputs and targets of a batch."""
        if columns is not None:
            from lai_storage.columns import paired

            batch = paired(columns, self.collate, lambda values: self._array(values, model))
        return self._checked(role, batch, model)

    def _validation(self, model: Any, asarray: Callable[..., Any]) -> Any:
        """Return inputs and targets of the validation set, or its summary, read where it is a file."""
        held = self.validation
        if not self._is_summary(held):
            from lai_storage.columns import columns_of

            return self._pair("validation", held, columns_of(held, without=(self.ids, self.groups)), model)
        if isinstance(held, str | PathLike):
            held = load(held, asarray=asarray)
            if not isinstance(held, self._summaries):
                msg = (
                    f"validation: expected {self.validation} to hold what Scorer.save wrote, or a "
                    f"ValidationSummary, got {type(held).__name__}"
                )
                raise TypeError(msg)
        return held


def score_source(
    folder: str | PathLike[str],
    scorer: BatchScorer,
    source: Source,
    checkpoints: Mapping[str, Any] | None,
    at: Callable[[Any], tuple[BatchScorer, Contents]],  # a checkpoint, or None for the parameters as they are
    settings: Mapping[str, Any],  # what the scores are of, beside the parameters
    columns: Mapping[str, Any],  # `ids` and `groups`
    options: Mapping[str, Any],  # `rows`, `process` and `progress` of `score_parts`
) -> Any:
    """Score a data set with each checkpoint, into a folder of tables; return the table of all."""
    from lai_storage.columns import joined
    from lai_storage.tables import read_scores, score_parts, score_stream

    states: Any = {"": None} if checkpoints is None else checkpoints
    if not isinstance(states, Mapping):
        msg = f"checkpoints: expected a mapping of names to parameters, got {type(states).__name__}"
        raise TypeError(msg)
    if checkpoints is not None and scorer._is_summary(scorer.validation):
        msg = "validation: expected samples to sum up with each of the checkpoints, got a summary"
        raise ValueError(msg)
    samples, batches = source
    if isinstance(samples, int):
        own = {name: values for name, values in columns.items() if not isinstance(values, str)}
        write: Callable[..., None] = partial(score_parts, samples=samples, **own, **options)
    else:
        _check_stream(samples, columns, states)
        name = None if columns["ids"] is None else itemgetter(columns["ids"])
        write = partial(score_stream, stream=samples, name=name, **options)
    for checkpoint, state in states.items():
        scores, parameters = at(state)
        content = {**settings, "model": digest(parameters)}
        write(folder, content, lambda part, by=scores: joined(map(by, batches(part))), checkpoint=checkpoint)
    return read_scores(folder) if options["process"][1] == 1 else None


def _check_stream(stream: Any, columns: Mapping[str, Any], states: Mapping[str, Any]) -> None:
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


def batches_of(items: Iterator[Any], size: int, collate: Callable[[list[Any]], Any]) -> Iterator[Any]:
    """Return batches of consecutive samples of a stream."""
    return map(collate, iter(lambda: list(islice(items, size)), []))


def collated(stacked: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    """Return samples as a batch: mappings as columns, all else as `stacked` makes arrays of it."""
    if isinstance(items[0], Mapping):
        return {name: [item[name] for item in items] for name in items[0]}
    return stacked(items)


def digest(arrays: Contents) -> str:
    """Return what tells one set of arrays from another, from their kinds and bytes."""
    found = sha256()
    for kind, content in arrays:
        found.update(kind.encode())
        found.update(content)
    return found.hexdigest()
