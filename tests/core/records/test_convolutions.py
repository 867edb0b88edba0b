"""Convolutions: Ghost against kernel gradients built entry by entry in numpy loops; the last layer."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings

import lai_core as lai
from tests.support.draws import GENERATORS
from tests.support.forms import N_TRAIN, N_VAL, check_all_forms, head

FEW = settings(max_examples=4)  # one shape a case: the numbers are generic

# space, kernel, stride, padding, dilation, groups, channels, outputs
CONVOLUTIONS = (
    ((6,), (3,), (1,), ((1, 1),), (1,), 1, 2, 3),
    ((5, 4), (3, 2), (2, 1), ((1, 0), (1, 1)), (1, 2), 1, 2, 2),
    ((4, 4), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 4, 4, 8),
    ((3, 4), (1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 2, 4, 2),
    ((3, 3, 2), (2, 2, 1), (1, 2, 1), ((0, 0), (1, 1), (0, 0)), (1, 1, 1), 1, 1, 2),
)


def kernel_gradient(inputs, outputs, case):
    """D loss / d kernel of every sample: `(n, d_out, channels / groups, *kernel)`, by the definition."""
    _, kernel, stride, padding, dilation, groups, channels, d_out = case
    padded = np.pad(inputs, ((0, 0), (0, 0), *padding))
    found = np.zeros((len(inputs), d_out, channels // groups, *kernel))
    for o, c in itertools.product(range(d_out), range(channels // groups)):
        channel = (o // (d_out // groups)) * (channels // groups) + c
        for offset in np.ndindex(*kernel):
            for position in np.ndindex(*outputs.shape[2:]):
                at = tuple(
                    p * s + k * d for p, s, k, d in zip(position, stride, offset, dilation, strict=True)
                )
                term = outputs[(slice(None), o, *position)] * padded[(slice(None), channel, *at)]
                found[(slice(None), o, c, *offset)] += term
    return found.reshape(len(inputs), -1)


def output_space(case):
    space, kernel, stride, padding, dilation = case[:5]
    axes = zip(space, kernel, stride, padding, dilation, strict=True)
    return tuple((n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)


def drawn_map(case, samples, generator):
    return (
        generator.normal(size=(samples, case[6], *case[0])),
        generator.normal(size=(samples, case[7], *output_space(case))),
    )


def convolution(backend, arrays, case, **options):
    inputs, outputs = (backend.array(array) for array in arrays)
    return lai.ConvolutionTrace(
        inputs,
        outputs,
        kernel=case[1],
        stride=case[2],
        padding=case[3],
        dilation=case[4],
        groups=case[5],
        **options,
    )


@pytest.mark.equation("convolution-gradient")
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: f"{len(case[1])}d-groups{case[5]}")
@FEW
@given(seed=GENERATORS)
def test_convolutions_match_patchwise_matrices(backend, case, seed):
    generator = np.random.default_rng(seed)
    sides = [drawn_map(case, samples, generator) for samples in (N_VAL, N_TRAIN)]
    records = [[convolution(backend, side, case, bias=True), head(backend, len(side[0]))] for side in sides]
    gradients = [
        np.hstack([kernel_gradient(*side, case), side[1].reshape(*side[1].shape[:2], -1).sum(2)])
        for side in sides
    ]
    check_all_forms(backend, *records, *gradients)


def test_lai_reads_raw_convolution_maps(backend):
    case, generator = CONVOLUTIONS[1], np.random.default_rng(0)
    inputs, outputs = drawn_map(case, N_TRAIN, generator)
    last = generator.normal(size=(N_TRAIN, 3)), generator.normal(size=(N_TRAIN, 2))
    final = lai.LayerTrace(*(backend.array(array) for array in last))
    trace = lai.Trace([convolution(backend, (inputs, outputs), case), final])
    flat = inputs.reshape(N_TRAIN, -1)
    beta = last[1] @ last[1].T
    flatten = (flat @ flat.T + last[0] @ last[0].T) * beta
    mean = inputs.mean((2, 3))
    for positions, expected in (("flatten", flatten), ("mean", (mean @ mean.T + last[0] @ last[0].T) * beta)):
        kernel = backend.numpy(lai.lai_kernel(trace, trace, positions=positions))
        np.testing.assert_allclose(kernel, expected, rtol=1e-9)


@pytest.mark.equation("convolution-gradient", "virtual-readout")
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: f"{len(case[1])}d-groups{case[5]}")
@FEW
@given(seed=GENERATORS)
def test_unfolding_preserves_the_last_convolution(backend, case, seed):
    generator = np.random.default_rng(seed)
    arrays = [drawn_map(case, samples, generator) for samples in (N_VAL, N_TRAIN)]
    sides = [convolution(backend, each, case, bias=True).unfolded() for each in arrays]
    gradients = []
    for side, (inputs, outputs) in zip(sides, arrays, strict=True):
        kernels = kernel_gradient(inputs, outputs, case)
        rows, columns = (backend.numpy(part) for part in (side.output_gradients, side.activations))
        groups, width = case[5], columns.shape[-1] // case[5]
        blocks = [
            np.einsum("nto,nti->noi", each, columns[..., group * width : (group + 1) * width])
            for group, each in enumerate(np.split(rows, groups, axis=-1))
        ]  # the flattened kernel's own order of rows and columns
        np.testing.assert_allclose(np.hstack(blocks).reshape(len(inputs), -1), kernels, atol=1e-12)
        gradients.append(np.hstack([kernels, outputs.reshape(*outputs.shape[:2], -1).sum(2)]))
    check_all_forms(backend, [sides[0]], [sides[1]], *gradients)
    traces = [lai.Trace([side]) for side in sides]
    expected = (gradients[0] @ gradients[1].T).sum(0)
    np.testing.assert_allclose(backend.numpy(lai.lli_scores(*traces)), expected, rtol=1e-9, atol=1e-9)
    if case[5] == 1:  # the readout from a block-diagonal matrix's input is a full one
        np.testing.assert_allclose(backend.numpy(lai.lai_scores(*traces)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("positions", ["tokens", "mean", "flatten"])
def test_lai_refuses_output_gradient_maps(positions):
    """In one dimension `(n, channels, positions)` looks like `(n, t, d)`: LAI read it so."""
    trace = lai.Trace(
        [lai.ConvolutionTrace(np.ones((2, 3, 6)), np.ones((2, 4, 4)), kernel=(3,), name="head")]
    )
    message = (
        "layers[0] ('head'): expected a last record with output gradients (n, d) or (n, t, d), got a "
        "ConvolutionTrace, whose are maps; put its unfolded() record last"
    )
    asked = [
        lambda: lai.lai_kernel(trace, trace, positions=positions),
        lambda: lai.lai_scores(trace, trace, positions=positions),
        lambda: lai.summarize(trace, "lai", positions=positions),
        lambda: lai.preconditioned_lai_scores(trace, trace, np.ones(4), positions=positions),
        lambda: lai.fitting_positions(trace),
    ]
    for function in asked:
        with pytest.raises(ValueError, match=re.escape(message)):
            function()
    assert lai.ghost_kernel(trace, trace).shape == (2, 2)
    assert lai.lli_scores(trace, trace).shape == (2,)
