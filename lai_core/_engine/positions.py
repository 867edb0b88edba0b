"""Arrays with and without an axis of positions."""

from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, Namespace, cast


def with_positions(xp: Namespace, array: Array) -> Array:
    """Return `(n, d)` as `(n, 1, d)`; `(n, t, d)` as it is."""
    return array if array.ndim == 3 else xp.reshape(array, (array.shape[0], 1, array.shape[1]))


def sum_positions(work: Workspace, array: Array) -> Array:
    """Return `(n, t, d)` summed over positions, `(n, d)` as it is; in the accumulation type."""
    if array.ndim == 2:
        return cast(work.xp, array, work.dtype)
    return work.xp.sum(array, axis=1, dtype=work.dtype)


def number_of_positions(array: Array) -> int:
    """Return t of `(n, t, d)`, 1 of `(n, d)`."""
    return 1 if array.ndim == 2 else int(array.shape[1])
