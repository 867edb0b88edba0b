"""Where the validation gradient comes from: a set or its share, a loader, a summary, the batch itself."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import lai_core as lai
from lai_torch._model.batch import count, mapped, rows, tensors

Batch = tuple[Any, Any]
ITSELF = ("batch", "batch+self")
"""Score a batch against itself: each sample left out of its own score, or not (as the paper prints)."""


def own_stream() -> torch.Generator:
    """Return a generator with torch's seed moved on, so that its draws are not those of torch's own."""
    return moved_on(torch.initial_seed())


def moved_on(seed: int) -> torch.Generator:
    """Return a generator with a seed moved on, so that its draws are not those of that seed."""
    return torch.Generator().manual_seed((seed + 0x9E3779B97F4A7C15) % 2**64)


def as_pair(batch: Any) -> Any:
    """Return a mapping as inputs and targets both: the model takes it by name, the loss sees all of it."""
    return (batch, batch) if isinstance(batch, Mapping) else batch


def paired(inputs: Any, targets: Any) -> Batch:
    """Return a batch; without targets a mapping is both."""
    return (inputs, inputs if targets is None and isinstance(inputs, Mapping) else targets)


class Validation:
    """Draws a validation batch whenever the summary is refreshed."""

    def __init__(
        self,
        # `(inputs, targets)` or a mapping; a loader of such, of which each refresh takes the next;
        # a `ValidationSummary`; or one of `ITSELF`
        source: Any,
        share: float,  # the share of a set that each draw takes
        generator: torch.Generator,  # for that draw
    ) -> None:
        source = as_pair(source)
        check_source(source, share)
        self.source, self.share, self.generator = source, share, generator
        self._iterator: Iterator[Batch] | None = None
        self._stream = moved_on(generator.initial_seed())

    @property
    def is_summary(self) -> bool:
        """Whether the source is a summary that someone else made."""
        return isinstance(self.source, lai.ValidationSummary)

    @property
    def is_batch(self) -> bool:
        """Whether each batch is scored against itself."""
        return isinstance(self.source, str)

    def told(self) -> dict[str, Any]:
        """Return what is to be alike on processes that share a batch: the kind of source, and its share."""
        kind = self.source if self.is_batch else "a summary" if self.is_summary else "a loader"
        return {"validation": "a set" if isinstance(self.source, tuple) else kind, "share": self.share}

    def draw(self) -> Batch | None:
        """Return the next validation batch; None if the loader has run dry for good.

        A loader shuffles, and seeds its workers, from torch's global stream; here that is one of its own for
        the time of the draw, so that training draws as if there were no loader.
        """
        if isinstance(self.source, tuple):
            return self._share()
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._stream.get_state())
            try:
                found = self._next()
            finally:
                self._stream.set_state(torch.get_rng_state())
        if found is None:
            return None
        found = as_pair(found)
        if not isinstance(found, list | tuple) or len(found) != 2:
            msg = (
                "validation: expected the loader to give mappings, or pairs (inputs, targets), got "
                f"{type(found).__name__}; pass one whose collate_fn returns such"
            )
            raise TypeError(msg)
        return found[0], found[1]

    def _next(self) -> Any:
        """Return the loader's next batch, from its start again where it has run dry."""
        if self._iterator is None:
            self._iterator = iter(self.source)
        found = next(self._iterator, None)
        if found is None and iter(self.source) is not self.source:
            self._iterator = iter(self.source)
            found = next(self._iterator, None)
        return found

    def _share(self) -> Batch:
        inputs, targets = self.source
        if self.share == 1.0:
            return inputs, targets
        samples = count(inputs, targets)
        order = torch.randperm(samples, generator=self.generator, device="cpu")
        drawn: Batch = rows((inputs, targets), order[: math.ceil(self.share * samples)], samples)
        return drawn


def check_source(source: Any, share: float) -> None:
    """Raise unless a validation source and its share are sound."""
    if isinstance(source, str) and source not in ITSELF:
        msg = f"validation: expected one of {', '.join(map(repr, ITSELF))}, got {source!r}"
        raise ValueError(msg)
    pair = isinstance(source, tuple) and len(source) == 2
    known = isinstance(source, str | lai.ValidationSummary) or pair
    looped = isinstance(source, Iterable) and not isinstance(source, Tensor | tuple)
    way_out = "" if known else _way_out(source)
    if way_out or not (known or looped):
        msg = (
            "validation: expected (inputs, targets), a mapping, a loader of such, a ValidationSummary, "
            f"'batch' or 'batch+self', got {type(source).__name__}{way_out}"
        )
        raise TypeError(msg)
    if pair and not tensors(source[0]) and not tensors(source[1]):
        kinds = ", ".join(type(side).__name__ for side in source)
        msg = (
            f"validation: expected (inputs, targets) that hold tensors, got ({kinds}); pass "
            "torch.as_tensor(...) of each"
        )
        raise TypeError(msg)
    if not isinstance(share, int | float) or not 0.0 < share <= 1.0:
        msg = f"share: expected a share in (0, 1], got {share!r}"
        raise ValueError(msg)
    if share < 1.0 and not pair:
        msg = f"share: expected 1.0 unless validation is (inputs, targets), got {share!r}"
        raise ValueError(msg)


def _way_out(source: Any) -> str:
    """Say what to pass in place of what is no loader; nothing of what may be one."""
    rows = hasattr(source, "__getitem__") and not hasattr(source, "__iter__")
    if isinstance(source, Dataset) or rows:
        return "; pass torch.utils.data.DataLoader(dataset, batch_size=...), whose batches are such pairs"
    pairs = isinstance(source, list) and all(
        isinstance(one, Mapping) or (isinstance(one, tuple | list) and len(one) == 2) for one in source
    )
    if isinstance(source, list) and not pairs:
        return " whose parts are no pairs; pass a tuple (inputs, targets)"
    return ""


def moved(batch: Batch, model: nn.Module) -> Batch:
    """Return a batch on the model's device; as it is where the model is on several."""
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1 or {tensor.device for tensor in tensors(batch)} <= devices:
        return batch
    (device,) = devices
    return mapped(batch, lambda one: _on_device(one, device))


def _on_device(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.is_meta and device.type != "meta":
        msg = "validation: expected tensors that hold numbers, got one on the device meta, which holds none"
        raise ValueError(msg)
    return tensor.to(device)
