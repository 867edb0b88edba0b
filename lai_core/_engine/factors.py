"""How the factors of a matrix's gradients are laid out before they are multiplied.

A factor is `(n, t, d)`: an array, or anything that yields one when it is indexed `[samples, ...]`
(patches of an input, cut out when they are read).
"""

from typing import Any

from jaxtyping import Float

from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, Namespace, cast, matmul


def lay_by_group(factor: Any, samples: slice, groups: int, work: Workspace) -> Float[Array, "groups nt d"]:
    """Lay `(n, t, d)` out as `(groups, n t, d / groups)`: all positions against all."""
    xp = work.xp
    array = cast(xp, factor[samples, ...], work.dtype)
    n, t, d = array.shape
    if groups == 1:
        return xp.reshape(array, (1, n * t, d))
    return xp.permute_dims(xp.reshape(array, (n * t, groups, d // groups)), (1, 0, 2))


def lay_by_sample(factor: Any, samples: slice, groups: int, work: Workspace) -> Float[Array, "n groups t d"]:
    """Lay `(n, t, d)` out as `(n, groups, t, d / groups)`: one sample's positions against its own."""
    xp = work.xp
    array = cast(xp, factor[samples, ...], work.dtype)
    n, t, d = array.shape
    return xp.permute_dims(xp.reshape(array, (n, t, groups, d // groups)), (0, 2, 1, 3))


def build_rows(
    rows: Float[Array, "n groups t d"], columns: Float[Array, "n groups t e"], part: slice, work: Workspace
) -> Float[Array, "n entries"]:
    """Build the rows `part` (of every group) of each sample's gradient `sum_t rows_t columns_t^T`."""
    xp = work.xp
    product = matmul(xp, xp.matrix_transpose(rows[..., part]), columns)
    return xp.reshape(product, (product.shape[0], -1))


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
