"""Signature of a call: the function, its operands' ranks and its options, without values and sizes.

What is proved of one batch is taken over to batches of other sizes, and to other orders, as experts are
called in. Coupled are samples by what adds up over their axis, and that is a call of a kind of its own:
`mean(0)` where there was `mean(1)`, a normalisation that is training.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, resolve_name

from lai_torch._model.batch import tensors

TENSOR = "a tensor"
"""Stands in a call for a tensor that the model does not hold."""
BUFFER = "a buffer"
"""Stands in a call for what the model holds and does not train."""
AXES = 8
"""A larger integer among the arguments is a size, not the number of an axis."""
SIZED = re.compile(
    "view|reshape|expand|repeat|tile|unflatten|split|chunk|tensor_split|narrow|select|pad|interpolate|topk|"
    "one_hot|__getitem__|__setitem__|new_(zeros|ones|empty|full)"
)
"""Functions whose integers are sizes or places along an axis, which move with a batch's shapes."""

Call = tuple[Any, ...]
"""A function, and its arguments: of what the model holds its name, of another tensor that it is one."""


class Signatures(TorchFunctionMode):
    """Gathers the kinds of calls that are made inside.

    Attributes
    ----------
    trained
        The parameters among their arguments that require a gradient, by identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trained: set[int] = set()
        self._calls: set[tuple[Call, tuple[int, ...]]] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, and note it if it makes tensors of tensors."""
        out = func(*args, **(kwargs or {}))
        given = tensors((args, kwargs))
        self.trained.update(id(one) for one in given if type(one) is nn.Parameter and one.requires_grad)
        if given and tensors(out):
            self._calls.add((noted(func, args, kwargs, {}), axes_of(args)))
        return out

    def found(self) -> frozenset[str]:
        """Return the kinds."""
        return kinds(self._calls, ())


def noted(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, names: Mapping[int, str]
) -> Call:
    """Return a call; `names` are those of what the model holds, by its identity."""
    call: list[Any] = [func]
    if kwargs:
        call.append(tuple(kwargs))
        args = (*args, *kwargs.values())
    for one in args:  # nearly all are of the first two kinds
        kind = type(one)
        if kind is Tensor or kind is nn.Parameter:
            call.append(names.get(id(one), TENSOR))
        else:
            call.append(one if kind in _PLAIN else _noted(one, names))
    return tuple(call)


def _noted(value: Any, names: Mapping[int, str]) -> Any:
    """Return what of an argument says which call it is: not the numbers in it, and not what made it."""
    if isinstance(value, Tensor):
        return names.get(id(value), TENSOR)
    if isinstance(value, _OPTIONS):
        return value
    if isinstance(value, float | complex):
        return bool(value)  # a factor of zero hides whatever it multiplies
    if isinstance(value, tuple | list):
        return tuple(_noted(one, names) for one in value)
    if isinstance(value, Mapping):
        return tuple((str(key), _noted(one, names)) for key, one in value.items())
    if isinstance(value, slice):
        return value.start is None, value.stop is None, value.step
    return type(value)


def axes_of(args: Iterable[Any]) -> tuple[int, ...]:
    """Return how many axes each tensor among the arguments has."""
    return tuple(one.ndim for one in args if isinstance(one, Tensor))


def kinds(calls: Iterable[tuple[Call, tuple[int, ...]]], names: Collection[str]) -> frozenset[str]:
    """Return the kinds of calls, whatever the order, the sizes and which parameters.

    Dropout is left out: it works entry by entry, training or not.
    """
    # A kind is a function, its tensors' numbers of axes, and its options without sizes and names.
    every = {pair for pair in calls if "dropout" not in getattr(pair[0][0], "__name__", "")}
    own = frozenset(names) - {BUFFER}
    found = {(call[0], axes, _general(call[1:], own, _sized(call[0]))) for call, axes in every}
    return frozenset(f"{_name(func)} {axes} {arguments}" for func, axes, arguments in found)


@functools.cache
def written(func: Any) -> Any:
    """Return the function that one writes in Python for an operator that an exported program calls."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return func
    name = func.overloadpacket.__name__
    owners = (owner for owner in (nn.functional, torch, Tensor) if hasattr(owner, name))
    return next((getattr(owner, name) for owner in owners), func)


_OPTIONS = (bool, int, str, type(None), torch.dtype, torch.device)
_PLAIN = frozenset(_OPTIONS)


@functools.cache
def _name(func: Any) -> str:
    return resolve_name(func) or str(getattr(func, "__qualname__", func))


def _sized(func: Any) -> bool:
    return SIZED.fullmatch(getattr(func, "__name__", "")) is not None


def _general(value: Any, names: Collection[str], sized: bool) -> Any:
    """Return arguments without sizes, and of parameters that they are some."""
    if isinstance(value, tuple):
        return tuple(_general(one, names, sized) for one in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return None if sized or abs(value) > AXES else value
    return "a parameter" if isinstance(value, str) and value in names else value
