"""Rerun a model with its layers' recorded outputs, and perturb the operands of the parameters after them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import resolve_name
from torch.utils.weak import WeakTensorKeyDictionary

from lai_torch._model.batch import mapped, tensors
from lai_torch._model.signatures import written
from lai_torch._recording.rules.elementwise import ADDING
from lai_torch._recording.rules.layers import LAYERS
from lai_torch._recording.watching.probes import Probe
from lai_torch._recording.watching.recorder import Recorder

ROUNDS = 4
"""Number of random bisections: four separate every two of up to 16 entries."""


class UnlikeError(Exception):
    """A model does not call the same functions when a parameter behind its last layer moves."""


@dataclass(frozen=True)
class Move:
    """By how much something is moved: a factor, and of which half of the entries, if not of all."""

    by: float = 0.0
    round: int | None = None
    second: bool = False

    def of(self, value: Tensor, number: int) -> Tensor:
        """Return by how much to move a tensor, the `number`-th that is moved."""
        generator = torch.Generator().manual_seed(number)
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64, device="cpu")
        if self.round is not None:
            # Codes are consecutive numbers in random order: those of two entries differ in one of the low
            # `ROUNDS` bits, so that some round moves one of the two and not the other.
            code = (
                number
                + torch.rand(value.shape, generator=generator, device="cpu").flatten().argsort().argsort()
            )
            noise = noise * ((code >> self.round & 1) == int(self.second)).reshape(value.shape)
        # In units of the tensor's own size; of a tensor of zeros, in ones.
        size = 1.0 + float(value.detach().abs().nan_to_num(0.0, 0.0, 0.0).double().mean())
        return (self.by * size * noise).to(value)


class Replay(Recorder):
    """Watches a model whose layers put out what they did the first time; keeps what depends on parameters.

    Parameters
    ----------
    like
        The recorder of the model, or a first replay, whose layers' outputs are put in.
    batch
        The tensors that depend on the sample.
    names
        The parameters.
    move
        By how much that is moved which meets one of them.
    """

    def __init__(
        self, like: Recorder, batch: Iterable[Tensor], names: Sequence[str], move: Move | None = None
    ) -> None:
        super().__init__(
            like.held,
            like.samples,
            batch,
            LAYERS,
            every_layer=False,
            skipped=frozenset() if like.every_layer else like.skipped,
            trainable=like.trainable,
        )
        self.names, self.move, self.batch = names, move or Move(), list(batch)
        self.first = like.outputs if isinstance(like, Replay) else None
        self.outputs: list[Tensor] = []
        self.meetings = 0
        self.results: list[tuple[Any, Tensor]] = []
        self.compared: str | None = None
        self.rows: tuple[int, set[int]] = (0, set())
        self._touched: Any = WeakTensorKeyDictionary()
        self._moved = {id(like.parameters[name]) for name in names}

    def _check_differentiable(self) -> None:
        """Give up: a gradient inside the forward pass does not go through outputs that are put in."""
        raise UnlikeError

    def probe(self, output: Tensor) -> tuple[Tensor, Probe]:
        """Put a layer's first output in the place of this one."""
        place = len(self.outputs)
        if self.first is not None:
            if place >= len(self.first) or self.first[place].shape != output.shape:
                raise UnlikeError
            output = self.first[place].clone()
        self.outputs.append(output.detach().clone())
        return super().probe(output)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function, on moved values where these meet a parameter."""
        kwargs = kwargs or {}
        involved = tensors((args, kwargs))
        met = [one for one in involved if self._meets(one)]
        if len(met) < len(involved) and any(map(self._depends, involved)):
            self._compare(written(func), involved, met)
            moved = {id(one): self._moving(one) for one in met}
            if moved and _in_place(func) and id(args[0]) in moved:
                args[0].detach().copy_(moved.pop(id(args[0])))
            args, kwargs = (mapped(part, lambda one: moved.get(id(one), one)) for part in (args, kwargs))
        return super().__torch_function__(func, types, args, kwargs)

    def _depends(self, value: Tensor) -> bool:
        """Whether a tensor depends on the parameters, as far as one can see."""
        if value in self._touched or id(value) in self._moved:
            return True
        if value._is_view() and value._base in self._touched:
            return True
        known = value in self._batched or id(value) in self._sources or id(value) in self.owners
        return value.grad_fn is not None and not known

    def _meets(self, value: Tensor) -> bool:
        """Whether it is of the batch, and does not depend on the parameters."""
        return value.is_floating_point() and self.is_batched(value) and not self._depends(value)

    def _moving(self, value: Tensor) -> Tensor:
        self.meetings += 1
        return self.mark(value + self.move.of(value, self.meetings)) if self.move.by else value

    def _compare(self, func: Any, involved: Sequence[Tensor], met: Sequence[Tensor]) -> None:
        """Note rows of a parameter beside one and the same row of the batch: prototypes."""
        if func not in ADDING or len(involved) != 2 or len(met) != 1:
            return
        (own,) = (one for one in involved if one is not met[0])
        source = self.source(own)
        if source is None:
            return
        shape = torch.broadcast_shapes(own.shape, met[0].shape)
        sides = [one.detach().expand(shape) for one in (met[0], own)]
        # The batch's side repeats along the axis of the rows, the parameter's does not, and both vary along
        # that of the entries: each sample beside every row.
        (flat, varies) = ([not _repeats(one, axis) for axis in range(len(shape))] for one in sides)
        rows = any(b and not a for a, b in zip(flat, varies, strict=True))
        entries = any(b and a for a, b in zip(flat, varies, strict=True))
        if rows and entries:
            self.compared = resolve_name(func) or str(func)
        elif 0 < own.ndim < self.parameters[source.name].ndim:
            # one row of a matrix is an offset, several of them behind the last layer are prototypes
            before, seen = self.rows
            seen = (
                seen | {int(own.storage_offset())}
                if before == len(self.outputs)
                else {int(own.storage_offset())}
            )
            self.rows = len(self.outputs), seen

    def follow(self, func: Any, involved: list[Tensor], results: list[Tensor], *, understood: bool) -> bool:
        """Note as well what depends on outputs of the last layer."""
        depends = any(map(self._depends, involved))
        batched = super().follow(func, involved, results, understood=understood)
        if understood or not depends:
            return batched
        for result in results:
            if result.is_floating_point() and not is_functorch_wrapped_tensor(result):
                self._touched[result] = True
                if result._is_view() and _in_place(func):
                    self._touched[result._base] = True
                if any(map(self.is_batched, involved)):
                    self.results.append((func, result.detach().clone()))
        return batched


def _in_place(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def _repeats(value: Tensor, axis: int) -> bool:
    """Whether a tensor is the same all along an axis."""
    return bool((value == value.narrow(axis, 0, 1)).all())
