"""Model, validation side, estimator and batches of a `Scorer`, in the process that scores."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from lai_storage import storable
from lai_storage.columns import collate_items, columns_of
from lai_storage.scoring import Indexed, Stream
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate

import lai_core as lai
from lai_core._adapters import check_batch
from lai_core.estimators.policies import standard_errors
from lai_core.estimators.scores import SUMMED
from lai_torch._curation.checks import check_summary
from lai_torch._curation.estimators import make_scorer
from lai_torch._curation.readings import chunks
from lai_torch._curation.state import CuratorState, ValidationSide, pack, unpack
from lai_torch._curation.validation import make_generator
from lai_torch._graph.unlike import UnlikeError
from lai_torch._model.batch import Loss, count, map_tensors, rows
from lai_torch._model.preserve import run_alone, use_eval_mode
from lai_torch.dataset.identity import tensors_of
from lai_torch.options import Estimator

Batch = tuple[Any, Any]


def source_of(role: str, dataset: Any, size: int) -> Indexed | Stream:
    """Return what makes batches of a data set, of numbered samples or of a stream's next ones."""
    if isinstance(dataset, tuple):
        check_batch(role, dataset)
        samples = count(*dataset)
        part = lambda span: rows(dataset, slice(span.start, span.stop), samples)  # noqa: E731
        return Indexed(samples, size, lambda span, size: chunks(part(span), size))
    collate: Callable[[Any], Any] = partial(collate_items, role, default_collate)
    held, workers, batched = dataset, 0, False
    if isinstance(dataset, DataLoader):
        held, workers, batched = dataset.dataset, dataset.num_workers, dataset.batch_size is None
        if dataset.collate_fn is not default_collate:
            collate = dataset.collate_fn
    numbered = hasattr(held, "__len__") and hasattr(held, "__getitem__")
    unfit = (
        isinstance(held, str | bytes | Mapping | Tensor) or hasattr(held, "iloc") or hasattr(held, "schema")
    )
    if unfit or not (numbered or isinstance(held, Iterable)):
        msg = (
            f"{role}: expected a pair (inputs, targets), a data set of numbered samples, a DataLoader over "
            f"one, or a stream of samples, got {type(held).__name__}"
        )
        raise TypeError(msg)
    stream = not numbered or isinstance(held, IterableDataset)
    if batched or (stream and workers):
        got = "batch_size=None" if batched else f"num_workers={workers}"
        msg = (
            f"{role}: expected a DataLoader that collates samples, over a stream in this process, got {got}; "
            "pass the stream itself"
        )
        raise ValueError(msg)
    if stream:
        return Stream(held, size, collate)
    if not len(held):
        msg = f"{role}: expected at least one sample, got none"
        raise ValueError(msg)

    def load(span: range, size: int) -> Iterator[Any]:
        # the loader's own stream: its workers' seeds are none of training's draws
        options: Any = {"collate_fn": collate, "num_workers": workers, "generator": make_generator()}
        yield from DataLoader(Subset(held, span), batch_size=size, **options)

    return Indexed(len(held), size, load)


def whole(validation: Any) -> Any:
    """Return a validation set as one batch: columns and pairs as they are, samples collated."""
    if isinstance(validation, tuple) or columns_of(validation) is not None:
        return validation
    source = source_of("validation", validation, 1)
    if isinstance(source, Stream):
        samples = list(source.items)
        if not samples:
            return {}
        return source.collate(samples)
    (batch,) = source.load(range(source.samples), source.samples)
    return batch


@storable
@dataclass(frozen=True)
class Summary:
    """A validation set summed up for one estimator, and what scoring against it needs beside it."""

    estimator: str
    parts: int | None
    side: Any
    state: dict[str, Any] | None


KNOWN = ("routed", "left")
"""Fields of a curator's state that scores by a summary depend on."""


class Loaded:
    """Model, validation side and estimator of a `Scorer`, in the process that scores."""

    def __init__(self, model: nn.Module, loss: Loss, held: Any, estimator: Estimator) -> None:
        self.model, self.estimator, self.side, self.samples = model, estimator, None, held
        self.versions: list[tuple[int, int]] = []
        # saved by itself, without what traces told of the model
        if isinstance(held, lai.ValidationSummary):
            if estimator.facts.fits_weights or estimator.facts.summary is None:
                msg = (
                    f"validation: estimator {estimator.name!r} has no ValidationSummary; pass a validation "
                    "set, or the path of what Scorer.save wrote"
                )
                raise ValueError(msg)
            check_summary(held, estimator)
            held = Summary(options_of(estimator), None, ValidationSide((held,), held.positions), None)
        if isinstance(held, Summary):
            # a sum is that of one estimator's options
            if held.estimator != (asked := options_of(estimator)):
                msg = f"validation: expected a set that was summed up for {asked}, got {held.estimator}"
                raise ValueError(msg)
            self.estimator, self.samples = cut(estimator, held.parts), None
            device = next((one.device for one in model.parameters()), torch.device("cpu"))
            self.side = move_side(held.side, device)
        remakes = self.samples is not None
        self.scorer = make_scorer(model, loss, None, self.estimator, make_generator(), remakes=remakes)
        self.state = CuratorState(estimator.name)
        if isinstance(held, Summary) and held.state is not None:
            routed, left = (tuple(held.state.get(name, ())) for name in KNOWN)
            self.state = replace(self.state, routed=routed, left=left)
            if self.scorer.tracer is not None:
                self.scorer.tracer.recall(self.state)

    @run_alone
    def sum_batches(self, size: int) -> Any:
        """Return the validation side, made when it is first asked for and when parameters have changed."""
        # counted by autograd: parameters that were written since have another validation gradient
        modules = [one for one in (self.model, self.scorer.loss) if isinstance(one, nn.Module)]
        held = [tensor for module in modules for tensor in tensors_of(module).values()]
        versions = [(id(tensor), tensor._version) for tensor in held]
        if self.versions and versions != self.versions:
            # a sum cannot be made again
            if self.samples is None:
                msg = (
                    "model: expected the parameters at which `validation` was summed up, got parameters or "
                    "buffers that changed since; pass the validation set, or make the summary anew"
                )
                raise ValueError(msg)
            self.side = None
        self.versions = versions
        if self.side is None:
            with use_eval_mode(self.model):
                self.side = self.scorer.summarize(self.samples, size)
        return self.side

    @property
    def known(self) -> dict[str, Any]:
        """What traces told of the model, which another process is to know."""
        tracer = self.scorer.tracer
        state = self.state if tracer is None else tracer.remember(self.state)
        return {name: getattr(state, name) for name in KNOWN}

    @run_alone
    def numbers(self, batch: Batch, size: int) -> tuple[Tensor, ...]:
        """Return scores, their errors, losses and gradient norms of a batch."""
        with use_eval_mode(self.model):
            reading = None
            # a batch with records that the side lacks has the side made again, with them
            while reading is None:
                side = self.sum_batches(size)
                try:
                    reading = self.scorer.read(batch, side)
                except UnlikeError:
                    self.side = None
            scored = self.scorer.score(iter([reading]), side, self.state)
        error = torch.full_like(scored.losses, math.nan)
        # the spread over parts of the validation set tells how far the sum may be off
        if scored.sizes is not None:
            error = standard_errors(scored.parts, sizes=scored.sizes)
        norms = torch.full_like(scored.losses, math.nan, dtype=torch.double)
        sketched = getattr(self.estimator, "sketch", None) is not None
        # a sketched gradient has another norm
        if self.estimator.name in SUMMED and not sketched and reading.seen is not None:
            name, positions = self.estimator.name, scored.positions or "tokens"
            squared = lai.self_influence(reading.seen, name, positions=positions)
            norms[slice(None) if reading.rows is None else reading.rows] = squared.double().sqrt()
        return tuple(values.double() for values in (scored.scores, error, scored.losses, norms))


def cut(estimator: Estimator, parts: int | None) -> Estimator:
    """Return an estimator that cuts the validation set into parts, if it sums parts up."""
    return replace(estimator, parts=parts) if hasattr(estimator, "parts") else estimator  # type: ignore[call-arg]


def options_of(estimator: Estimator) -> str:
    """Say what a summary is for; functions have no name that another process would know."""
    unsaid = {name: None for name in ("parts", "valid") if hasattr(estimator, name)}
    return repr(replace(estimator, **unsaid))


def move_side(side: Any, device: torch.device) -> Any:
    """Return a validation side on a device."""
    return unpack(map_tensors(pack(side), lambda tensor: tensor.to(device)))
