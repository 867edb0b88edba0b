"""Buffers and parameters as they were."""

from operator import attrgetter
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from lai_torch._model.walk import held, modules_of

_VERSION, _DEVICE = attrgetter("_version"), attrgetter("device")
_WRITTEN: WeakKeyDictionary[nn.Module, dict[bool, set[int]]] = WeakKeyDictionary()
"""Of each model that ran before, in training and in eval mode: the tensors that its forward pass writes."""


class Tensors:
    """A model's buffers and parameters as they were: the tensors themselves, and their values.

    To copy every parameter each time would cost small models as much as they compute. So it happens
    once: the first pass shows which ones forward writes (an embedding with `max_norm` does), later passes
    copy these, and another one that is written to is an error. Buffers are copied each time, and written
    back where they moved, as autograd counts or as the first pass has shown.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, modules = model, modules_of(model)
        known, self.training = _WRITTEN.get(model, {}), model.training
        self.first = model.training not in known  # so is a pass within the first one
        self.written = known.get(model.training, set())
        self.buffers: list[tuple[nn.Module, str, Tensor | None]] = []
        self.copies: list[tuple[Tensor, Tensor, int]] = []
        for module in modules:
            # a scripted module's table can only be walked by its items
            for name, tensor in module._buffers.items() if module._buffers else ():
                self.buffers.append((module, name, tensor))
                if tensor is not None:
                    self.copies.append((tensor, tensor.detach().clone(), _version(tensor)))
        self.watched = held(model).counted
        if self.first or self.written:
            written = [one for one in held(model).dense if self.first or id(one) in self.written]
            self.copies += [(one, one.detach().clone(), _version(one)) for one in written]
            self.watched = [one for one in self.watched if not self.first and id(one) not in self.written]
        self.versions = list(map(_VERSION, self.watched))

    @property
    def devices(self) -> set[str]:
        """Return the kinds of devices that the tensors are on."""
        watched = [tensor for tensor, _, _ in self.copies]
        return {device.type for device in {*map(_DEVICE, watched), *map(_DEVICE, self.watched)}}

    def restore(self) -> None:
        """Put back what was replaced, and the values of what was written.

        Raises
        ------
        ValueError
            If forward wrote a parameter for the first time after it ran without.
        """
        for module, name, buffer in self.buffers:
            if name not in module._buffers or module._buffers[name] is not buffer:
                module._buffers[name] = buffer
        known = _WRITTEN.setdefault(self.model, {})
        self.written = known.setdefault(self.training, self.written)
        for tensor, copy, version in self.copies:
            if self.first and (_version(tensor) != version or not _same(tensor, copy)):
                self.written.add(id(tensor))
            if id(tensor) in self.written or _version(tensor) != version:
                _write(tensor, copy)
        if list(map(_VERSION, self.watched)) != self.versions:
            pairs = zip(self.watched, self.versions, strict=True)
            written = [tensor for tensor, version in pairs if tensor._version != version]
            self.written.update(map(id, written))
            name = next(name for name, one in self.model.named_parameters() if one is written[0])
            msg = (
                f"model: a forward pass wrote parameter {name!r}, as none before it did, so that its "
                "values from before are gone; keep in a buffer what forward writes"
            )
            raise ValueError(msg)


def written(model: nn.Module) -> set[int] | None:
    """Return the ids of the tensors that forward writes in the model's mode; None before it ran in it."""
    return _WRITTEN.get(model, {}).get(model.training)


def _same(tensor: Tensor, copy: Tensor) -> bool:
    tensor = tensor.detach()
    if (tensor.shape, tensor.dtype, tensor.layout) != (copy.shape, copy.dtype, copy.layout):
        return False
    return all(map(torch.equal, strided(tensor), strided(copy)))


def strided(tensor: Tensor) -> list[Tensor]:
    """Return what a tensor is kept as: entries and their places, of a sparse one."""
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in {torch.sparse_csc, torch.sparse_bsc}:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.to_dense()]


def _version(tensor: Tensor) -> int:
    """Count the writes to a tensor; those made in inference mode are not counted."""
    return 0 if tensor.is_inference() else tensor._version


def _write(tensor: Tensor, values: Tensor) -> None:
    """Give a tensor its values back, unseen by graphs that saved it: for them nothing has changed."""
    kind = values.shape, values.dtype, torch.strided
    if (tensor.data.shape, tensor.data.dtype, values.layout) != kind:
        tensor.data = values
    elif not any(size > 1 and step == 0 for size, step in zip(values.shape, tensor.stride(), strict=True)):
        tensor.data.copy_(values)  # an expanded tensor cannot be written, neither here nor in forward
