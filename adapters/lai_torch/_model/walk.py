"""A model's modules, parameters and buffers, by torch's own walks.

What they find is looked up anew for each step, for a model may change between any two; within one, once: a
walk over 100 modules takes a millisecond. Models of engines that nothing here can score are refused by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, compress, repeat
from operator import attrgetter, is_, methodcaller, not_
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

_BEFOREHAND = (
    "shard the model by fully_shard, or score a copy in plain torch beforehand by lai_torch.score_dataset "
    "and write its weights to a file (guide: Weights for other trainers)"
)
_PIPELINE = f"which runs a part of the model on each process; {_BEFOREHAND}"
REFUSED = {
    "deepspeed.runtime.pipe": _PIPELINE,
    "deepspeed.runtime.engine": (
        "which runs backward passes by itself; under ZeRO stages 1 and 2 score its module, by Curator("
        "engine.module, loss, None, validation, process_group=False).score(inputs, targets), and hand the "
        "weighted loss to engine.backward"
    ),
    "megatron": f"whose layers communicate in backward passes of their own; {_BEFOREHAND}",
    "torch.distributed.pipelining": _PIPELINE,
}
"""Where classes are defined that are refused, and what to do instead."""


def check_kinds_served(kinds: Iterable[type]) -> None:
    """Raise if one of the classes of a model and its modules belongs to an engine that is refused."""
    for refusal in filter(None, map(_refusal, set(kinds))):
        raise ValueError(refusal)


@lru_cache(maxsize=4096)
def _refusal(kind: type) -> str | None:
    for base in kind.__mro__:
        for package, way_out in REFUSED.items():
            if f"{base.__module__}.".startswith(f"{package}."):
                name = f"{base.__module__}.{base.__name__}"
                return f"model: expected a torch.nn.Module that runs whole, got {name}, {way_out}"
    return None


Made = TypeVar("Made")
_TABLES = tuple(map(attrgetter, ("_modules", "_parameters", "_buffers")))
_ITEMS = methodcaller("items")  # a scripted module's table can only be walked by these
_WALKS = ("named_modules", "named_parameters", "named_buffers")


def _contents(table: Any, modules: Sequence[nn.Module]) -> tuple[list[int], list[Any], list[type]]:
    """Return how much each module's table holds, all names and values in order, and their classes."""
    tables = list(map(table, modules))
    lengths = list(map(len, tables))
    # most tables are empty
    contents = list(chain.from_iterable(chain.from_iterable(map(_ITEMS, compress(tables, lengths)))))
    return lengths, contents, list(map(type, contents))


class Held:
    """What a model holds: to be read, not to be changed.

    Attributes
    ----------
    modules
        Of the model.
    parameters, buffers
        By name, each once.
    """

    def __init__(
        self,
        modules: Sequence[nn.Module],
        parameters: Mapping[str, nn.Parameter],
        buffers: Mapping[str, Tensor],
    ) -> None:
        self.modules, self.parameters, self.buffers = modules, parameters, buffers
        self._tables = list(map(_contents, _TABLES, repeat(modules)))
        self.with_loss: tuple[Held, Held] | None = None  # a loss, and what both hold
        self._made: dict[Any, Any] = {}

    @classmethod
    def collect(cls, root: nn.Module) -> "Held":
        """Return what a module holds.

        Raises
        ------
        ValueError
            If it belongs to an engine that is refused.
        """
        check_kinds_served([type(root)])  # which may be no module
        modules = [module for _, module in root.named_modules()]
        check_kinds_served(map(type, modules))
        parameters = dict(root.named_parameters())
        # they are empty between passes
        if any(hasattr(parameter, "ds_id") for parameter in parameters.values()):
            msg = f"model: expected whole parameters, got those of DeepSpeed's ZeRO stage 3; {_BEFOREHAND}"
            raise ValueError(msg)
        return cls(modules, parameters, dict(root.named_buffers()))

    def memoise(self, make: Callable[["Held"], Made]) -> Made:
        """Memoise a derived value; treat it as read-only."""
        if make not in self._made:
            self._made[make] = make(self)
        found: Made = self._made[make]
        return found

    @cached_property
    def dense(self) -> Sequence[nn.Parameter]:
        """Parameters that can be compared and filled: sharded ones belong to others."""
        every = [one for module in self.modules for one in module._parameters.values()]
        return [one for one in every if type(one) is nn.Parameter and one.layout == torch.strided]

    @cached_property
    def counted(self) -> Sequence[nn.Parameter]:
        """Those whose writes autograd counts: not of those that were made in inference mode."""
        return [one for one in self.dense if not one.is_inference()]

    def is_still_so(self) -> bool:
        """Say whether the modules' tables hold the same objects by the same names: a walk finds the same.

        A parameter that was not there yet becomes one of another class.
        """
        for table, (lengths, contents, classes) in zip(_TABLES, self._tables, strict=True):
            now = _contents(table, self.modules)
            same = now[0] == lengths and now[2] == classes
            if not (same and all(map(is_, now[1], contents))):
                return False
        return True


class Step:
    """While it is entered each model is looked at once, or again after `forget`.

    Attributes
    ----------
    last
        What each model held when it was looked at last: it is the same object as long as that is the same,
        so that what was made of it can be kept with it.
    """

    current: ClassVar["Step | None"] = None

    def __init__(self) -> None:
        self.last: dict[int, Held] = {}
        self.seen: set[int] = set()

    def __enter__(self) -> None:
        """Take nothing over from the last step."""
        self.seen.clear()
        Step.current = self

    def __exit__(self, *_: object) -> None:
        """Look at everything anew from here on."""
        Step.current = None


def forget(*, whole: bool = False) -> None:
    """Invalidate the cached module walks: a model may have changed, within a step too.

    What was found is kept, to be taken up where it is still the same; not if it was `whole` parameters, which
    take the memory of all processes' parts.
    """
    if Step.current is not None:
        Step.current.seen.clear()
        if whole:
            Step.current.last.clear()


def collect_held(model: nn.Module, loss: Any = None) -> Held:
    """Return what a model holds; and a loss if it is a module, whose parameters are called `loss.NAME`."""
    found = _collect(model)
    if not isinstance(loss, nn.Module):
        return found
    other = _collect(loss)
    # made anew for another loss alone: what is memoised is kept with it
    if found.with_loss is None or found.with_loss[0] is not other:
        known = set(map(id, found.parameters.values()))
        own = {f"loss.{name}": one for name, one in other.parameters.items() if id(one) not in known}
        # a parameter that the loss shares with the model keeps the model's name
        both = Held([*found.modules, *other.modules], {**found.parameters, **own}, found.buffers)
        found.with_loss = other, both
    return found.with_loss[1]


def _collect(root: nn.Module) -> Held:
    step, key = Step.current, id(root)
    # outside a step the model may have changed since it was last looked at
    if step is None:
        return Held.collect(root)
    if key not in step.seen:
        before = step.last.get(key)
        # a class with a walk of its own may find what the tables do not show
        plain = all(getattr(type(root), name) is getattr(nn.Module, name) for name in _WALKS)
        if before is None or not plain or not before.is_still_so():
            step.last[key] = Held.collect(root)
        step.seen.add(key)
    return step.last[key]


def modules_of(model: nn.Module, loss: Any = None) -> Sequence[nn.Module]:
    return collect_held(model, loss).modules


def list_parameters(model: nn.Module, loss: Any = None) -> Mapping[str, nn.Parameter]:
    """Return the parameters by name, each once; those of a loss that is a module too: `loss.NAME`."""
    return collect_held(model, loss).parameters


def set_training(modules: Iterable[nn.Module], *, mode: bool) -> None:
    """Give modules a flag of training; `nn.Module.__setattr__` takes ten times as long."""
    for module in modules:
        own = module.__dict__
        # a class with a flag or a `__setattr__` of its own is asked
        if "training" in own and type(module).__setattr__ is nn.Module.__setattr__:
            own["training"] = mode
        else:
            module.training = mode


def restore_training(modules: Iterable[nn.Module], flags: Iterable[bool]) -> None:
    modules, flags = list(modules), list(flags)
    now = [module.training for module in modules]
    if now != flags:
        set_training(compress(modules, flags), mode=True)
        set_training(compress(modules, map(not_, flags)), mode=False)
