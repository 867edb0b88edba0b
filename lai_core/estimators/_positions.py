r"""What LAI means on layers that are used at many positions of one sample.

=========  ==============================================================  ======================
positions  kernel                                                          fits
=========  ==============================================================  ======================
tokens     :math:`\sum_{tt'} \langle g_{zt}, g_{jt'}\rangle                every layer has the
           \sum_l \langle a^l_{zt}, a^l_{jt'}\rangle`                      last layer's positions
mean       means over positions of a and of g, then as without positions   always
flatten    :math:`\sum_l \langle A^l_z, A^l_j\rangle_F                     validation and training
           \langle G_z, G_j\rangle_F`                                      have equal positions
=========  ==============================================================  ======================

A position that is masked (`mask_positions`) counts for nothing: it is in no pair and in no mean, and the
number of positions that a mean divides by is that of the others.
"""

from collections.abc import Sequence

from lai_core._engine.checks import listed
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array, Namespace, cast
from lai_core._engine.positions import number_of_positions, sum_positions, with_positions
from lai_core.records.base import Trace, where

POSITIONS = ("tokens", "mean", "flatten")


def arranged(work: Workspace, array: Array, positions: str, valid: Array | None) -> Array:
    """Return `array` as `positions` sees it, `(n, t, d)`: where `valid` is False, as if it were not there."""
    xp = work.xp
    masked = valid is not None and array.ndim == 3
    if masked:
        array = xp.where(xp.expand_dims(valid, axis=2), array, xp.zeros_like(array[:1, :1, :1]))
    if positions == "tokens":
        return with_positions(xp, array)
    if positions == "flatten":
        return xp.reshape(array, (array.shape[0], 1, -1))
    if not masked and number_of_positions(array) == 1:  # a mean of one
        return with_positions(xp, cast(xp, array, work.dtype))
    summed = sum_positions(work, array)
    if not masked:
        return with_positions(xp, summed * (1.0 / number_of_positions(array)))
    count = xp.sum(xp.astype(valid, work.dtype), axis=1, keepdims=True)
    return with_positions(xp, summed / xp.where(count > 0, count, xp.ones_like(count)))


def bias_column(work: Workspace, array: Array, positions: str, valid: Array | None) -> Array | None:
    """Return what a readout bias multiplies, `(n, 1, t)`; None where that is one 1 at every position."""
    if positions != "flatten" or array.ndim == 2:
        return None
    xp = work.xp
    ones = xp.ones_like(array[..., 0], dtype=work.dtype) if valid is None else xp.astype(valid, work.dtype)
    return xp.expand_dims(ones, axis=1)


def misfit(trace: Trace, xp: Namespace, positions: str, role: str = "trace") -> str | None:
    """Say why `positions` does not fit the layers of `trace`; None if it fits."""
    if positions != "tokens":
        return None
    expected = number_of_positions(trace.layers[-1].output_gradients)
    for index, layer in enumerate(trace.layers):
        read = layer.readout_input(xp)
        if read is not None and (count := number_of_positions(read)) != expected:
            return f"{where(role, index, layer)} has {count} positions, the last layer {expected}"
    return None


def check_positions_fit(
    trace: Trace, xp: Namespace, positions: str, role: str, among: Sequence[str] = POSITIONS
) -> None:
    """Raise if `positions` cannot be used on `trace`, naming those of `among` that can."""
    reason = misfit(trace, xp, positions, role)
    if reason is not None:
        fitting = [other for other in among if misfit(trace, xp, other) is None]
        msg = (
            f"positions: {positions!r} needs the last layer's positions in every layer, but "
            f"{reason}; these fit: {listed(fitting)}"
        )
        raise ValueError(msg)
