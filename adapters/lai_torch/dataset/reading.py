"""From what a user calls a data set to batches: pairs, data sets with a length, loaders, streams."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from lai_storage.scoring import batches_of, collated
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

from lai_core._adapters import check_batch
from lai_torch._curation.scorers.base import chunks
from lai_torch._curation.validation import moved, own_stream
from lai_torch._model.batch import count, rows

Batch = tuple[Any, Any]
COLLATED = partial(collated, default_collate)


def is_stream(dataset: Any) -> bool:
    """Whether samples come one after the other alone: they have no numbers."""
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    numbered = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    return isinstance(dataset, IterableDataset) or (not numbered and isinstance(dataset, Iterable))


def loaded(role: str, dataset: Any, size: int) -> tuple[int, Callable[[range], Iterable[Any]]]:
    """Return how many samples there are, and what makes batches of consecutive ones."""
    if isinstance(dataset, tuple):
        check_batch(role, dataset)
        samples = count(*dataset)
        return samples, lambda span: chunks(rows(dataset, slice(span.start, span.stop), samples), size)
    options: dict[str, Any] = {"collate_fn": COLLATED}
    if isinstance(dataset, DataLoader):
        options = {"collate_fn": _collate_of(dataset), "num_workers": dataset.num_workers}
        dataset = dataset.dataset
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        msg = (
            f"{role}: expected one with a length and numbered samples, a pair (inputs, targets), or a "
            f"DataLoader over one, got {type(dataset).__name__}"
        )
        raise TypeError(msg)
    if not len(dataset):
        msg = f"{role}: expected at least one sample, got none"
        raise ValueError(msg)
    # the loader's own stream: its workers' seeds are none of training's draws
    return len(dataset), lambda span: DataLoader(
        Subset(dataset, span), batch_size=size, generator=own_stream(), **options
    )


def streamed(stream: Any, size: int) -> tuple[Iterable[Any], Callable[[Iterator[Any]], Iterator[Any]]]:
    """Return the samples of a stream, and what makes batches of some of them.

    Returns
    -------
    tuple
        The samples, and a function from an iterator over them to batches.

    Raises
    ------
    ValueError
        If it is a loader with workers, or one whose data set makes batches itself.
    """
    collate: Callable[[Any], Any] = COLLATED
    if isinstance(stream, DataLoader):
        if stream.num_workers or stream.batch_size is None:
            got = f"num_workers={stream.num_workers}, batch_size={stream.batch_size}"
            msg = (
                "dataset: expected a DataLoader over a stream to collate samples in this process, got "
                f"{got}; pass the stream itself"
            )
            raise ValueError(msg)
        stream, collate = stream.dataset, _collate_of(stream)
    return stream, lambda items: batches_of(items, size, collate)


def whole(validation: Any) -> Any:
    """Return a validation set as one batch."""
    if isinstance(validation, tuple):
        check_batch("validation", validation)
        return validation
    samples, _ = loaded("validation", validation, 1)
    _, load = loaded("validation", validation, samples)
    return next(iter(load(range(samples))))


def placed_pair(role: str, batch: Any, model: nn.Module) -> Batch:
    """Return a pair of inputs and targets on the model's device."""
    pair = tuple(batch) if isinstance(batch, list) else batch
    check_batch(role, pair)
    return moved(pair, model)


def _collate_of(loader: DataLoader[Any]) -> Callable[[Any], Any]:
    return COLLATED if loader.collate_fn is default_collate else loader.collate_fn
