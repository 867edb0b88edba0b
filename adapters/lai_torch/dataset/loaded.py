"""Model, validation side, estimator and batches of a `Scorer`, in the process that scores."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from lai_storage import storable
from lai_storage.scoring import batches_of, collated
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

import lai_core as lai
from lai_core._adapters import check_batch
from lai_core.estimators.policies import standard_errors
from lai_core.estimators.scores import SUMMED
from lai_torch._curation.checks import check_summary
from lai_torch._curation.scorers.base import Reading, ValidationSide, chunks
from lai_torch._curation.scorers.tracer import UnlikeError
from lai_torch._curation.scoring import scorer
from lai_torch._curation.summary_cache import packed, unpacked
from lai_torch._curation.validation import moved, own_stream
from lai_torch._model.batch import Loss, count, mapped, rows
from lai_torch._model.preserve import alone, evaluating
from lai_torch.options import Estimator

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


@storable
@dataclass(frozen=True)
class Summary:
    """A validation set summed up for one estimator, and what scoring against it needs beside it."""

    estimator: str
    parts: int | None
    side: Any
    state: dict[str, Any] | None


class Loaded:
    """Model, validation side and estimator of a `Scorer`, in the process that scores."""

    def __init__(self, model: nn.Module, loss: Loss, held: Any, estimator: Estimator) -> None:
        self.model, self.estimator, self.side, self.samples = model, estimator, None, held
        if isinstance(held, lai.ValidationSummary):
            held = _of_summary(held, estimator)
        summary = held if isinstance(held, Summary) else None
        if summary is not None:
            if summary.estimator != (asked := options_of(estimator)):
                msg = f"validation: expected a set that was summed up for {asked}, got {summary.estimator}"
                raise ValueError(msg)
            self.estimator, self.samples = cut(estimator, summary.parts), None
            self.side = placed(summary.side, _device(model))
        self.scorer = scorer(model, loss, None, self.estimator, own_stream())
        if summary is not None and summary.state is not None:
            self.scorer.load_state(summary.state)

    @alone
    def summed(self, size: int) -> Any:
        """Return the validation side, which is made when it is first asked for."""
        if self.side is None:
            with evaluating(self.model):
                self.side = self.scorer.summarize(self.samples, size)
        return self.side

    @alone
    def numbers(self, batch: Batch, size: int) -> tuple[Tensor, ...]:
        """Return scores, their errors, losses and gradient norms of a batch."""
        with evaluating(self.model):
            reading = None
            while reading is None:
                side = self.summed(size)
                try:
                    reading = self.scorer.read(batch, side)
                except UnlikeError:
                    if self.samples is None:
                        raise
                    self.side = None
            scored = self.scorer.score(iter([reading]), side)
        nothing = torch.full_like(scored.losses, math.nan)
        error = nothing if scored.parts is None else standard_errors(scored.parts, sizes=scored.sizes or ())
        numbers = scored.scores, error, scored.losses, self._norms(reading, scored.positions)
        return tuple(values.double() for values in numbers)

    def _norms(self, reading: Reading, positions: str | None) -> Tensor:
        norms = torch.full_like(reading.losses, math.nan, dtype=torch.double)
        sketched = getattr(self.estimator, "sketch", None) is not None
        if self.estimator.name in SUMMED and not sketched and reading.seen is not None:
            squared = lai.self_influence(reading.seen, self.estimator.name, positions=positions or "tokens")
            norms[slice(None) if reading.rows is None else reading.rows] = squared.double().sqrt()
        return norms


def cut(estimator: Estimator, parts: int | None) -> Estimator:
    """Return an estimator that cuts the validation set into parts, if it sums parts up."""
    return replace(estimator, parts=parts) if hasattr(estimator, "parts") else estimator  # type: ignore[call-arg]


def options_of(estimator: Estimator) -> str:
    """Say what a summary is for; functions have no name that another process would know."""
    unsaid = {name: None for name in ("parts", "valid") if hasattr(estimator, name)}
    return repr(replace(estimator, **unsaid))


def _of_summary(summary: lai.ValidationSummary, estimator: Estimator) -> Summary:
    """Return a `ValidationSummary` as what `save` writes: one part, and nothing beside it."""
    if estimator.facts.fits_weights or estimator.facts.summary is None:
        msg = (
            f"validation: estimator {estimator.name!r} has no ValidationSummary; pass a validation set, "
            "or the path of what Scorer.save wrote"
        )
        raise ValueError(msg)
    check_summary(summary, estimator)
    return Summary(options_of(estimator), None, ValidationSide((summary,), summary.positions), None)


def _device(model: nn.Module) -> torch.device | None:
    return next((parameter.device for parameter in model.parameters()), None)


def placed(side: Any, device: torch.device | None) -> Any:
    """Return a validation side on a device."""
    return side if device is None else unpacked(mapped(packed(side), lambda tensor: tensor.to(device)))
