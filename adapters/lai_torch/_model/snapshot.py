"""What a forward pass may write, as it was before: random streams, buffers and parameters."""

import random
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lai_torch._model.walk import collect_held

_VALUES = methodcaller("values")


class Streams:
    """The random streams that scoring could move: Python's, numpy's, torch's, the model's own generators."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        modules = list(modules)
        numpy: Any = sys.modules.get("numpy")
        self.numpy: Any = getattr(numpy, "random", None)
        self.cuda = []
        if torch.cuda.is_initialized():
            parameters = (one for module in modules for one in module._parameters.values() if one is not None)
            self.cuda = sorted({one.device.index for one in parameters if one.is_cuda})
        attributes = list(map(vars, modules))
        # of each class once: to ask `isinstance` of every attribute takes long
        classes = set(map(type, chain.from_iterable(map(_VALUES, attributes))))
        kinds = {kind for kind in classes if issubclass(kind, torch.Generator)}
        self.generators: list[torch.Generator] = []
        if kinds:
            self.generators = [one for each in attributes for one in each.values() if type(one) in kinds]
        self.before = self._read_streams()

    def _read_streams(self) -> tuple[Any, Any, list[Tensor], list[Tensor]]:
        drawn = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self.cuda)]
        numbers = self.numpy and self.numpy.get_state(legacy=False)
        return random.getstate(), numbers, drawn, [one.get_state() for one in self.generators]

    def has_moved(self) -> bool:
        return not _has_same_state(self._read_streams(), self.before)

    def equal(self, other: "Streams") -> bool:
        return _has_same_state(self.before, other.before)

    def restore(self) -> None:
        """Put the streams back where they were."""
        python, numbers, drawn, own = self.before
        random.setstate(python)
        if numbers is not None:
            self.numpy.set_state(numbers)
        torch.set_rng_state(drawn[0])
        for device, state in zip(self.cuda, drawn[1:], strict=True):
            torch.cuda.set_rng_state(state, device)
        for generator, state in zip(self.generators, own, strict=True):
            generator.set_state(state)


def _parts(state: Any) -> Any:
    """Return what can be compared of numpy's state: the bytes of an array, and whatever else as it is."""
    if isinstance(state, dict):
        return tuple((name, _parts(value)) for name, value in state.items())
    return state.tobytes() if hasattr(state, "tobytes") else state


def _has_same_state(now: Any, before: Any) -> bool:
    pairs = zip([*now[2], *now[3]], [*before[2], *before[3]], strict=True)
    plain = now[0] == before[0] and _parts(now[1]) == _parts(before[1])
    return plain and all(torch.equal(a, b) for a, b in pairs)


VERSION = attrgetter("_version")
"""How often a tensor was written, as autograd counts."""
_WRITTEN: WeakKeyDictionary[nn.Module, dict[tuple[bool, ...], set[int]]] = WeakKeyDictionary()
"""Of each model that ran before, by its modules' flags: the tensors that its forward pass writes."""


class Tensors:
    """A model's buffers and parameters as they were: the tensors themselves, and their values.

    To copy every parameter each time would cost small models as much as they compute. So it happens
    once: the first pass shows which ones forward writes (an embedding with `max_norm` does), later passes
    copy these, and another one that is written to is an error. Buffers are copied each time, and written
    back where they moved, as autograd counts or as the first pass has shown.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, held = model, collect_held(model)
        known, self.flags = _WRITTEN.get(model, {}), tuple(module.training for module in held.modules)
        self.first = self.flags not in known  # so is a pass within the first one
        self.written = known.get(self.flags, set())
        self.buffers: list[tuple[nn.Module, str, Tensor | None]] = []
        self.copies: list[tuple[Tensor, Tensor, int]] = []
        for module in held.modules:
            # a scripted module's table can only be walked by its items
            for name, tensor in module._buffers.items():
                self.buffers.append((module, name, tensor))
                if tensor is not None:
                    self.copies.append((tensor, tensor.detach().clone(), count_writes(tensor)))
        self.watched = held.counted
        # copies of parameters are held where a pass writes some, or may
        if self.first or self.written:
            written = [one for one in held.dense if self.first or id(one) in self.written]
            self.copies += [(one, one.detach().clone(), count_writes(one)) for one in written]
            self.watched = [one for one in self.watched if not self.first and id(one) not in self.written]
        self.versions = list(map(VERSION, self.watched))

    def restore(self) -> None:
        """Put back what was replaced, and the values of what was written.

        Raises
        ------
        ValueError
            If forward wrote a parameter for the first time after it ran without.
        """
        for module, name, buffer in self.buffers:
            # forward may have assigned another tensor, or removed the buffer
            if name not in module._buffers or module._buffers[name] is not buffer:
                module._buffers[name] = buffer
        # what a pass writes depends on which modules train
        known = _WRITTEN.setdefault(self.model, {})
        self.written = known.setdefault(self.flags, self.written)
        for tensor, copy, version in self.copies:
            # `.data` is written without a count: the first pass compares values
            if self.first and (count_writes(tensor) != version or not _is_same(tensor, copy)):
                self.written.add(id(tensor))
            if id(tensor) in self.written or count_writes(tensor) != version:
                _write(tensor, copy)
        if list(map(VERSION, self.watched)) != self.versions:
            pairs = zip(self.watched, self.versions, strict=True)
            written = [tensor for tensor, version in pairs if tensor._version != version]
            self.written.update(map(id, written))
            name = next(name for name, one in self.model.named_parameters() if one is written[0])
            msg = (
                f"model: a forward pass wrote parameter {name!r}, as none before it did, so that its "
                "values from before are gone; keep in a buffer what forward writes"
            )
            raise ValueError(msg)


def _is_same(tensor: Tensor, copy: Tensor) -> bool:
    tensor = tensor.detach()
    if (tensor.shape, tensor.dtype, tensor.layout) != (copy.shape, copy.dtype, copy.layout):
        return False
    return torch.equal(tensor.to_dense(), copy.to_dense())


def count_writes(tensor: Tensor) -> int:
    """Count the writes to a tensor; those made in inference mode are not counted."""
    return 0 if tensor.is_inference() else tensor._version


def _write(tensor: Tensor, values: Tensor) -> None:
    """Give a tensor its values back, unseen by graphs that saved it: for them nothing has changed."""
    kind = values.shape, values.dtype, torch.strided
    if (tensor.data.shape, tensor.data.dtype, values.layout) != kind:
        tensor.data = values
    elif not any(size > 1 and step == 0 for size, step in zip(values.shape, tensor.stride(), strict=True)):
        tensor.data.copy_(values)  # an expanded tensor cannot be written, neither here nor in forward


NOT_OWNED = (
    "wants a gradient and belongs to neither the model nor the loss, so that scores leave it out; hand over "
    "as loss a module that holds it as a parameter, or freeze it with requires_grad_(False)"
)


def nodes(losses: Tensor, behind: Container[Any] = ()) -> Iterator[Any]:
    """Yield the nodes of an autograd graph once each, stopping at `behind`."""
    seen, ahead = set(), [losses.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen and node not in behind:
            seen.add(node)
            yield node
            ahead += [following for following, _ in node.next_functions]


def check_owned(leaves: Iterable[Tensor]) -> None:
    """Raise if one of the leaves that nobody handed over is a parameter."""
    for leaf in leaves:
        if isinstance(leaf, nn.Parameter):
            msg = f"loss: it depends on a parameter of shape {tuple(leaf.shape)}, which {NOT_OWNED}"
            raise ValueError(msg)


def check_returned(parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise if a backward pass for which `.grad` was empty wrote there by itself."""
    for name, parameter in parameters.items():
        if parameter.grad is not None:
            msg = (
                "model: expected a backward pass that returns every gradient, got one that writes the .grad "
                f"of {name!r} itself, as a function does whose backward calls .backward() (a reversible "
                "block, a reentrant checkpoint): return what torch.autograd.grad gives, or pass "
                "use_reentrant=False to checkpoint (transformers: gradient_checkpointing_kwargs="
                "{'use_reentrant': False})"
            )
            raise ValueError(msg)
