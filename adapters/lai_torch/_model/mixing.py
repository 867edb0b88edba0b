"""Detect an operation inside a model that mixes samples, even where the losses do not show it yet.

Independent samples in one batch do not imply independent samples in the next: in a model that computes
`where(x > 5, h - h.mean(0), h)` the losses show nothing as long as no entry exceeds 5. The operation
`h.mean(0)` itself shows it. So every operation is tried alone: on copies of one sample it must return, in
each row, what it returns for that sample in the batch. A program of such operations couples no samples,
whatever the values. If one operation fails, a proof holds for its own batch only.

The trial uses random values in place of the batch's samples and of the model's buffers and constants: real
ones may be zero, or equal, where samples meet, and differ in the next batch.

The number of a batch's valid entries, or whether all are valid, may choose a branch (whether a mask is
needed at all). It counts as mixing only if something else is computed from it.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils.weak import WeakTensorKeyDictionary

from lai_torch._model.batch import Loss, holds_rows, mapped, tensors
from lai_torch._model.function import losses_of
from lai_torch._model.preserve import evaluating, preserved
from lai_torch._model.sample_axis import SampleAxis, candidates
from lai_torch._model.walk import named_buffers, named_parameters

READS = {"item", "tolist", "numpy", "__array__", "__int__", "__float__", "__index__", "__complex__"}
"""Methods that hand a tensor's values to Python, where nobody sees what becomes of them."""
UNSEEN = {"register_hook", "retain_grad", "requires_grad_"}
"""Methods that say what is to happen in a backward pass, and do nothing in a forward pass."""
WRITES = {torch.Tensor.__setitem__}
"""Functions that return nothing and write to their first argument."""


class Mixing(TorchFunctionMode):
    """Tries each operation of a forward pass that runs inside; put back what it writes.

    Attributes
    ----------
    found
        The first operation that mixes samples; None: no one does.
    """

    def __init__(
        self,
        batch: Any,  # inputs and targets
        samples: int,  # how many samples they have, two or more
        # parameters, buffers: what the model trains, which keeps its values here, and what it keeps
        parameters: Iterable[Tensor],
        buffers: Iterable[Tensor],
    ) -> None:
        super().__init__()
        self.samples = samples
        self._tries = (samples - 1, 0)  # of one alone a maximum over the batch may be that of the batch
        self.found: str | None = None
        self._axes: Any = WeakTensorKeyDictionary()
        self._others: Any = WeakTensorKeyDictionary()  # without samples: whether the model keeps it
        self._counts: Any = WeakTensorKeyDictionary()  # of the whole batch, and what counted
        self._parameters = frozenset(map(id, parameters))
        self._generator = torch.Generator().manual_seed(0)
        self._others.update(dict.fromkeys(buffers, True))
        for tensor in tensors(batch):
            if holds_rows(tensor, samples):
                self._axes[tensor] = SampleAxis(0)
            else:
                self._others[tensor] = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, and try it on copies of one sample."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        involved = [] if self.found else tensors((args, kwargs))
        axes = [self._axes[tensor] for tensor in involved if tensor in self._axes]
        counts = [self._counts[tensor] for tensor in involved if tensor in self._counts]
        tried: Sides | None = None
        if (name in READS and (axes or counts)) or any(map(self._unknown, involved)):
            self._mixes(func)
        elif axes and "dropout" not in name and name not in UNSEEN:  # dropout works entry by entry
            try:
                tried = self._tried(func, args, kwargs, involved)
            except Exception:  # it cannot be tried, so that nothing is known
                self._mixes(func)
        out = func(*args, **kwargs)
        if self.found:
            return out
        results = _results(func, out, args)
        if counts and not all(one.dtype == torch.bool and not one.ndim for one in results):
            self._mixes(counts[0])
            return out
        if tried is not None:
            try:
                for index, result in enumerate(results):
                    base = result if tried[0] is None else tried[0][index]
                    others = [each[index] for each in tried[1]]
                    self._place(func, result, base.detach(), others, axes)
            except Exception:  # a kind of tensor that cannot be compared
                self._mixes(func)
            return out
        for result in results:
            if axes:
                self._axes[result] = axes[0]
            else:
                # an order that is drawn may be, this once, the one in which the samples are
                self._others[result] = name == "randperm" or any(map(self._is_kept, involved))
            if counts:
                self._counts[result] = counts[0]
        return out

    def _mixes(self, func: Any) -> None:
        self.found = self.found or resolve_name(func) or getattr(func, "__name__", str(func))

    def _unknown(self, tensor: Tensor) -> bool:
        """Whether a tensor is the result of a function that could not be recorded."""
        seen = tensor in self._axes or tensor in self._others or id(tensor) in self._parameters
        return not seen and tensor.grad_fn is not None

    def _is_kept(self, tensor: Tensor) -> bool:
        """Whether a tensor is what the model keeps from batch to batch, or made of that."""
        if tensor in self._axes or id(tensor) in self._parameters:
            return False
        return bool(self._others.get(tensor, True))  # an attribute that is no buffer

    def _place(
        self, func: Any, result: Tensor, first: Tensor, others: list[Tensor], axes: list[SampleAxis]
    ) -> None:
        """Note where the samples are in a result, or that they are mixed."""
        same = all(first.shape == other.shape for other in others)
        for axis in sorted(candidates(first.shape, self.samples), key=lambda one: one not in axes):
            if same and all(map(_alike, (self._of(first, axis, one) for one in self._tries), others)):
                self._axes[result] = axis
                return
        self._others[result] = False
        if not (same and all(_alike(first, other) for other in others)):
            if first.ndim or first.is_floating_point() or first.is_complex():
                self._mixes(func)
            self._counts[result] = func

    def _tried(self, func: Any, args: Any, kwargs: Any, involved: Iterable[Tensor]) -> "Sides":
        """Return what a function gives of the batch, if of other values than it has, and of copies.

        Numbers and truths are drawn: the batch's own may be zero where samples would meet.
        """
        drawn: dict[int, Tensor] = {}
        for tensor in involved:
            axis, values = self._axes.get(tensor), tensor.detach()
            if axis is None and self._is_kept(tensor):
                shape = [1 if _constant(values, one) else size for one, size in enumerate(values.shape)]
                drawn[id(tensor)] = self._drawn(values[tuple(map(slice, shape))]).expand(values.shape)
            elif axis is not None and (
                _generic(values) or _alike(self._of(values, axis, self._tries[0]), values)
            ):
                drawn[id(tensor)] = self._drawn(values)

        def batch(tensor: Tensor) -> Tensor:
            if id(tensor) in self._parameters:
                return tensor.detach()
            return drawn.get(id(tensor), tensor.detach()).clone()

        def copies(one: int) -> Callable[[Tensor], Tensor]:
            def of(tensor: Tensor) -> Tensor:
                axis, found = self._axes.get(tensor), batch(tensor)
                return found if axis is None else self._of(found, axis, one)

            return of

        def given(change: Callable[[Tensor], Tensor]) -> list[Tensor]:
            own, named = mapped(args, change), mapped(kwargs, change)
            return _results(func, func(*own, **named), own)

        with torch.no_grad():
            if drawn:
                try:
                    base = given(batch)
                    if all(bool(torch.isfinite(one).all()) for one in base):
                        return base, [given(copies(one)) for one in self._tries]
                except Exception:  # not every function takes any values
                    pass
                drawn = {}
            return None, [given(copies(one)) for one in self._tries]

    def _of(self, tensor: Tensor, axis: SampleAxis, one: int) -> Tensor:
        """Return a tensor with one sample at every sample's place."""
        index = torch.full((self.samples,), one, device=tensor.device)
        return tensor.index_select(axis.axis, index) if axis.plain else axis.kept(tensor, index)

    def _drawn(self, values: Tensor) -> Tensor:
        """Return other values of the same kind and shape, without order."""
        drawn = torch.rand(values.shape, generator=self._generator, device="cpu").to(values.device)
        if values.is_floating_point() or values.is_complex():
            return (0.5 + drawn).to(values.dtype)
        if values.dtype == torch.bool:
            return drawn < 0.5
        order = torch.randperm(values.numel(), generator=self._generator, device="cpu").to(values.device)
        mixed = values.flatten()[order]
        if bool((mixed[1:] >= mixed[:-1]).all()):  # row indices in order would exchange no rows
            mixed = mixed.flip(0)
        mixed = mixed.reshape(values.shape)
        return mixed if bool((mixed != values).any()) else (drawn < 0.5).to(values.dtype)


Sides = tuple[list[Tensor] | None, list[list[Tensor]]]


def _results(func: Any, out: Any, args: Any) -> list[Tensor]:
    return [args[0]] if func in WRITES else tensors(out)


def _generic(values: Tensor) -> bool:
    """Whether a function accepts random values in place of these, which are not row indices, say."""
    return values.is_floating_point() or values.is_complex() or values.dtype == torch.bool


def _constant(values: Tensor, axis: int) -> bool:
    """Whether a tensor is the same all along an axis, as where it was expanded."""
    return bool((values == values.narrow(axis, 0, min(1, values.shape[axis]))).all())


def _alike(found: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape are the same but for roundings."""
    if not (found.is_floating_point() or found.is_complex()):
        return torch.equal(found, other)
    eps = torch.finfo(found.dtype).eps
    finite = torch.isfinite(found)
    if not torch.equal(finite, torch.isfinite(other)):
        return False
    size = torch.where(finite, found, 0.0).abs().max() if found.numel() else 0.0
    within = (eps**0.5 if eps > 1e-4 else 1024 * eps) * size
    return bool((torch.where(finite, found - other, 0.0).abs() <= within).all())


def mixing(model: nn.Module, loss: Loss, batch: tuple[Any, Any], samples: int) -> str | None:
    """Return the first operation of a model in eval mode that mixes the samples of a batch."""
    watched = Mixing(batch, samples, named_parameters(model, loss).values(), named_buffers(model).values())
    with evaluating(model), preserved(model, loss), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with watched:
            losses_of(model, loss, batch)
    return watched.found
