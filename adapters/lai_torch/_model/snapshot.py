"""What a forward pass may write, as it was before: buffers, parameters, random streams."""

import random
import sys
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

_WRITTEN: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()
"""Of each model that ran before: the parameters that its own forward pass writes."""


class Tensors:
    """A model's buffers and parameters as they were: the tensors themselves, and their values.

    Buffers are copied each time. To copy every parameter each time would cost small models as much as
    they compute, so that happens once: the first pass shows which ones forward writes (an embedding with
    `max_norm` does), later passes copy these, and another one that is written to is an error.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.first = model, model not in _WRITTEN
        written = _WRITTEN.get(model, set())
        self.places: list[tuple[Any, str, Tensor | None]] = []
        self.copies: list[tuple[str, Tensor, Tensor, bool]] = []
        self.versions: list[tuple[str, Tensor, int]] = []
        for prefix, module in model.named_modules():
            for table, parameters in ((module._buffers, False), (module._parameters, True)):
                for name, tensor in table.items():
                    self.places.append((table, name, tensor))
                    path = f"{prefix}.{name}" if prefix else name
                    if tensor is None or nn.parameter.is_lazy(tensor):
                        continue
                    dense = tensor.layout == torch.strided  # others can neither be compared nor filled
                    if dense and (not parameters or self.first or path in written):
                        self.copies.append((path, tensor, tensor.detach().clone(), parameters))
                    else:
                        self.versions.append((path, tensor, _version(tensor)))

    def restore(self) -> None:
        """Put back what was replaced, and the values of what was written.

        Raises
        ------
        ValueError
            If forward wrote a parameter for the first time after it ran without.
        """
        for table, name, tensor in self.places:
            if name not in table or table[name] is not tensor:  # a scripted module's table has no get
                table[name] = tensor
        written = _WRITTEN.setdefault(self.model, set())
        for path, tensor, copy, parameter in self.copies:
            if parameter and self.first:
                if torch.equal(tensor.detach(), copy):
                    continue
                written.add(path)
            _write(tensor, copy)
        for path, tensor, version in self.versions:
            if _version(tensor) != version:
                written.add(path)
                msg = (
                    f"model: a forward pass wrote parameter {path!r}, as none before it did, so that its "
                    "values from before are gone; keep in a buffer what forward writes"
                )
                raise ValueError(msg)


def _version(tensor: Tensor) -> int:
    """Count the writes to a tensor; those made in inference mode are not counted."""
    return 0 if tensor.is_inference() else tensor._version


def _write(tensor: Tensor, values: Tensor) -> None:
    """Give a tensor its values back, unseen by graphs that saved it: for them nothing has changed."""
    if tensor.data.shape != values.shape or tensor.data.dtype != values.dtype:
        tensor.data = values
    elif not any(size > 1 and step == 0 for size, step in zip(values.shape, tensor.stride(), strict=True)):
        tensor.data.copy_(values)  # an expanded tensor cannot be written, neither here nor in forward


class Streams:
    """The random streams that scoring could move: Python's, numpy's, torch's, the model's own generators."""

    def __init__(self, model: nn.Module) -> None:
        self.numpy = sys.modules.get("numpy")
        self.cuda = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
        held = [value for module in model.modules() for value in vars(module).values()]
        self.generators = [one for one in held if isinstance(one, torch.Generator)]
        self.before = self._now()

    def _now(self) -> tuple[Any, Any, list[Tensor], list[Tensor]]:
        numbers = self.numpy.random.get_state() if self.numpy else None
        drawn = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self.cuda)]
        return random.getstate(), numbers, drawn, [one.get_state() for one in self.generators]

    def moved(self) -> bool:
        """Say whether something was drawn."""
        python, numbers, drawn, own = self._now()
        pairs = zip([*drawn, *own], [*self.before[2], *self.before[3]], strict=True)
        alike = numbers is None or (
            (numbers[1] == self.before[1][1]).all() and numbers[2:] == self.before[1][2:]
        )
        return python != self.before[0] or not alike or not all(torch.equal(a, b) for a, b in pairs)

    def restore(self) -> None:
        """Put the streams back where they were."""
        python, numbers, drawn, own = self.before
        random.setstate(python)
        if self.numpy and numbers is not None:
            self.numpy.random.set_state(numbers)
        torch.set_rng_state(drawn[0])
        for device, state in zip(self.cuda, drawn[1:], strict=True):
            torch.cuda.set_rng_state(state, device)
        for generator, state in zip(self.generators, own, strict=True):
            generator.set_state(state)
