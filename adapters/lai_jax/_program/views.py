"""Which entries of one parameter an array holds, when it is a rearrangement of them.

A parameter that is reshaped, transposed, sliced or repeated before it is used is still the same
parameter. Its rearrangement is followed on a stand-in of one byte an entry that is never read or
written: numpy's own rules for views then say what can be followed (and `shares_memory` whether two
views overlap).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Axes = tuple[tuple[int, int], ...]
"""Size and stride of each axis of a view, in entries of the parameter."""


@dataclass(frozen=True, eq=False)
class View:
    """Some entries of one leaf, arranged in an array."""

    leaf: int  # number of the leaf
    cells: np.ndarray[Any, Any]  # a numpy view of the leaf's stand-in: one byte an entry, never touched
    # stride of each enclosing loop whose iterations see different slices, outermost first; 0 where every
    # iteration sees the same
    loops: tuple[int, ...] = ()

    @staticmethod
    def of(leaf: int, shape: tuple[int, ...]) -> "View":
        return View(leaf, np.empty(shape, np.int8))

    def change(self, change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> "View | None":
        """Return the view after `change`; None if the result is no view."""
        try:
            cells = change(self.cells)
        except ValueError:
            return None
        return View(self.leaf, cells, self.loops)

    def enter_loop(self, sliced: bool) -> "View":
        """Return what the first iteration of a loop sees: a slice of the first axis, or the whole."""
        if not sliced:
            return View(self.leaf, self.cells, (*self.loops, 0))
        first = self.cells[0, ...]  # a view, of a vector too: `cells[0]` would be a number
        return View(self.leaf, first, (*self.loops, self.cells.strides[0]))

    def at(self, iteration: tuple[int, ...]) -> "View":
        """Return what one iteration of the enclosing loops sees."""
        # Iteration (k_1, k_2, ...) sees what the first one sees, moved by sum_i k_i stride_i entries.
        shift = sum(k * stride for k, stride in zip(iteration, self.loops, strict=True))
        if shift == 0:
            return View(self.leaf, self.cells)
        root = _root(self.cells)
        cells: np.ndarray[Any, Any] = np.ndarray(
            self.cells.shape, np.int8, root, self.offset + shift, self.cells.strides
        )
        return View(self.leaf, cells)

    @property
    def offset(self) -> int:
        root = _root(self.cells)
        return int(self.cells.__array_interface__["data"][0] - root.__array_interface__["data"][0])

    def axes(self, which: tuple[int, ...]) -> Axes:
        """Return sizes and strides of some axes, those that continue one another as one axis."""
        # Axes (n, s n') and (n', s) with strides s n' and s run through the same entries as one axis of
        # size n n' and stride s: by this two uses of one matrix are told equal, however they reshape it.
        merged: list[tuple[int, int]] = []
        for axis in which:
            size, stride = self.cells.shape[axis], self.cells.strides[axis]
            if size == 1:
                continue
            if merged and merged[-1][1] == size * stride:
                merged[-1] = (merged[-1][0] * size, stride)
            else:
                merged.append((size, stride))
        return tuple(merged)

    def repeats(self) -> bool:
        """Whether an entry of the leaf appears more than once along an axis."""
        pairs = zip(self.cells.shape, self.cells.strides, strict=True)
        return any(size > 1 and stride == 0 for size, stride in pairs)

    def overlaps(self, other: "View") -> bool:
        return self.leaf == other.leaf and bool(np.shares_memory(self.cells, other.cells))


def match_views(left: View | None, right: View | None) -> bool:
    """Whether two views hold the same entries in the same arrangement."""
    if left is None or right is None:
        return left is right
    one, other = (
        (view.leaf, view.offset, view.cells.shape, view.cells.strides, view.loops) for view in (left, right)
    )
    return one == other


def _root(cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    while isinstance(cells.base, np.ndarray):
        cells = cells.base
    return cells
