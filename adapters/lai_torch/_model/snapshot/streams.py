"""Random streams as they were."""

import random
import sys
from collections.abc import Iterable
from itertools import chain
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor, nn

_VALUES = methodcaller("values")


def _generators() -> set[type]:
    """Return the classes of random streams: to ask `isinstance` of every attribute takes long."""
    found: set[type] = set()
    pending: list[type] = [torch.Generator]
    while pending:
        kind = pending.pop()
        found.add(kind)
        pending.extend(kind.__subclasses__())
    return found


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
        kinds = _generators()
        attributes = list(map(vars, modules))
        self.generators: list[torch.Generator] = []
        if not kinds.isdisjoint(map(type, chain.from_iterable(map(_VALUES, attributes)))):
            self.generators = [one for each in attributes for one in each.values() if type(one) in kinds]
        self.before = self._now()

    def _now(self) -> tuple[Any, Any, list[Tensor], list[Tensor]]:
        drawn = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self.cuda)]
        numbers = None if self.numpy is None else self.numpy.get_state(legacy=False)
        return random.getstate(), numbers, drawn, [one.get_state() for one in self.generators]

    def moved(self) -> bool:
        """Say whether something was drawn."""
        return not _same_state(self._now(), self.before)

    def equal(self, other: "Streams") -> bool:
        """Say whether another time they were in the same state."""
        return _same_state(self.before, other.before)

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


def _same_state(now: Any, before: Any) -> bool:
    """Whether the streams are in the same state: Python's, numpy's, torch's and the model's own."""
    pairs = zip([*now[2], *now[3]], [*before[2], *before[3]], strict=True)
    plain = now[0] == before[0] and _parts(now[1]) == _parts(before[1])
    return plain and all(torch.equal(a, b) for a, b in pairs)
