"""What records say of themselves, by hand: shapes that keys share, windows of a kernel, names, masks."""

import re

import numpy as np
import pytest

import lai_core as lai
from lai_core._engine.namespace import namespace_of
from lai_core.records._maps import Geometry, Padded, Patch, by_position, padded_with_zeros

XP = namespace_of({"numpy": np.ones(1)})
HEAD = lai.LayerTrace(np.ones((2, 3)), np.ones((2, 1)))


def dense(width=6, outputs=4, **options):
    return lai.LayerTrace(np.ones((2, width)), np.ones((2, outputs)), **options)


def convolution(kernel=(3,), outputs=4, **options):
    return lai.ConvolutionTrace(
        np.ones((2, 6, 5)), np.ones((2, outputs, 6 - kernel[0])), kernel=kernel, **options
    )


def table(rows=5, width=3, **options):
    return lai.EmbeddingTrace(np.zeros((2, 4), int), np.ones((2, 4, width)), rows, **options)


def gain(width=3, **options):
    return lai.GainTrace(np.ones((2, width)), np.ones((2, width)), **options)


@pytest.mark.parametrize(
    ("record", "bare", "shape"),
    [
        (dense(groups=2), lai.LayerTrace(np.ones((2, 6))), (2, 2, 3)),
        (convolution(groups=2), lai.ConvolutionTrace(np.ones((2, 6, 5)), kernel=(3,)), (2, 2, 3, 3)),
        (table(), lai.EmbeddingTrace(np.zeros((2, 4), int), None, 5), (1, 5, 3)),
        (gain(), lai.GainTrace(None, None), (3,)),
    ],
    ids=["dense", "convolution", "table", "gain"],
)
def test_the_shape_of_a_parameter_is_known_from_its_gradients(record, bare, shape):
    assert record.matrix_shape == shape
    assert bare.matrix_shape is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (dense(), dense(outputs=3)),
        (convolution(), convolution(kernel=(2,))),
        (convolution(), convolution(outputs=2)),
        (table(), table(rows=6)),
        (gain(), gain(width=2)),
    ],
    ids=["dense", "kernels", "channels", "tables", "gains"],
)
def test_a_key_is_of_one_shape(one, other):
    shared = [type(each)(**{**vars(each), "weight": "w"}) for each in (one, one, other)]
    lai.ghost_kernel(*[lai.Trace([*shared[:2], HEAD])] * 2)
    message = "validation.layers[1]: shares the weight 'w' with validation.layers[0]: expected a matrix"
    with pytest.raises(ValueError, match=re.escape(message)):
        lai.ghost_kernel(*[lai.Trace([*shared[1:], HEAD])] * 2)


GEOMETRY = Geometry(kernel=(3, 1), stride=(3, 2), padding=((2, 1), (0, 0)), dilation=(2, 1))
"""Nine and three zeros are 12, of which a kernel spans 5: at 0, 3 and 6; one of 1 lies at 0 and 2 of 4."""


def test_windows_of_a_kernel_with_stride_padding_and_dilation():
    assert GEOMETRY.output((9, 4)) == (3, 2)
    assert GEOMETRY.windows((3, 2)) == [(slice(start, start + 7, 3), slice(0, 3, 2)) for start in (0, 2, 4)]
    assert Geometry((2,), (1,), ((0, 0),), (1,)).output((2,)) == (1,)
    assert Geometry((2, 2), (1, 1), ((0, 0),) * 2, (1, 1)).windows((1, 1)) == [
        (slice(i, i + 1, 1), slice(j, j + 1, 1)) for i in (0, 1) for j in (0, 1)
    ]


def test_zeros_are_put_before_and_after_one_axis():
    padded = padded_with_zeros(XP, np.arange(1.0, 5.0).reshape(2, 2), 1, 2, 1)
    assert padded.tolist() == [[0, 0, 1, 2, 0], [0, 0, 3, 4, 0]]
    assert padded_with_zeros(XP, np.ones((1, 2)), 0, 0, 1).tolist() == [[1, 1], [0, 0]]
    whole = np.ones((1, 2))
    assert padded_with_zeros(XP, whole, 0, 0, 0) is whole


def test_a_map_is_read_position_by_position():
    found = by_position(XP, np.arange(24.0).reshape(2, 3, 2, 2))
    assert found.shape == (2, 4, 3)
    assert found[1].tolist() == [[12, 16, 20], [13, 17, 21], [14, 18, 22], [15, 19, 23]]


def test_a_patch_is_cut_out_as_it_is_indexed():
    padded = np.arange(2.0 * 5 * 4 * 3).reshape(2, 5, 4, 3)
    maps = Padded(XP, np.moveaxis(padded, -1, 1), ((0, 0), (0, 0)))
    patch = Patch(maps, (slice(0, 5, 2), slice(1, 3, 1)))
    whole = padded[:, 0:5:2, 1:3].reshape(2, 6, 3)
    assert patch.shape == (2, 6, 3)
    assert patch.dtype == padded.dtype
    for key in (
        (slice(0, 2), ...), (slice(1, 2), ...), (slice(None), slice(2, 4)), 1, slice(0, 1), (..., 0),
        (0, ...),
        (slice(0, 1), ..., 1), (slice(0, 1), 2, 1),
    ):  # fmt: skip
        np.testing.assert_array_equal(patch[key], whole[key])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 0}, "groups: expected a positive divisor of the channels of activations (6), got 0"),
        ({"groups": 2.0}, "groups: expected a positive divisor of the channels of activations (6), got 2.0"),
        ({"groups": 3}, "groups: expected a positive divisor of the channels of output_gradients (4), got 3"),
        ({"stride": (1, 1)}, "stride: expected one entry per axis of space (1), got (1, 1)"),
        ({"dilation": ()}, "dilation: expected one entry per axis of space (1), got ()"),
        (
            {"padding": ((0, 0),) * 2},
            "padding: expected one entry per axis of space (1), got ((0, 0), (0, 0))",
        ),
        (
            {"stride": (2,)},
            "output_gradients: expected samples and space (2, 2) as the kernel makes of the activations "
            "(2, 6, 5), got (2, 3)",
        ),
        (
            {"kernel": (3, 1)},
            "activations: expected one axis of space per kernel length (3, 1), got shape (2, 6, 5)",
        ),
    ],
)
def test_a_convolution_that_does_not_fit_is_named(options, message):
    record = lai.ConvolutionTrace(np.ones((2, 6, 5)), np.ones((2, 4, 3)), **{"kernel": (3,), **options})
    trace = lai.Trace([record, HEAD])
    with pytest.raises(ValueError, match=f"^{re.escape('validation.layers[0].' + message)}$"):
        lai.ghost_kernel(trace, trace)


def test_a_convolution_fills_in_what_is_left_out():
    record = lai.ConvolutionTrace(np.ones((2, 6, 5, 5)), kernel=[3, 1], padding=[[1, 0], [0, 2]])
    assert (record.stride, record.dilation, record.padding) == ((1, 1), (1, 1), ((1, 0), (0, 2)))
    assert lai.ConvolutionTrace(np.ones((2, 6, 5, 5)), kernel=[3, 1]).padding == ((0, 0), (0, 0))
    assert (record.kernel, record.groups, record.bias) == ((3, 1), 1, False)
    assert record.has_output_rows is False
    assert record.has_readout_bias is False


@pytest.mark.parametrize(("layers", "shown"), [(1, 1), (6, 6), (7, 5), (9, 5)])
def test_of_many_layers_the_first_three_and_the_last_two_are_named(layers, shown):
    trace = lai.Trace([dense(name=f"fc{index}") for index in range(layers)])
    names = re.findall(r"'(fc\d)'", repr(trace))
    expected = [f"fc{index}" for index in range(layers)]
    assert names == (expected if shown == layers else [*expected[:3], *expected[-2:]])
    assert (f"... {layers - 5} more ..." in repr(trace)) == (shown < layers)
    assert repr(trace).startswith("Trace(LayerTrace('fc0', (2, 6), (2, 4))")


def test_a_record_names_what_is_not_usual():
    assert repr(dense(bias=True, name="a")) == (
        "LayerTrace(activations=(2, 6), output_gradients=(2, 4), bias=True, name='a')"
    )
    assert repr(lai.LayerTrace(np.ones((2, 6)), groups=2)) == "LayerTrace(activations=(2, 6), groups=2)"


def test_a_mask_that_fits_no_layer_names_the_positions_that_there_are():
    valid = np.ones((2, 4), bool)
    layers = [
        lai.LayerTrace(np.ones((2, 5, 3)), np.ones((2, 5, 3))),
        lai.LayerTrace(np.ones((2, 3, 3)), np.ones((2, 3, 3))),
        table(),
        dense(),
    ]
    for kept, here in ((layers, "[3, 5]"), (layers[2:], "none has any")):
        message = f"valid: expected shape (n, t) with the t positions of a layer (here {here}), got (2, 4)"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            lai.mask_positions(lai.Trace(kept), valid)
    whole = lai.LayerTrace(np.ones((2, 4, 3)), np.ones((2, 4, 3)))
    masked = lai.mask_positions(lai.Trace([*layers, whole]), valid).layers
    assert masked[:4] == tuple(layers)
    assert masked[4].valid is valid
