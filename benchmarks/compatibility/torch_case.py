"""What torch itself says of a case, and what the torch adapter does."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import lai_torch
import numpy as np
import torch
from torch import Tensor, nn

import lai_core as lai
from benchmarks.compatibility import judge
from benchmarks.compatibility.judge import Array, Batch, Side, UnfitError
from tests.support.workloads.torch_oracle import called, rows, sample_gradients

Call = tuple[tuple[str, bool], Array, Tensor | None]
"""Of one layer: its name and whether it has a bias, its input, its output unless that is a map."""


@dataclass(kw_only=True)
class Case(judge.Case):
    """A module, and its modules whose call is a layer.

    `layers` says what LAI should see: of each such module, the layer's name and whether it has a bias; the
    last call is the last layer. Empty, or where the last call's output is of another width than the model's:
    LAI is not judged.
    """

    model: nn.Module
    layers: Mapping[str, tuple[str, bool]] = field(default_factory=dict)

    def differentiate(self, batch: Batch) -> Side:
        """Return every sample's gradients by its own forward and backward pass.

        A sample goes through a batch normalisation beside a copy of itself: of a batch of one, torch 2.13
        returns a wrong gradient on a CPU where the gradient that comes in is expanded, as that of a mean
        over positions is.
        """
        named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        copies = 1 + any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in self.model.modules())
        calls: list[Call] = []
        found: list[list[Array]] = []
        readings: list[list[Call]] = []
        last: list[Array] = []
        reached: set[str] = set()

        def read(outputs: Any) -> list[Tensor]:
            width = getattr(outputs, "logits", outputs).shape[-1]
            output = calls[-1][2] if calls else None
            return [] if output is None or output.shape[-1] != width else [output]

        with self._watch(calls):
            passes = sample_gradients(self.model, self.loss, *batch, len(batch[1]), copies=copies, read=read)
            for gradients in passes:
                own = [*zip(named.items(), gradients, strict=False)]
                reached |= {name for (name, _), gradient in own if gradient is not None}
                filled = [torch.zeros_like(p) if gradient is None else gradient for (_, p), gradient in own]
                found.append([gradient.flatten().numpy(force=True) for gradient in filled])
                last += [_mean(gradient) for gradient in gradients[len(named) :] if gradient is not None]
                readings.append([*calls])
                calls.clear()
        side = Side(dict(zip(named, map(np.stack, zip(*found, strict=True)), strict=True)))
        names = [layer for layer, _, _ in readings[0]]
        if len(last) < len(readings) or any([layer for layer, _, _ in each] != names for each in readings):
            return side
        inputs = [np.stack([call[1] for call in calls]) for calls in zip(*readings, strict=True)]
        # LAI reads no input of a layer that is frozen or reaches no loss
        lost = {n.removesuffix(".weight") for n, _ in self.model.named_parameters() if n not in reached}
        if names[-1][0] in lost:
            names[-1], inputs[-1] = (names[-1][0], False), np.zeros_like(inputs[-1])
        # what is the same for every sample, made of parameters and constants alone, is no layer's input
        moves = [
            name not in lost and bool((each != each[:1]).any())
            for (name, _), each in zip(names, inputs, strict=True)
        ]
        kept = [at for at, moved in enumerate(moves) if moved or at == len(names) - 1]
        side.names, side.inputs = [names[at] for at in kept], [inputs[at] for at in kept]
        side.last = copies * np.stack(last)
        return side

    def losses(self, batch: Batch) -> Array:
        with torch.no_grad():
            values: Array = self.loss(called(self.model, batch[0]), batch[1]).numpy()
        return values

    def one(self, batch: Batch, index: int) -> Batch:
        cut: Batch = rows(batch, [index], len(batch[1]))
        return cut

    def check(self, training: Side) -> None:
        """Refuse a gradient that is random: another one at every call."""
        again, once = self.differentiate(self.training).matrix(), training.matrix()
        loose = self.bound / judge.BOUND
        if not np.allclose(again, once, rtol=loose * 1e-9, atol=loose * 1e-12 * np.abs(once).max()):
            raise UnfitError("random: another gradient at every call")

    def trace(self, batch: Batch, **options: Any) -> lai.Trace:
        return lai_torch.trace(self.model, self.loss, *batch, **options)

    def exact_scores(self) -> Tensor:
        return lai_torch.exact_scores(self.model, self.loss, self.validation, self.training)

    @contextmanager
    def _watch(self, calls: list[Call]) -> Iterator[None]:
        """Collect the calls of the layers' modules: one sample's, each a mean over its positions."""

        def watch(layer: tuple[str, bool]) -> Callable[..., None]:
            def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
                inputs = args[0] if args else next(iter(kwargs.values()))
                convolves = hasattr(module, "kernel_size")  # then the last axis is one of space
                maps = inputs.flatten(2).movedim(1, -1) if convolves else inputs
                calls.append((layer, _mean(maps), None if convolves else output))

            return see

        hooks = [
            self.model.get_submodule(name).register_forward_hook(watch(layer), with_kwargs=True)
            for name, layer in self.layers.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _mean(values: Tensor) -> Array:
    """Return one sample's mean over positions, `(d,)`."""
    return values.reshape(-1, values.shape[-1]).mean(0).numpy(force=True)
