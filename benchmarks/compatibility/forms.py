"""One torch operation on a batch: along which axes of its arguments and results the samples may lie."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

NOISE = 0.05
"""How far a sample's argument is from the suite's: near enough to stay in the operation's domain."""
TRIED = 3

Others = Callable[[Tensor], Tensor]
"""What is done to the tensors among the arguments that are not differentiable."""


@dataclass(frozen=True)
class Operation:
    """One operation with one set of arguments: a function of its differentiable ones.

    `run` goes from these to the floating results; `others` is applied to other tensors. Where some of those
    are no floats (`indexed`), an operation may read memory by them unchecked, so that it is never called
    with values of one call and shapes of another.
    """

    run: Callable[..., list[Tensor]]
    arguments: tuple[Tensor, ...]
    indexed: bool = False
    module: nn.Module | None = None  # holds further parameters


@dataclass(frozen=True)
class Form:
    """How samples are joined: along a new first axis, or along an axis that the arguments have."""

    axis: int | None = None  # of the arguments, which the suite's own use as the batch; None: a new one
    expands: bool = False  # whether tensors that are not differentiable get a row per sample too
    length: int = 0  # of the suite's own batch
    results: tuple[int, ...] = ()  # the axis of each result that holds the samples

    def one(self, argument: Tensor) -> Tensor:
        """Return one sample of the suite's own argument."""
        return argument if self.axis is None else argument.narrow(self.axis, 0, 1)

    @property
    def alone(self) -> "Form":
        """How one sample by itself is given: without the new axis."""
        return LOOP if self.axis is None else self

    def join(self, rows: Tensor) -> Tensor:
        """Return one argument of all samples, given samples first, as the operation takes it."""
        return rows if self.axis is None else rows.squeeze(self.axis + 1).movedim(0, self.axis)

    def others(self, samples: int) -> Others:
        """Return what is done to other tensors for that many samples."""

        def expanded(tensor: Tensor) -> Tensor:
            if self.axis is None:
                return tensor.expand(samples, *tensor.shape) if self.expands else tensor
            if tensor.ndim <= self.axis or tensor.shape[self.axis] != self.length:
                return tensor
            sizes = [samples if axis == self.axis else -1 for axis in range(tensor.ndim)]
            return tensor.narrow(self.axis, 0, 1).expand(sizes)

        return expanded


def operation_of(call: Callable[..., Any], given: Any, module: nn.Module | None = None) -> Operation:
    """Return a call on nested arguments as a function of those that need a gradient."""
    leaves, spec = pytree.tree_flatten(given)
    moved = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
    fixed = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def run(*arguments: Tensor, others: Others = as_it_is) -> list[Tensor]:
        filled = [others(leaf) if isinstance(leaf, Tensor) else leaf for leaf in fixed]
        for place, argument in zip(moved, arguments, strict=True):
            filled[place] = argument
        return floats(call(*pytree.tree_unflatten(filled, spec)))

    rest = [leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and i not in moved]
    indexed = not all(other.is_floating_point() for other in rest)
    return Operation(run, tuple(fixed[i].clone() for i in moved), indexed, module)


def as_it_is(tensor: Tensor) -> Tensor:
    """Return the tensor."""
    return tensor


LOOP = Form()
"""One call per sample, on the suite's own argument."""


def form_of(operation: Operation, kept: Sequence[int] = ()) -> Form:
    """Find by trying how one call serves all samples: where none does, one call per sample."""
    data = [i for i in range(len(operation.arguments)) if i not in kept]
    for form in _forms(operation, data, own_axis_first=bool(kept) or operation.module is not None):
        try:
            results = _agreeing(operation, data, form)
        except Exception:  # what an operation says of shapes that it does not take
            continue
        if results is not None:
            return Form(form.axis, form.expands, form.length, results)
    return LOOP


def _forms(operation: Operation, data: Sequence[int], *, own_axis_first: bool) -> Iterator[Form]:
    shapes = [operation.arguments[i].shape for i in data]
    shared = [
        Form(axis, expands=True, length=shapes[0][axis])
        for axis in (0, 1)
        if all(len(shape) > axis and shape[axis] == shapes[0][axis] for shape in shapes)
    ]
    added = [Form(expands=True), *([] if operation.indexed else [Form()])]
    yield from [*shared, *added] if own_axis_first else [*added, *shared]


def _agreeing(operation: Operation, data: Sequence[int], form: Form) -> tuple[int, ...] | None:
    """Return the axis of each result along which one call gives what one call per sample does."""
    fixed = [argument.detach() for argument in operation.arguments]
    generator = torch.Generator().manual_seed(0)
    rows = {i: _near(form.one(fixed[i]), generator) for i in data}

    def on(given: dict[int, Tensor], joined: Form, samples: int) -> list[Tensor]:
        whole = (given.get(i, argument) for i, argument in enumerate(fixed))
        return operation.run(*whole, others=joined.others(samples))

    alone = [on({i: row[s] for i, row in rows.items()}, form.alone, 1) for s in range(TRIED)]
    together = on({i: form.join(row) for i, row in rows.items()}, form, TRIED)
    found = [
        _axis([one[k] for one in alone], result, new=form.axis is None) for k, result in enumerate(together)
    ]
    if len(together) != len(alone[0]) or None in found:
        return None
    return tuple(axis for axis in found if axis is not None)


def _near(argument: Tensor, generator: torch.Generator) -> Tensor:
    """Return several arguments near one, stacked."""
    noise = torch.randn(TRIED, *argument.shape, generator=generator)
    return argument + NOISE * torch.tanh(noise).to(argument.dtype)


def _axis(alone: Sequence[Tensor], together: Tensor, *, new: bool) -> int | None:
    """Return the axis of `together` along which it is all of `alone`."""
    for axis in (0,) if new else range(min(together.ndim, 2)):
        if not new and alone[0].ndim != together.ndim:
            return None
        joined = torch.stack(list(alone)) if new else torch.cat(list(alone), axis)
        if joined.shape == together.shape and torch.allclose(joined, together, rtol=1e-9, atol=1e-12):
            return axis
    return None


def real(result: Tensor) -> Tensor:
    """Return a complex tensor as its real and imaginary parts."""
    if result.dtype == torch.complex32:
        result = result.to(torch.complex64)
    return torch.view_as_real(result.resolve_conj()) if result.is_complex() else result


def flat(results: Sequence[Tensor]) -> Tensor:
    """Return all results as one vector of float64."""
    return torch.cat([real(result).flatten().double() for result in results])


def floats(results: Any) -> list[Tensor]:
    """Return the real and complex tensors in nested results, in order."""
    found = [result for result in pytree.tree_leaves(results) if isinstance(result, Tensor)]
    return [result for result in found if result.is_floating_point() or result.is_complex()]
