"""Python's and numpy's global random streams, read as they lie in memory.

Their own functions copy a state number by number, which takes as long as some layers. Where it lies is found
out once, on a stream made for that; where that fails, their functions are asked.
"""

import ctypes
import functools
import random
import struct
import sys
from collections.abc import Hashable
from typing import Any, cast

_PYTHON, _NUMPY = struct.Struct("i624I"), struct.Struct("624Ii")
"""A Mersenne twister's numbers, and the place of the next one."""
_WAITING = struct.Struct("i4xd")
"""Numpy draws normal numbers two at a time: whether one waits, and which."""
_IN_MEMORY = sys.implementation.name == "cpython"
"""Whether an object's identity is where it lies."""


class Asked:
    """A state as numpy's own function tells it, with an equality."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def __eq__(self, other: object) -> bool:
        """Whether all numbers are the same."""
        return isinstance(other, Asked) and repr(self.state) == repr(other.state)

    __hash__ = None  # type: ignore[assignment]  # it holds arrays


def python_state() -> Any:
    """Return the state of Python's stream, to be compared and given back."""
    stream: Any = getattr(random.getstate, "__self__", None)
    place = _place_in_python() if _IN_MEMORY and type(stream) is random.Random else None
    if place is None:
        return random.getstate()
    return ctypes.string_at(id(stream) + place, _PYTHON.size), stream.gauss_next


def set_python_state(state: Any) -> None:
    """Give Python's stream a state that `python_state` returned."""
    if python_state() == state:  # to write it takes longer
        return
    if isinstance(state[0], bytes):
        place, *numbers = _PYTHON.unpack(state[0])
        state = random.Random.VERSION, (*numbers, place), state[1]
    random.setstate(state)


def numpy_state(numpy: Any) -> Any:
    """Return the state of numpy's stream, to be compared and given back; None where there is none."""
    if not hasattr(numpy, "random"):
        return None
    stream: Any = getattr(numpy.random.get_state, "__self__", None)
    twister, kind = getattr(stream, "_bit_generator", None), cast("Hashable", type(stream))
    known = _IN_MEMORY and type(twister).__name__ == "MT19937"
    place = _place_in_numpy(kind) if known else None
    if twister is None or place is None:
        return Asked(numpy.random.get_state(legacy=False))
    numbers = ctypes.string_at(twister.ctypes.state_address, _NUMPY.size)
    return numbers, ctypes.string_at(id(stream) + place, _WAITING.size)


def set_numpy_state(numpy: Any, state: Any) -> None:
    """Give numpy's stream a state that `numpy_state` returned."""
    if state is None or numpy_state(numpy) == state:
        return
    if isinstance(state, Asked):
        numpy.random.set_state(state.state)
        return
    *numbers, place = _NUMPY.unpack(state[0])
    numpy.random.set_state(("MT19937", numbers, place, *_WAITING.unpack(state[1])))


@functools.cache
def _place_in_python() -> int | None:
    """Return where in a stream of Python's its numbers lie; None where they are not found."""
    streams = [random.Random(seed) for seed in (1, 2)]
    places = set()
    for stream in streams:
        *numbers, place = stream.getstate()[1]
        places.add(_memory(stream).find(_PYTHON.pack(place, *numbers)))
    return _only(places)


@functools.cache
def _place_in_numpy(kind: Any) -> int | None:
    """Return where in a stream of numpy's it lies which normal number waits; None where it is not found."""
    places = set()
    for seed in (1, 2):
        stream = kind(seed)
        stream.standard_normal()  # another one waits
        waiting = _WAITING.pack(1, stream.get_state()[4])
        places.add(place := _memory(stream).find(waiting))
        stream.standard_normal()  # that one
        if _memory(stream)[place:][: _WAITING.size] != _WAITING.pack(0, 0.0):
            return None
    return _only(places)


def _memory(stream: Any) -> bytes:
    return ctypes.string_at(id(stream), type(stream).__basicsize__)


def _only(places: set[int]) -> int | None:
    """Return the place that all agree on, if they found one."""
    place, *others = places
    return None if others or place < 0 else place
