"""What records say of themselves: shapes that keys share, what does not fit, names, masks."""

import re
from dataclasses import replace

import numpy as np
import pytest

import lai_core as lai
from tests.support.refusals import check_refusal

HEAD = lai.LayerTrace(np.ones((2, 3)), np.ones((2, 1)))


def dense(width=6, outputs=4, **options):
    return lai.LayerTrace(np.ones((2, width)), np.ones((2, outputs)), **options)


def convolved(outputs=(4, 3), inputs=(6, 5), kernel=(3,), **options):
    """Make a convolution of two samples, which fits if nothing is given."""
    return lai.ConvolutionTrace(np.ones((2, *inputs)), np.ones((2, *outputs)), kernel, **options)


def embedded(ids=(2, 3), outputs=(2, 3, 4), kind=int, rows=5, **options):
    return lai.EmbeddingTrace(np.ones(ids, kind), np.ones(outputs), rows, **options)


def gain(width=3, **options):
    return lai.GainTrace(np.ones((2, width)), np.ones((2, width)), **options)


@pytest.mark.parametrize(
    ("one", "other", "shapes"),
    [
        (dense(groups=2), dense(groups=2, outputs=2), "(2, 2, 3), got (2, 1, 3)"),
        (convolved(groups=2), convolved((4, 4), kernel=(2,)), "(2, 2, 3, 3), got (1, 4, 6, 2)"),
        (convolved(), convolved((2, 3)), "(1, 4, 6, 3), got (1, 2, 6, 3)"),
        (embedded(), embedded(rows=6), "(1, 5, 4), got (1, 6, 4)"),
        (gain(), gain(width=2), "(3,), got (2,)"),
    ],
    ids=["dense", "kernels", "channels", "tables", "gains"],
)
def test_a_key_is_of_one_shape(one, other, shapes):
    shared = [type(each)(**{**vars(each), "weight": "w"}) for each in (one, one, other)]
    lai.ghost_kernel(*[lai.Trace([*shared[:2], HEAD])] * 2)
    message = (
        "validation.layers[1]: shares the weight 'w' with validation.layers[0]: expected a matrix of its "
        f"shape (groups, outputs, inputs) = {shapes}"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        lai.ghost_kernel(*[lai.Trace([*shared[1:], HEAD])] * 2)
    for each in (one, other):  # hidden layers whose gradients LAI does not ask for
        bare = lai.Trace([replace(each, output_gradients=None, weight="w"), HEAD])
        assert lai.lai_kernel(bare, bare, positions="mean").shape == (2, 2)


SPACE = "one entry per axis of space (1)"
WRONG = {
    "ValueError: groups: expected a positive divisor of the channels of activations (6), got 0": (
        convolved(groups=0)
    ),
    "ValueError: groups: expected a positive divisor of the channels of output_gradients (4), got 3": (
        convolved(groups=3)
    ),
    f"ValueError: stride: expected {SPACE}, got (1, 1)": convolved(stride=(1, 1)),
    "ValueError: padding: expected one pair per axis of space (1), got ((0, 0), (0, 0))": (
        convolved(padding=((0, 0),) * 2)
    ),
    "ValueError: padding: expected one pair per axis of space (1), got ((1, 1, 0),)": (
        convolved(padding=((1, 1, 0),))
    ),
    "ValueError: padding: expected one pair per axis of space (2), got ((1, 1), (1,))": (
        convolved(kernel=(3, 1), stride=(1, 1), dilation=(1, 1), padding=((1, 1), (1,)))
    ),
    "ValueError: padding: expected a whole number >= 0, got -1": convolved(padding=((0, -1),)),
    "ValueError: stride: expected a whole number >= 1, got 0": convolved(stride=(0,)),
    "TypeError: dilation: expected a whole number >= 1, got 1.0": convolved(dilation=(1.0,)),
    "ValueError: kernel: expected a whole number >= 1, got 0": convolved(kernel=(0,)),
    "TypeError: bias: expected True or False, got str": convolved(bias="no"),
    "ValueError: output_gradients: expected samples and space (2, 2) as the kernel makes of the activations "
    "(2, 6, 5), got (2, 3)": convolved(stride=(2,)),
    "ValueError: activations: expected one axis of space per kernel length (3, 1), got shape (2, 6, 5)": (
        convolved(kernel=(3, 1))
    ),
    "TypeError: ids: expected integers": embedded(kind=float),
    "TypeError: rows: expected a whole number >= 1, got 5.0": embedded(rows=5.0),
    "TypeError: padding: expected a whole number >= 0, got 1.0": embedded(padding=1.0),
    "ValueError: ids: expected shape (n,) or (n, t)": embedded((2, 3, 1)),
    "ValueError: output_gradients: …(n, t, d) with the ids'": embedded(outputs=(2, 4, 4)),
    "ValueError: output_gradients: expected the shape of normalized, (2, 3), got (2, 4)": (
        lai.GainTrace(np.ones((2, 3)), np.ones((2, 4)))
    ),
    "ValueError: output_gradients: expected shape (n, d) or (n, t, d), got (2,)": (
        lai.GainTrace(None, np.ones(2))
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_mismatched_records_are_named(said):
    kind, _, words = said.partition(": ")
    trace = lai.Trace([WRONG[said], HEAD])
    check_refusal(f"{kind}: validation.layers[0].{words}", lambda: lai.ghost_kernel(trace, trace))


def test_convolution_lengths_are_sequences():
    for options in ({"kernel": 3}, {"stride": 1}, {"padding": (1,)}, {"dilation": 1}):
        check_refusal(
            "TypeError: kernel, stride, padding, dilation: expected one entry per axis of space",
            lambda options=options: convolved(**options),
        )


def test_convolutions_fill_in_defaults():
    record = lai.ConvolutionTrace(np.ones((2, 6, 5, 5)), kernel=[3, 1], padding=[[1, 0], [0, 2]])
    assert (record.stride, record.dilation, record.padding) == ((1, 1), (1, 1), ((1, 0), (0, 2)))
    assert lai.ConvolutionTrace(np.ones((2, 6, 5, 5)), kernel=[3, 1]).padding == ((0, 0), (0, 0))
    assert (record.kernel, record.groups, record.bias) == ((3, 1), 1, False)
    assert record.has_output_rows is False
    assert record.has_readout_bias is False


@pytest.mark.parametrize(("layers", "shown"), [(1, 1), (6, 6), (7, 5), (9, 5)])
def test_long_traces_print_an_excerpt(layers, shown):
    trace = lai.Trace([dense(name=f"fc{index}") for index in range(layers)])
    names = re.findall(r"'(fc\d)'", repr(trace))
    expected = [f"fc{index}" for index in range(layers)]
    assert names == (expected if shown == layers else [*expected[:3], *expected[-2:]])
    assert (f"... {layers - 5} more ..." in repr(trace)) == (shown < layers)
    assert repr(trace).startswith("Trace(LayerTrace('fc0', (2, 6), (2, 4))")


def test_records_print_only_unusual_fields():
    assert repr(dense(bias=True, name="a")) == (
        "LayerTrace(activations=(2, 6), output_gradients=(2, 4), bias=True, name='a')"
    )
    assert repr(lai.LayerTrace(np.ones((2, 6)), groups=2)) == "LayerTrace(activations=(2, 6), groups=2)"


def test_mismatched_masks_list_available_positions():
    valid = np.ones((2, 4), bool)
    layers = [
        lai.LayerTrace(np.ones((2, 5, 3)), np.ones((2, 5, 3))),
        lai.LayerTrace(np.ones((2, 3, 3)), np.ones((2, 3, 3))),
        embedded(),
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
