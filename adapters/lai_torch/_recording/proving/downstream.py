"""Parameters used after the last layer: gains and offsets, or an unrecognised matrix product.

A gain is no layer: each of its entries multiplies entries of what it meets. It becomes one where such
products are added up, by whatever functions: `y = sum_i w_i h_i`. Nothing is said of how it is written, so
every result y behind the layers is held to what only such a sum does, by running the model on moved
values of w and of the h that it meets:

1. y is affine in w, or in h (a loss of scaled outputs, such as a softmax, is in neither);
2. it depends on several entries of h;
3. and how it depends on h is told by several entries of w (a mean of positions that share a gain is not).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name

from lai_torch._recording.proving.replay import ROUNDS, Move, Replay, UnlikeError
from lai_torch._recording.rules.elementwise import ADDING
from lai_torch._recording.rules.layers import READ_BY_LAI
from lai_torch._recording.rules.unread import HIDDEN, products
from lai_torch._recording.watching.probes import Ends
from lai_torch._recording.watching.recorder import Recorder

Run = Callable[[Recorder], None]
"""Run the model on its batch, watched by a recorder."""


def parameters_downstream(recorder: Recorder, ends: Ends) -> list[str]:
    """Return the parameters that the losses reach without passing a layer that LAI reads."""
    near, own = set(ends.probes), ends.leaves
    found = {
        name: None
        for use in recorder.uses
        if use.kind not in READ_BY_LAI and (use.probe in near or id(use.activations) in own)
        for name in use.weight.names
    }
    return [*found, *(name for name, one in recorder.parameters.items() if id(one) in own)]


def has_others(recorder: Recorder, ends: Ends) -> bool:
    """Whether the losses reach a parameter behind the last layer that neither model nor loss registers."""
    own = set(map(id, recorder.parameters.values()))
    return any(isinstance(leaf, nn.Parameter) and key not in own for key, leaf in ends.leaves.items())


def unrecognised_products(
    recorder: Recorder, run: Run, batch: Iterable[Tensor], names: Iterable[str]
) -> dict[str, str]:
    """Return which of the parameters behind the last layer make one more, and by which functions."""
    names = [name for name in names if recorder.parameters[name].numel() > 1]
    if not names:
        return {}
    batch, plain = list(batch), None
    # A vector that is only added multiplies nothing: of such ones alone the model need not run again.
    if recorder.every_layer or not all(_harmless(recorder, name) for name in names):
        plain = Replay(recorder, batch, names)
        try:
            run(plain)
        except UnlikeError:
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
            except UnlikeError:
                function = HIDDEN
            if function is not None:
                found[name] = function
    return found


def _harmless(recorder: Recorder, name: str) -> bool:
    """Whether a parameter is a vector that is no more than added."""
    used = recorder.stuck.get(name, {})
    return bool(used) and recorder.parameters[name].ndim == 1 and all(function in ADDING for function in used)


def _summed(plain: Replay, run: Run, name: str) -> str | None:
    """Return the function that first adds up products with entries of the parameter, if one does."""
    parameter, start = plain.parameters[name], plain.parameters[name].detach().clone()
    known: dict[tuple[Move, Move], list[tuple[Any, Tensor]]] = {}
    compared: list[str | None] = []

    def results(weight: Move, met: Move) -> list[tuple[Any, Tensor]]:
        if (weight, met) not in known:
            with _at(parameter, start + weight.of(start, 0)):
                replay = Replay(plain, plain.batch, [name], met)
                run(replay)
            known[weight, met] = replay.results
            compared.append(replay.compared)
            if replay.rows[0] == len(replay.outputs) and len(replay.rows[1]) > 1:
                compared[-1] = compared[-1] or "its rows, one by one"
            first = known[next(iter(known))]
            shapes = [[(func, one.shape) for func, one in each] for each in (first, replay.results)]
            if shapes[0] != shapes[1]:
                raise UnlikeError
        return known[weight, met]

    still = Move()
    plainly = results(still, still)
    if compared[0] is not None:
        return compared[0]
    for place, (function, value) in enumerate(plainly):

        def at(weight: Move, met: Move, place: int = place) -> Tensor:
            return results(weight, met)[place][1]

        if value.numel() and _is_sum(at, value):
            return resolve_name(function) or str(function)
    return None


def _is_sum(at: Callable[[Move, Move], Tensor], value: Tensor) -> bool:
    still, moved, back, twice = Move(), Move(1.0), Move(-1.0), Move(2.0)
    halves = [(Move(1.0, cut), Move(1.0, cut, second=True)) for cut in range(ROUNDS)]
    # Half of the type's digits: what rounding does is far below, what a moved entry does is far above.
    within = torch.finfo(value.dtype).eps ** 0.5

    def differ(left: Tensor, right: Tensor, *also: Tensor) -> Tensor:
        size = torch.stack([one.abs() for one in (left, right, *also)]).amax(0)
        return ~((left - right).abs() <= within * size)

    def affine(move: Callable[[Move], Tensor]) -> Tensor:
        # f(1) + f(-1) = 2 f(0) where f has no even part, and f(2) - f(0) = 2 (f(1) - f(0)) where it has no
        # odd part but the linear one.
        here, there = move(still), move(moved)
        even = differ(there + move(back), 2 * here, there)
        return ~(even | differ(move(twice) - here, 2 * (there - here), move(twice), here))

    def slope(weight: Move) -> tuple[Tensor, Tensor]:
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
