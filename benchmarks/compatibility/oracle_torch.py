"""What torch itself says: one forward and one backward pass per sample, no code of this project.

A sample goes through a batch normalisation beside a copy of itself: of a batch of one, torch 2.13 returns a
wrong gradient on a CPU where the gradient that comes in is expanded, as that of a mean over positions is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.compatibility.verdicts import UnfitError
from tests.support.workloads.torch_oracle import called

BOUND = 1e-6
"""Relative error allowed in float64: operations lose digits by their condition, errors of meaning do not."""


@dataclass
class Case:
    """A model, two batches, and what the case is about.

    `layers` says what LAI should see: of each module whose call is a layer, the layer's name and whether it
    has a bias; the last call is the last layer. Empty, or where the last call's output is of another width
    than `result` of the model's: LAI is not judged.
    """

    model: nn.Module
    loss: Callable[[Any, Any], Tensor]
    training: tuple[Any, Any]
    validation: tuple[Any, Any]
    part: Callable[[str], bool] = field(default=lambda name: True)  # parameters that the error is set beside
    layers: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    matrices: Sequence[str] = ()  # further parameters that multiply the batch: LAI sees them or names them
    only: bool = False  # LAI is judged on these layers alone, without the case's own operation
    bound: float = BOUND  # the largest relative error of a right answer
    result: Callable[[Any], Tensor] = field(default=lambda results: results)


@dataclass
class Reading:
    """What LAI should see of one sample: means over its positions, which of one position are itself."""

    names: list[tuple[str, bool]] = field(default_factory=list)
    activations: list[Tensor] = field(default_factory=list)
    output: Tensor | None = None


@dataclass
class Gradients:
    """Each sample's gradient of each parameter, and what LAI should see."""

    of: dict[str, Tensor]  # (n, size) each
    names: list[tuple[str, bool]]  # of each layer that LAI should see, and whether it has a bias
    activations: list[Tensor]  # (n, d) each
    last: Tensor | None  # (n, d) with respect to the last layer's output; None: samples differ in layers

    def matrix(self, part: Callable[[str], bool] = lambda name: True) -> Tensor:
        """Return the gradients of the parameters of a part, `(n, all)`."""
        return torch.cat([rows for name, rows in self.of.items() if part(name)], 1)


def gradients_of(case: Case, batch: tuple[Any, Any]) -> Gradients:
    """Return every sample's gradients by its own forward and backward pass."""
    trainable = {name: p for name, p in case.model.named_parameters() if p.requires_grad}
    normalises = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in case.model.modules())
    copies = 2 if normalises else 1
    rows: list[list[Tensor]] = []
    readings: list[Reading] = []
    reached: set[str] = set()
    last: list[Tensor] = []
    for index in range(samples_of(batch[1])):
        with _read(case) as reading:
            results = called(case.model, one(batch[0], index, copies))
        value = case.loss(results, one(batch[1], index, copies)).sum()
        if reading.output is not None and reading.output.shape[-1] != case.result(results).shape[-1]:
            reading.output = None
        if not value.requires_grad:
            raise UnfitError("no gradient")
        wanted = [*trainable.values()] + ([] if reading.output is None else [reading.output])
        found = torch.autograd.grad(value, wanted, allow_unused=True)
        reached |= {name for name, g in zip(trainable, found, strict=False) if g is not None}
        whole = [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]
        rows.append([_reals(gradient).flatten() / copies for gradient in whole[: len(trainable)]])
        readings.append(reading)
        last += [_mean(gradient) for gradient in whole[len(trainable) :]]
    named = dict(zip(trainable, map(torch.stack, zip(*rows, strict=True)), strict=True))
    names = readings[0].names
    if not last or any(reading.names != names for reading in readings):
        return Gradients(named, [], [], None)
    activations = [torch.stack(parts) for parts in zip(*(r.activations for r in readings), strict=True)]
    # what is the same for every sample, made of parameters and constants alone, is no layer's input
    moves = [each is activations[-1] or bool((each != each[:1]).any()) for each in activations]
    # nor is one a layer that is frozen or reaches no loss; of a frozen last one LAI reads no input
    lost = {name.removesuffix(".weight") for name, _ in case.model.named_parameters() if name not in reached}
    if names[-1][0] in lost:
        names, activations[-1] = [*names[:-1], (names[-1][0], False)], torch.zeros_like(activations[-1])
    inner = [name not in lost for name, _ in names[:-1]]
    moves = [moved and read for moved, read in zip(moves, [*inner, True], strict=True)]
    names = [name for name, moved in zip(names, moves, strict=True) if moved]
    activations = [each for each, moved in zip(activations, moves, strict=True) if moved]
    return Gradients(named, names, activations, torch.stack(last))


def torch_gradient(case: Case, batch: tuple[Any, Any]) -> Tensor:
    """Return the gradient of a whole batch's summed losses, `(size,)`, as a step of training takes it."""
    trainable = [parameter for parameter in case.model.parameters() if parameter.requires_grad]
    value = case.loss(called(case.model, batch[0]), batch[1]).sum()
    found = torch.autograd.grad(value, trainable, allow_unused=True)
    whole = (torch.zeros_like(t) if g is None else g for g, t in zip(found, trainable, strict=True))
    return torch.cat([_reals(gradient).flatten() for gradient in whole])


def one(tree: Any, index: int, copies: int = 1) -> Any:
    """Return sample `index` of nested tensors as a batch of one, or of so many copies of it."""
    if isinstance(tree, Tensor):
        return tree[[index] * copies]
    if isinstance(tree, dict):
        return {key: one(value, index, copies) for key, value in tree.items()}
    return tuple(one(value, index, copies) for value in tree) if isinstance(tree, tuple) else tree


def samples_of(tree: Any) -> int:
    """Return the number of samples of nested tensors."""
    if isinstance(tree, Tensor):
        return len(tree)
    return samples_of(next(iter(tree.values() if isinstance(tree, dict) else tree)))


def _reals(gradient: Tensor) -> Tensor:
    """Return a gradient as real numbers: the inner product of complex ones is that of both parts."""
    return torch.view_as_real(gradient.resolve_conj()) if gradient.is_complex() else gradient


def _mean(values: Tensor) -> Tensor:
    """Return one sample's mean over positions, `(d,)`."""
    return values.detach().reshape(-1, values.shape[-1]).mean(0)


@contextmanager
def _read(case: Case) -> Iterator[Reading]:
    """Collect the inputs of the layers' modules by call, and the output of the last call."""
    reading = Reading()

    def watch(layer: tuple[str, bool]) -> Callable[..., None]:
        def seen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            inputs = args[0] if args else next(iter(kwargs.values()))
            convolves = hasattr(module, "kernel_size")
            maps = inputs.detach().flatten(2).movedim(1, -1) if convolves else inputs
            reading.names.append(layer)
            reading.activations.append(_mean(maps))
            reading.output = None if convolves else output  # whose last axis is one of space

        return seen

    hooks = [
        case.model.get_submodule(name).register_forward_hook(watch(layer), with_kwargs=True)
        for name, layer in case.layers.items()
    ]
    try:
        yield reading
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Build tensors of that type by default, and then as before."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
