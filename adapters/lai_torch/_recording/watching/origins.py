"""Where tensors come from: which depend on the batch, which are computed from parameters alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils.weak import WeakTensorKeyDictionary

from lai_torch._model.signatures import BUFFER
from lai_torch._model.walk import Held
from lai_torch._recording.watching.uses import Source


@dataclass(frozen=True)
class Identities:
    """What a model holds, by the identity of the tensors."""

    owners: Mapping[int, str]  # names of buffers
    sources: Mapping[int, Source]  # parameters
    own: frozenset[int]  # those of the parameters
    names: Mapping[int, str]  # names of parameters; of buffers, that they are some


def identities(held: Held) -> Identities:
    """Return what is held by identity."""
    named = held.parameters.items()
    sources = {id(parameter): Source(parameter, (name,), whole=True) for name, parameter in named}
    owners = {id(buffer): name for name, buffer in held.buffers.items()}
    names = dict.fromkeys(owners, BUFFER) | {id(parameter): name for name, parameter in named}
    return Identities(owners, sources, frozenset(sources), names)


class Origins:
    """What is known of the tensors of a forward pass."""

    def __init__(
        self,
        held: Held,  # what to know
        batch: Iterable[Tensor],  # the tensors that depend on the sample: inputs and targets
        *,
        skipped: frozenset[str],  # names of parameters whose uses are left to the functions themselves
        # names of the parameters that train; None: those that require a gradient
        trainable: Iterable[str] | None,
        undifferentiated: bool,  # whether gradients are off, so that no graph tells what depends on the batch
    ) -> None:
        self.held, self.parameters, self.buffers = held, held.parameters, held.buffers
        self.skipped, self.undifferentiated = skipped, undifferentiated
        if trainable is None:
            trainable = (name for name, parameter in self.parameters.items() if parameter.requires_grad)
        self.trainable = frozenset(trainable)
        known = held.made(identities)
        self.owners = known.owners
        # by which functions parameters meet the batch other than in layers of LAI: axes, and whether it grows
        self.met: dict[str, set[tuple[Any, int, bool]]] = {}
        self.stuck: dict[str, dict[Any, tuple[int, bool]]] = {}  # those of them that no rule explains
        self.wrapped: set[str] = set()  # parameters used inside of vmap, where values cannot be seen
        self.nested: set[str] = set()  # parameters that meet nested tensors
        self.dtypes: set[torch.dtype] = set()
        self._times: Counter[tuple[str, Any]] = Counter()
        self._sources, self._own = dict(known.sources), known.own
        self._batched: Any = WeakTensorKeyDictionary()
        self._products: Any = WeakTensorKeyDictionary()
        for tensor in batch:
            self._batched[tensor] = True

    def source(self, value: Any) -> Source | None:
        """Return what is known of `value` if it is a parameter or computed from parameters alone."""
        found = self._sources.get(id(value)) if isinstance(value, Tensor) else None
        return None if found is None or self.skipped.intersection(found.names) else found

    def is_source(self, value: Any) -> bool:
        """Whether `value` is a parameter or computed from parameters alone, skipped ones included."""
        return isinstance(value, Tensor) and id(value) in self._sources

    def trains(self, source: Source) -> bool:
        """Whether a parameter in `source` is trainable."""
        return not self.trainable.isdisjoint(source.names)

    def is_batched(self, value: Any) -> bool:
        """Whether `value` depends on the batch, as far as one can see.

        What a function that cannot be watched returned has an origin nobody knows, and counts as
        dependent; where nothing is differentiated yet, so does all that is no parameter or buffer.
        """
        if not isinstance(value, Tensor):
            return False
        if value in self._batched:
            return True
        if id(value) in self._sources or id(value) in self.owners:
            return False
        return value.grad_fn is not None or (self.undifferentiated and value.is_floating_point())

    def mark(self, value: Tensor) -> Tensor:
        """Note that `value` depends on the batch."""
        self._batched[value] = True
        return value

    def rearranged(self, value: Tensor, other: Tensor) -> Tensor:
        """Note that `value` is another view of the tensor `other`, which is computed from parameters."""
        if value is not other:
            self._sources[id(value)] = Source(value, self._sources[id(other)].names, whole=False)
        return value

    def factors(self, product: Any) -> tuple[Tensor, Tensor] | None:
        """Return the parameter and the tensor of the batch whose product entry by entry `product` is.

        None is returned for any other tensor, and where one of the three was overwritten since.
        """
        found = self._products.get(product) if isinstance(product, Tensor) else None
        if found is None or found[2] != _versions(*found[:2], product):
            return None
        return found[:2]

    def explained(self, product: Tensor) -> None:
        """Note that what a product entry by entry does with its parameter is understood after all."""
        first, second, _, func = self._products[product]
        source = self._sources[id(first if id(first) in self._sources else second)]
        for name in source.names:
            self._times[name, func] -= 1
            used = self.stuck.get(name, {})
            if func in used and not self._times[name, func]:
                del used[func]
            if not used:
                self.stuck.pop(name, None)

    def follow(
        self, func: Any, involved: list[Tensor], results: list[Tensor], *, understood: bool, read: bool
    ) -> bool:
        """Note what the outputs of `func` depend on, and the parameters in it if no rule did.

        `read` says whether it is a layer of LAI. Returns whether the outputs depend on the batch.
        """
        if not results or func in _SHAPE_ONLY:
            return False
        batched = any(tensor in self._batched for tensor in involved) or any(map(self.is_batched, involved))
        sources = [found for tensor in involved if (found := self._sources.get(id(tensor))) is not None]
        names = tuple(dict.fromkeys(name for found in sources for name in found.names))
        if names and any(map(is_functorch_wrapped_tensor, involved)):
            self.wrapped.update(names)
        if names and any(tensor.is_nested for tensor in involved):
            self.nested.update(names)
        if func in _PRODUCTS and len(sources) == 1 < len(involved) == 2 and batched:
            self._products[results[0]] = (*involved, _versions(*involved, results[0]), func)
        for result in results:
            if result.is_floating_point() or result.is_complex():
                self.dtypes.add(result.dtype)
            if batched:
                self._batched[result] = True
            elif result in self._batched:
                continue
            elif names and self._carries(names, result):
                self._made_of(result, names)
                if result._is_view() and result._base is not None and any(one is result for one in involved):
                    self._made_of(result._base, names)  # written to in part
        if batched and sources and any(result.requires_grad for result in results):
            largest = max((tensor.numel() for tensor in involved if self.is_batched(tensor)), default=0)
            grows = any(result.numel() > largest for result in results)
            for found in sources:
                for name in found.names:
                    use = found.tensor.ndim, grows
                    if not read:
                        self.met.setdefault(name, set()).add((func, *use))
                    if not understood:
                        self._times[name, func] += 1
                        self.stuck.setdefault(name, {}).setdefault(func, use)
        return batched

    def _made_of(self, result: Tensor, names: tuple[str, ...]) -> None:
        """Note that a tensor is computed from these parameters, beside those that were written into it."""
        before = self._sources.get(id(result))
        if before is None or not (before.whole or set(names) <= set(before.names)):
            known = () if before is None else before.names
            self._sources[id(result)] = Source(result, tuple(dict.fromkeys((*known, *names))), whole=False)

    def _carries(self, names: tuple[str, ...], result: Tensor) -> bool:
        """Whether the values of the parameters `names` go into `result`."""
        frozen = self.trainable.isdisjoint(names)
        real = result.is_floating_point() or result.is_complex()
        return real and (result.requires_grad or frozen)


def is_unreadable(tensor: Tensor) -> bool:
    """Whether a layer's input has no rows to record: inside of vmap, and of samples of several lengths."""
    return is_functorch_wrapped_tensor(tensor) or tensor.is_nested


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    """Count the writes to tensors."""
    return tuple(0 if tensor.is_inference() else tensor._version for tensor in tensors)


_PRODUCTS = {torch.mul, torch.multiply, Tensor.mul, Tensor.multiply, Tensor.__rmul__}
"""Functions that multiply two tensors entry by entry."""

_SHAPE_ONLY = {
    torch.zeros_like,
    torch.ones_like,
    torch.empty_like,
    torch.full_like,
    torch.rand_like,
    torch.randn_like,
    torch.Tensor.new_zeros,
    torch.Tensor.new_ones,
    torch.Tensor.new_empty,
    torch.Tensor.new_full,
    torch.Tensor.new_tensor,
}
"""Functions whose result has only the shape, type or device of what they are given."""
