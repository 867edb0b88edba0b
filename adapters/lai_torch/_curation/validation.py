"""Where the validation gradient comes from: a set or its share, a loader, a summary, the batch itself."""

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

import lai_core as lai
from lai_torch._model.batch import count, map_tensors, rows, tensors

Batch = tuple[Any, Any]
ITSELF = ("batch", "batch+self")
"""Score a batch against itself: each sample left out of its own score, or not (as the paper prints)."""


def make_generator(seed: int | None = None) -> torch.Generator:
    """Return a generator that draws other numbers than one with the seed; None: than torch's own."""
    if seed is None:
        seed = torch.initial_seed()
    return torch.Generator().manual_seed((seed + 0x9E3779B97F4A7C15) % 2**64)


def make_batch(model: nn.Module, inputs: Any) -> Batch:
    """Return a batch without targets as a model takes it: a pair, or a mapping for both sides."""
    if isinstance(inputs, tuple | list) and len(inputs) == 2:
        return inputs[0], inputs[1]
    if isinstance(inputs, Mapping):
        return select_keys(model, (inputs, inputs))
    return inputs, None


def select_keys(model: nn.Module, batch: Batch) -> Batch:
    """Return a batch whose inputs, if one mapping is both sides, have the keys alone that a model takes.

    Raises
    ------
    ValueError
        If the model takes none of them.
    """
    inputs, targets = batch
    # what the model takes has been said
    if inputs is not targets or not isinstance(inputs, Mapping):
        return batch
    parameters = inspect.signature(getattr(model, "_orig_mod", model).forward).parameters
    # its `forward` takes any name
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return batch
    chosen = {name: value for name, value in inputs.items() if name in parameters}
    if not chosen:
        msg = (
            f"inputs: expected a mapping with keys that the model takes, {[*parameters]}, got "
            f"{list(inputs)}; rename them, or pass (inputs, targets)"
        )
        raise ValueError(msg)
    return chosen, targets


def _is_sample(pair: Any) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    target = pair[1]
    return not target.ndim if hasattr(target, "ndim") else isinstance(target, int | float)


class Validation:
    """Draws a validation batch whenever the summary is refreshed."""

    def __init__(
        self,
        # `(inputs, targets)` or a mapping; a list of samples; a loader of batches, of which each refresh
        # takes the next; a `ValidationSummary`; or one of `ITSELF`
        source: Any,
        fraction: float,  # of a set, what each draw takes
        generator: torch.Generator,  # for that draw
    ) -> None:
        # a list of single samples, whose targets have no axis, is one batch
        if isinstance(source, list) and source and all(map(_is_sample, source)):
            source = tuple(default_collate([tuple(sample) for sample in source]))
        # inputs and targets both: the model takes it by name, the loss sees all of it
        if isinstance(source, Mapping):
            source = source, source
        check_source(source, fraction)
        self.source, self.fraction, self.generator = source, fraction, generator
        self._iterator: Iterator[Batch] | None = None
        self._stream = make_generator(generator.initial_seed())
        # a summary that someone else made; each batch, which is scored against itself
        self.is_summary, self.is_batch = isinstance(source, lai.ValidationSummary), isinstance(source, str)

    def draw(self) -> Batch | None:
        """Return the next validation batch; None if the loader has run dry for good.

        A loader shuffles, and seeds its workers, from torch's global stream; here that is one of its own for
        the time of the draw, so that training draws as if there were no loader.
        """
        if isinstance(self.source, tuple):
            # no draw: the generator stays where it is
            if self.fraction == 1.0:
                return self.source
            samples = count(*self.source)
            order = torch.randperm(samples, generator=self.generator, device="cpu")
            drawn = rows(self.source, order[: math.ceil(self.fraction * samples)], samples)
            if self.source[0] is self.source[1]:
                return drawn[1], drawn[1]
            return drawn
        # a loader draws its order on the CPU
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._stream.get_state())
            try:
                if self._iterator is None:
                    self._iterator = iter(self.source)
                found = next(self._iterator, None)
                # an iterator is its own, and does not start again; a loader makes a new one
                if found is None and iter(self.source) is not self.source:
                    self._iterator = iter(self.source)
                    found = next(self._iterator, None)
            finally:
                self._stream.set_state(torch.get_rng_state())
        if found is None:
            return None
        if isinstance(found, Mapping):
            return found, found
        if not isinstance(found, list | tuple) or len(found) != 2:
            msg = (
                "validation: expected the loader to give mappings, or pairs (inputs, targets), got "
                f"{type(found).__name__}; pass one whose collate_fn returns such"
            )
            raise TypeError(msg)
        return found[0], found[1]


def check_source(source: Any, fraction: float) -> None:
    """Raise unless a validation source and the fraction drawn of it are sound."""
    if isinstance(source, str) and source not in ITSELF:
        msg = f"validation: expected one of {', '.join(map(repr, ITSELF))}, got {source!r}"
        raise ValueError(msg)
    pair = isinstance(source, tuple) and len(source) == 2
    known = isinstance(source, str | lai.ValidationSummary) or pair
    # a data set's items are samples, not batches
    samples = isinstance(source, Dataset) or hasattr(source, "column_names")
    looped = isinstance(source, Iterable) and not isinstance(source, Tensor | tuple) and not samples
    if not (known or looped):
        msg = (
            "validation: expected (inputs, targets), a mapping, a loader of such, a ValidationSummary, "
            f"'batch' or 'batch+self', got {type(source).__name__}; of a data set pass "
            "torch.utils.data.DataLoader(dataset, batch_size=...)"
        )
        raise TypeError(msg)
    # arrays of numpy, maybe
    if pair and not tensors(source[0]) and not tensors(source[1]):
        kinds = ", ".join(type(side).__name__ for side in source)
        msg = (
            f"validation: expected (inputs, targets) that hold tensors, got ({kinds}); pass "
            "torch.as_tensor(...) of each"
        )
        raise TypeError(msg)
    if not isinstance(fraction, int | float) or not 0.0 < fraction <= 1.0:
        msg = f"validation_fraction: expected a fraction in (0, 1], got {fraction!r}"
        raise ValueError(msg)
    if fraction < 1.0 and not pair:
        msg = f"validation_fraction: expected 1.0 unless validation is (inputs, targets), got {fraction!r}"
        raise ValueError(msg)


def move_to_model(batch: Batch, model: nn.Module) -> Batch:
    """Return a batch on the model's device; as it is where the model is on several."""
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1 or {tensor.device for tensor in tensors(batch)} <= devices:
        return batch
    (device,) = devices
    return map_tensors(batch, lambda one: one.to(device))
