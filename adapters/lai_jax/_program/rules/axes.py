"""Where the samples are in the output of each primitive, given where they are in its inputs.

A rule returns where they are in the (first) output, or raises if the operation mixes samples. Inputs
that are not batched are the same for every sample.
"""

from collections.abc import Callable, Sequence
from typing import Any

from lai_jax._program.errors import couples, unknown
from lai_jax._program.program import Value
from lai_jax._program.rules.gathers import gather, scatter, scatter_axes
from lai_jax._program.rules.primitives import ELEMENTWISE, names
from lai_jax._program.sample_axis import SampleAxis

Rule = Callable[[Any, Sequence[Value]], SampleAxis]

_REDUCE = names("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor argmax argmin")
_CUMULATIVE = names("cumsum cumprod cummax cummin cumlogsumexp")
_WINDOWED = names("reduce_window reduce_window_sum reduce_window_max reduce_window_min")
_MATRICES = names("cholesky eigh qr svd lu triangular_solve tridiagonal_solve householder_product")


def common_axis(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    """Return where the samples are in all batched inputs, which must agree."""
    found = [value.sample_axis for value in values if value.sample_axis is not None]
    if any(other != found[0] for other in found):
        raise couples(eqn, "combines inputs whose samples lie along different axes")
    return found[0]


def _removes(parameter: str, how: str = "reduces over the samples") -> Rule:
    def rule(eqn: Any, values: Sequence[Value]) -> SampleAxis:
        samples, axes = common_axis(eqn, values), eqn.params[parameter]
        axes = axes if isinstance(axes, tuple) else (axes,)
        if samples.axis in axes:
            raise couples(eqn, how)
        return samples.move(samples.axis - sum(axis < samples.axis for axis in axes))

    return rule


def _keeps_off(parameter: str) -> Rule:
    def rule(eqn: Any, values: Sequence[Value]) -> SampleAxis:
        samples = common_axis(eqn, values)
        axis = eqn.params.get(parameter, len(values[0].shape) - 1)
        if samples.axis in (axis if isinstance(axis, tuple) else (axis,)):
            raise couples(eqn, "runs along the samples")
        return samples

    return rule


def _broadcast_in_dim(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    samples = common_axis(eqn, values)
    return samples.move(int(eqn.params["broadcast_dimensions"][samples.axis]))


def _reshape(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    samples, shape = common_axis(eqn, values), values[0].shape
    if (order := eqn.params.get("dimensions")) is not None:  # transposed first
        samples, shape = samples.move(tuple(order).index(samples.axis)), tuple(shape[axis] for axis in order)
    moved = samples.reshape(shape, eqn.outvars[0].aval.shape)
    if moved is None:
        raise couples(eqn, "spreads the samples over several axes")
    return moved


def _transpose(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    samples = common_axis(eqn, values)
    return samples.move(tuple(eqn.params["permutation"]).index(samples.axis))


def _stack(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    samples = common_axis(eqn, values)
    return samples.move(samples.axis + (eqn.params["axis"] <= samples.axis))


def _whole_axis(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    """Slices and paddings: the samples' axis must stay whole and in order."""
    # A dynamic slice takes start indices behind its data, a pad its filling: of these nothing is cut.
    data = values[:2] if eqn.primitive.name == "dynamic_update_slice" else values[:1]
    if any(value.batched for value in values[len(data) :]):
        raise unknown(eqn, "a position, or a filling, that depends on the samples")
    samples = common_axis(eqn, data)
    size = values[0].shape[samples.axis]
    taken = eqn.outvars[0].aval.shape[samples.axis]
    if eqn.primitive.name == "dynamic_update_slice":
        taken = values[1].shape[samples.axis]
    strides = eqn.params.get("strides")
    padding = eqn.params.get("padding_config")
    moved = padding is not None and tuple(padding[samples.axis]) != (0, 0, 0)
    if taken != size or moved or (strides is not None and strides[samples.axis] != 1):
        raise couples(eqn, "takes some samples of the batch")
    return samples


def _window(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    samples = common_axis(eqn, values)
    axis, params = samples.axis, eqn.params
    ones = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    if any(params[name][axis] != 1 for name in ones if name in params) or any(params["padding"][axis]):
        raise couples(eqn, "runs a window over the samples")
    return samples


def _matrices(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    samples = common_axis(eqn, values)
    if samples.axis >= len(values[0].shape) - 2:
        raise couples(eqn, "takes the samples as rows of a matrix")
    if any(not value.batched for value in values):
        raise unknown(eqn, "a matrix that is the same for all samples")
    return samples


def _fft(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    samples = common_axis(eqn, values)
    if samples.axis >= len(values[0].shape) - len(eqn.params["fft_lengths"]):
        raise couples(eqn, "transforms along the samples")
    return samples


def _keep_axis(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    """Random keys and bits: the samples' axis stays where it is, other axes come and go behind it."""
    samples = common_axis(eqn, values)
    if samples.axis >= len(eqn.outvars[0].aval.shape):
        raise couples(eqn, "makes one number of all samples")
    return samples


def dot_general(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    (contract, batch), ranks = eqn.params["dimension_numbers"], [len(value.shape) for value in values]
    # The axes of the output are: the batch axes, then the free ones of the left, then those of the right.
    places = []
    for side in (0, 1):
        samples = values[side].sample_axis
        if samples is None:
            continue
        if samples.axis in contract[side]:
            raise couples(eqn, "sums over the samples")
        if samples.axis in batch[side]:
            places.append(("batch", samples.move(tuple(batch[side]).index(samples.axis))))
            continue
        used = (*contract[side], *batch[side])
        place = len(batch[0]) + sum(axis not in used for axis in range(samples.axis))
        if side == 1:
            place += ranks[0] - len(contract[0]) - len(batch[0])
        places.append(("free", samples.move(place)))
    # Two batched operands fit where sample b meets sample b alone: along one batch axis of both.
    if len(places) == 2 and (places[0] != places[1] or places[0][0] == "free"):
        raise couples(eqn, "multiplies every sample with every other")
    return places[0][1]


def conv_general_dilated(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    if values[1].batched:
        raise unknown(eqn, "a convolution whose kernel depends on the sample")
    samples, spec = common_axis(eqn, values[:1]), eqn.params["dimension_numbers"]
    if samples.axis != spec.lhs_spec[0] or eqn.params["batch_group_count"] != 1:
        raise couples(eqn, "convolves over the samples")
    return samples.move(spec.out_spec[0])


_KEYS = names("bitcast_convert_type random_bits random_seed random_split random_unwrap random_wrap")
SCATTERS = names("scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max")

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, common_axis),
    **dict.fromkeys(_REDUCE, _removes("axes")),
    **dict.fromkeys(_CUMULATIVE, _keeps_off("axis")),
    **dict.fromkeys(_WINDOWED, _window),
    **dict.fromkeys(_MATRICES, _matrices),
    **dict.fromkeys(("slice", "dynamic_slice", "dynamic_update_slice", "pad"), _whole_axis),
    **dict.fromkeys(_KEYS, _keep_axis),
    "sort": _keeps_off("dimension"),
    "split": _keeps_off("axis"),
    "concatenate": _keeps_off("dimension"),
    "rev": _keeps_off("dimensions"),
    "top_k": _keeps_off("axis"),
    "stack": _stack,
    "unstack": _removes("axis", "takes the samples apart"),
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": _removes("dimensions"),
    "fft": _fft,
    "dot_general": dot_general,
    "conv_general_dilated": conv_general_dilated,
    "gather": gather,
    **dict.fromkeys(SCATTERS, scatter),
}


def output_axis(eqn: Any, values: Sequence[Value]) -> SampleAxis:
    rule = RULES.get(eqn.primitive.name)
    if rule is None:
        raise unknown(eqn, f"no rule says where the samples are after {eqn.primitive.name!r}")
    return rule(eqn, values)


def copy_axis(eqn: Any, position: int, values: Sequence[Value]) -> SampleAxis:
    """Return where the samples will be in the copies of a value that meets batched ones."""
    value = values[position]
    if eqn.primitive.name in SCATTERS:
        samples = scatter_axes(eqn, values)[position // 2]
    else:
        samples = common_axis(eqn, values)
    rank = len(next(value.shape for value in values if value.batched))
    if eqn.primitive.name == "dot_general":
        _, batch = eqn.params["dimension_numbers"]
        data = 0 if values[0].batched else 1
        samples = samples.move(batch[1 - data][tuple(batch[data]).index(samples.axis)])
    elif value.shape == () and eqn.primitive.name in ELEMENTWISE:
        return samples
    elif len(value.shape) != rank and eqn.primitive.name not in SCATTERS:
        raise unknown(eqn, "a parameter that meets samples in an array of another rank")
    size = value.shape[samples.axis]
    if size != 1 and samples.axis not in value.flat:
        raise unknown(eqn, "a parameter that holds one entry for each sample of the batch")
    if size == 1 and eqn.primitive.name not in ELEMENTWISE:
        raise couples(eqn, "joins a parameter to the samples")
    return samples
