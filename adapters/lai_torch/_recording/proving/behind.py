"""What stands behind the last layer: gains and offsets, or one more layer in disguise.

A gain is no layer: each of its entries multiplies entries of what it meets. It becomes one where such
products are added up, by whatever functions: `y = sum_i w_i h_i`. Nothing is said of how it is written, so
every result y behind the layers is held to what only such a sum does, by running the model on moved
values of w and of the h that it meets:

1. y is affine in w, or in h (a loss of scaled outputs, such as a softmax, is in neither);
2. it depends on several entries of h;
3. and how it depends on h is told by several entries of w (a mean of positions that share a gain is not).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import resolve_name
from torch.utils.weak import WeakTensorKeyDictionary

from lai_torch._model.batch import mapped, tensors
from lai_torch._recording.rules.elementwise import ADDING
from lai_torch._recording.rules.layers import LAYERS, READ_BY_LAI
from lai_torch._recording.rules.unread import HIDDEN, products
from lai_torch._recording.watching.probes import Probe, leaves, nearest
from lai_torch._recording.watching.recorder import Recorder

Run = Callable[[Recorder], None]
"""Run the model on its batch, watched by a recorder."""
ROUNDS = 4
"""Entries carry a code of so many bits and are cut in two by each: of up to 16 every two are once apart."""


def parameters_behind(recorder: Recorder, values: Tensor) -> list[str]:
    """Return the parameters that the losses reach without passing a layer that LAI reads."""
    near, own = set(nearest(values)), {id(leaf) for leaf in leaves(values, past_probes=False)}
    found = {
        name: None
        for use in recorder.uses
        if use.kind not in READ_BY_LAI and (use.probe in near or id(use.activations) in own)
        for name in use.weight.names
    }
    return [*found, *(name for name, one in recorder.parameters.items() if id(one) in own)]


def layers_in_disguise(
    recorder: Recorder, run: Run, batch: Iterable[Tensor], names: Iterable[str]
) -> dict[str, str]:
    """Return which of the parameters behind the last layer make one more, and by which functions."""
    names = [name for name in names if recorder.parameters[name].numel() > 1]
    if not names:
        return {}
    batch, plain = list(batch), None
    # A vector that is only added multiplies nothing: of such ones alone the model need not run again.
    if recorder.every_layer or not all(_harmless(recorder, name) for name in names):
        plain = _Replay(recorder, batch, names)
        try:
            run(plain)
        except _UnlikeError:
            return dict.fromkeys((name for name in names if not _harmless(recorder, name)), HIDDEN)
    found, seen = {}, plain or recorder
    for name in names:
        if functions := products(seen, name):
            found[name] = functions[0]
        elif name in seen.wrapped or name not in seen.stuck:
            found[name] = HIDDEN
        elif plain is not None and not _harmless(seen, name):
            try:
                function = _summed(plain, run, name)
            except _UnlikeError:
                function = HIDDEN
            if function is not None:
                found[name] = function
    return found


def _harmless(recorder: Recorder, name: str) -> bool:
    """Whether a parameter is a vector that is no more than added."""
    used = recorder.stuck.get(name, {})
    return bool(used) and recorder.parameters[name].ndim == 1 and all(function in ADDING for function in used)


class _UnlikeError(Exception):
    """A model does not call the same functions when a parameter behind its last layer moves."""


@dataclass(frozen=True)
class _Move:
    """By how much something is moved: a factor, and of which half of the entries, if not of all."""

    by: float = 0.0
    round: int | None = None
    second: bool = False

    def of(self, value: Tensor, number: int) -> Tensor:
        """Return by how much to move a tensor, the `number`-th that is moved."""
        generator = torch.Generator().manual_seed(number)
        noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        if self.round is not None:
            # Codes are consecutive numbers in random order: those of two entries differ in one of the low
            # `ROUNDS` bits, so that some round moves one of the two and not the other.
            code = number + torch.rand(value.shape, generator=generator).flatten().argsort().argsort()
            noise = noise * ((code >> self.round & 1) == int(self.second)).reshape(value.shape)
        # In units of the tensor's own size; of a tensor of zeros, in ones.
        size = 1.0 + float(value.detach().abs().nan_to_num(0.0, 0.0, 0.0).double().mean())
        return (self.by * size * noise).to(value)


class _Replay(Recorder):
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
        self, like: Recorder, batch: Iterable[Tensor], names: Sequence[str], move: _Move | None = None
    ) -> None:
        super().__init__(
            like.parameters,
            like.buffers,
            like.samples,
            batch,
            LAYERS,
            every_layer=False,
            skipped=frozenset() if like.every_layer else like.skipped,
            trainable=like.trainable,
        )
        self.names, self.move, self.batch = names, move or _Move(), list(batch)
        self.first = like.outputs if isinstance(like, _Replay) else None
        self.outputs: list[Tensor] = []
        self.meetings = 0
        self.results: list[tuple[Any, Tensor]] = []
        self.compared: str | None = None
        self.rows: tuple[int, set[int]] = (0, set())
        self._touched: Any = WeakTensorKeyDictionary()
        self._moved = {id(like.parameters[name]) for name in names}

    def _check_differentiable(self) -> None:
        """Give up: a gradient inside the forward pass does not go through outputs that are put in."""
        raise _UnlikeError

    def probe(self, output: Tensor) -> tuple[Tensor, Probe]:
        """Put a layer's first output in the place of this one."""
        place = len(self.outputs)
        if self.first is not None:
            if place >= len(self.first) or self.first[place].shape != output.shape:
                raise _UnlikeError
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
            self._compare(func, involved, met)
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


def _summed(plain: _Replay, run: Run, name: str) -> str | None:
    """Return the function that first adds up products with entries of the parameter, if one does."""
    parameter, start = plain.parameters[name], plain.parameters[name].detach().clone()
    known: dict[tuple[_Move, _Move], list[tuple[Any, Tensor]]] = {}
    compared: list[str | None] = []

    def results(weight: _Move, met: _Move) -> list[tuple[Any, Tensor]]:
        if (weight, met) not in known:
            with _at(parameter, start + weight.of(start, 0)):
                replay = _Replay(plain, plain.batch, [name], met)
                run(replay)
            known[weight, met] = replay.results
            compared.append(replay.compared)
            if replay.rows[0] == len(replay.outputs) and len(replay.rows[1]) > 1:
                compared[-1] = compared[-1] or "its rows, one by one"
            first = known[next(iter(known))]
            shapes = [[(func, one.shape) for func, one in each] for each in (first, replay.results)]
            if shapes[0] != shapes[1]:
                raise _UnlikeError
        return known[weight, met]

    still = _Move()
    plainly = results(still, still)
    if compared[0] is not None:
        return compared[0]
    for place, (function, value) in enumerate(plainly):

        def at(weight: _Move, met: _Move, place: int = place) -> Tensor:
            return results(weight, met)[place][1]

        if value.numel() and _is_sum(at, value):
            return resolve_name(function) or str(function)
    return None


def _is_sum(at: Callable[[_Move, _Move], Tensor], value: Tensor) -> bool:
    still, moved, back, twice = _Move(), _Move(1.0), _Move(-1.0), _Move(2.0)
    halves = [(_Move(1.0, cut), _Move(1.0, cut, second=True)) for cut in range(ROUNDS)]
    # Half of the type's digits: what rounding does is far below, what a moved entry does is far above.
    within = torch.finfo(value.dtype).eps ** 0.5

    def differ(left: Tensor, right: Tensor, *also: Tensor) -> Tensor:
        size = torch.stack([one.abs() for one in (left, right, *also)]).amax(0)
        return ~((left - right).abs() <= within * size)

    def affine(move: Callable[[_Move], Tensor]) -> Tensor:
        # f(1) + f(-1) = 2 f(0) where f has no even part, and f(2) - f(0) = 2 (f(1) - f(0)) where it has no
        # odd part but the linear one.
        here, there = move(still), move(moved)
        even = differ(there + move(back), 2 * here, there)
        return ~(even | differ(move(twice) - here, 2 * (there - here), move(twice), here))

    def slope(weight: _Move) -> tuple[Tensor, Tensor]:
        # y(w, h + dh) and y(w, h): their difference is how y depends on h.
        return at(weight, moved), at(weight, still)

    # 1. affine in w, or in h
    linear = affine(lambda weight: at(weight, still)) | affine(lambda met: at(still, met))
    if not bool(linear.any()):
        return False
    several_met = torch.zeros_like(linear)
    several_own = torch.zeros_like(linear)
    here, there = slope(still)
    for one, other in halves:
        # 2. each half of h, moved alone, changes y; 3. each half of w, moved alone, changes the slope in h
        base = at(moved, still)
        several_met |= differ(at(moved, one), base) & differ(at(moved, other), base)
        sides = [differ(a - b, here - there, a, b, here, there) for a, b in map(slope, (one, other))]
        several_own |= sides[0] & sides[1]
    return float((linear & several_met & several_own).double().mean()) > 0.1


@contextmanager
def _at(parameter: Tensor, values: Tensor) -> Iterator[None]:
    """Run the body with a parameter at other values, unseen by graphs that saved it."""
    start = parameter.detach().clone()
    try:
        parameter.data.copy_(values)
        yield
    finally:
        parameter.data.copy_(start)
