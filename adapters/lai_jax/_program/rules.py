"""Where the samples are in the output of each primitive, given where they are in its inputs.

A rule returns the rows of the (first) output, or raises if the operation mixes samples. Inputs
without rows are the same for every sample.
"""

from collections.abc import Callable, Sequence
from typing import Any

from lai_jax._program.errors import couples, unknown
from lai_jax._program.gathers import gather, scatter
from lai_jax._program.primitives import ELEMENTWISE
from lai_jax._program.program import Value
from lai_jax._program.sample_axis import Rows, reshaped

Rule = Callable[[Any, Sequence[Value], int], Rows]

_REDUCE = [
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_and",
    "reduce_or",
    "reduce_xor",
    "argmax",
    "argmin",
]
_CUMULATIVE = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]
_WINDOWED = ["reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min"]
_MATRICES = [
    "cholesky",
    "eigh",
    "qr",
    "svd",
    "lu",
    "triangular_solve",
    "tridiagonal_solve",
    "householder_product",
]


def common_rows(eqn: Any, values: Sequence[Value]) -> Rows:
    """Return where the samples are in all batched inputs, which must agree."""
    found = [value.rows for value in values if value.rows is not None]
    if any(rows != found[0] for rows in found):
        raise couples(eqn, "combines inputs whose samples lie along different axes")
    return found[0]


def _elementwise(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows = common_rows(eqn, values)
    ranks = {len(value.shape) for value in values if value.shape}
    if len(ranks) > 1:
        raise unknown(eqn, "inputs of different ranks")
    return rows


def _shifted(rows: Rows, removed: Sequence[int]) -> Rows:
    return rows.moved(rows.axis - sum(axis < rows.axis for axis in removed))


def _reduce(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows = common_rows(eqn, values)
    axes = eqn.params["axes"]
    if rows.axis in axes:
        raise couples(eqn, "reduces over the samples")
    return _shifted(rows, axes)


def _along(parameter: str) -> Rule:
    def rule(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
        rows = common_rows(eqn, values)
        axis = eqn.params.get(parameter, len(values[0].shape) - 1)
        if rows.axis in (axis if isinstance(axis, tuple) else (axis,)):
            raise couples(eqn, "runs along the samples")
        return rows

    return rule


def _broadcast_in_dim(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows = common_rows(eqn, values)
    return rows.moved(int(eqn.params["broadcast_dimensions"][rows.axis]))


def _reshape(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows, shape = common_rows(eqn, values), values[0].shape
    if (order := eqn.params.get("dimensions")) is not None:  # transposed first
        rows, shape = rows.moved(tuple(order).index(rows.axis)), tuple(shape[axis] for axis in order)
    moved = reshaped(rows, shape, eqn.outvars[0].aval.shape, samples)
    if moved is None:
        raise couples(eqn, "spreads the samples over several axes")
    return moved


def _transpose(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows = common_rows(eqn, values)
    return rows.moved(tuple(eqn.params["permutation"]).index(rows.axis))


def _squeeze(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    return _shifted(common_rows(eqn, values), eqn.params["dimensions"])


def _whole_axis(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    """Slices and paddings: the samples' axis must stay whole and in order."""
    data = values[:2] if eqn.primitive.name == "dynamic_update_slice" else values[:1]
    if any(value.batched for value in values[len(data) :]):
        raise unknown(eqn, "a position, or a filling, that depends on the samples")
    rows = common_rows(eqn, data)
    size = values[0].shape[rows.axis]
    taken = eqn.outvars[0].aval.shape[rows.axis]
    if eqn.primitive.name == "dynamic_update_slice":
        taken = values[1].shape[rows.axis]
    strides = eqn.params.get("strides")
    padding = eqn.params.get("padding_config")
    moved = padding is not None and tuple(padding[rows.axis]) != (0, 0, 0)
    if taken != size or moved or (strides is not None and strides[rows.axis] != 1):
        raise couples(eqn, "takes some samples of the batch")
    return rows


def _window(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows = common_rows(eqn, values)
    axis, params = rows.axis, eqn.params
    ones = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    if any(params[name][axis] != 1 for name in ones if name in params) or any(params["padding"][axis]):
        raise couples(eqn, "runs a window over the samples")
    return rows


def _matrices(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows = common_rows(eqn, values)
    if rows.axis >= len(values[0].shape) - 2:
        raise couples(eqn, "takes the samples as rows of a matrix")
    if any(not value.batched for value in values):
        raise unknown(eqn, "a matrix that is the same for all samples")
    return rows


def _fft(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    rows = common_rows(eqn, values)
    if rows.axis >= len(values[0].shape) - len(eqn.params["fft_lengths"]):
        raise couples(eqn, "transforms along the samples")
    return rows


def _leading(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    """Random keys and bits: the samples' axis stays where it is, other axes come and go behind it."""
    rows = common_rows(eqn, values)
    if rows.axis >= len(eqn.outvars[0].aval.shape):
        raise couples(eqn, "makes one number of all samples")
    return rows


def dot_general(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    """Return where the samples are in a product of arrays."""
    (contract, batch), ranks = eqn.params["dimension_numbers"], [len(value.shape) for value in values]
    places = []
    for side in (0, 1):
        rows = values[side].rows
        if rows is None:
            continue
        if rows.axis in contract[side]:
            raise couples(eqn, "sums over the samples")
        if rows.axis in batch[side]:
            places.append(("batch", rows.moved(tuple(batch[side]).index(rows.axis))))
            continue
        used = (*contract[side], *batch[side])
        place = len(batch[0]) + sum(axis not in used for axis in range(rows.axis))
        if side == 1:
            place += ranks[0] - len(contract[0]) - len(batch[0])
        places.append(("free", rows.moved(place)))
    if len(places) == 2 and (places[0] != places[1] or places[0][0] == "free"):
        raise couples(eqn, "multiplies every sample with every other")
    return places[0][1]


def conv_general_dilated(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    """Return where the samples are in the output of a convolution."""
    if values[1].batched:
        raise unknown(eqn, "a convolution whose kernel depends on the sample")
    rows, spec = common_rows(eqn, values[:1]), eqn.params["dimension_numbers"]
    if rows.axis != spec.lhs_spec[0] or eqn.params["batch_group_count"] != 1:
        raise couples(eqn, "convolves over the samples")
    return rows.moved(spec.out_spec[0])


_KEYS = ("bitcast_convert_type", "random_bits", "random_seed", "random_split", "random_unwrap", "random_wrap")

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCE, _reduce),
    **dict.fromkeys(_CUMULATIVE, _along("axis")),
    **dict.fromkeys(_WINDOWED, _window),
    **dict.fromkeys(_MATRICES, _matrices),
    **dict.fromkeys(("slice", "dynamic_slice", "dynamic_update_slice", "pad"), _whole_axis),
    **dict.fromkeys(_KEYS, _leading),
    "sort": _along("dimension"),
    "split": _along("axis"),
    "concatenate": _along("dimension"),
    "rev": _along("dimensions"),
    "top_k": _along("axis"),
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "fft": _fft,
    "dot_general": dot_general,
    "conv_general_dilated": conv_general_dilated,
    "gather": gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"), scatter),
    **dict.fromkeys(("scatter_add", "scatter_mul", "scatter_min", "scatter_max", "scatter_sub"), scatter),
}


def output_rows(eqn: Any, values: Sequence[Value], samples: int) -> Rows:
    """Return where the samples are in the output of a primitive operation.

    Raises
    ------
    UnexplainedError
        If it mixes samples, or is not known.
    """
    rule = RULES.get(eqn.primitive.name)
    if rule is None:
        raise unknown(eqn, f"no rule says where the samples are after {eqn.primitive.name!r}")
    return rule(eqn, values, samples)
