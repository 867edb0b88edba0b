"""Convolutions, embeddings, gains: Ghost against gradients built entry by entry in numpy loops."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lai_core as lai

SEEDS = st.integers(0, 2**32 - 1)
N_VAL, N_TRAIN = 3, 4
FEW = settings(max_examples=4)  # one shape a case: the numbers are generic

# space, kernel, stride, padding, dilation, groups, channels, outputs
CONVOLUTIONS = (
    ((6,), (3,), (1,), ((1, 1),), (1,), 1, 2, 3),
    ((5, 4), (3, 2), (2, 1), ((1, 0), (0, 1)), (1, 2), 1, 2, 2),
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


def head(backend, samples):
    return lai.LayerTrace(backend.array(np.zeros((samples, 1))), backend.array(np.zeros((samples, 1))))


def check_all_forms(backend, validation, training, left, right, **close):
    """Compare kernel, scores of raw traces and of a summary, and leave-self-out with `left right^T`."""
    kernel = left @ right.T
    traces = lai.Trace(validation), lai.Trace(training)
    np.testing.assert_allclose(backend.numpy(lai.ghost_kernel(*traces)), kernel, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(backend.numpy(lai.ghost_scores(*traces)), kernel.sum(0), rtol=1e-9, atol=1e-9)
    summary = sum(lai.summarize(traces[0], "ghost") for _ in range(2))
    scores = backend.numpy(lai.ghost_scores(summary, traces[1]))
    np.testing.assert_allclose(scores, 2 * kernel.sum(0), rtol=1e-9, atol=1e-9)
    own = lai.ghost_scores(traces[1], traces[1], exclude_self=True)
    gram = right @ right.T
    np.testing.assert_allclose(backend.numpy(own), gram.sum(0) - np.diag(gram), rtol=1e-9, atol=1e-9)


@pytest.mark.equation("convolution-gradient")
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: f"{len(case[1])}d-groups{case[5]}")
@FEW
@given(seed=SEEDS)
def test_a_convolution_is_a_matrix_used_on_every_patch(backend, case, seed):
    generator = np.random.default_rng(seed)
    sides = [drawn_map(case, samples, generator) for samples in (N_VAL, N_TRAIN)]
    records = [[convolution(backend, side, case, bias=True), head(backend, len(side[0]))] for side in sides]
    gradients = [
        np.hstack([kernel_gradient(*side, case), side[1].reshape(*side[1].shape[:2], -1).sum(2)])
        for side in sides
    ]
    check_all_forms(backend, *records, *gradients)


@pytest.mark.parametrize("budget", [2**14, 2**30])
def test_a_convolution_fits_a_small_budget(backend, budget):
    case = ((8, 8), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2, 4, 4)
    side = drawn_map(case, 5, np.random.default_rng(0))
    trace = lai.Trace([convolution(backend, side, case), head(backend, 5)])
    gradients = kernel_gradient(*side, case)
    kernel = backend.numpy(lai.ghost_kernel(trace, trace, memory_budget=budget))
    np.testing.assert_allclose(kernel, gradients @ gradients.T, rtol=1e-9)


@FEW
@given(seed=SEEDS)
def test_a_shared_kernel_has_cross_terms(backend, seed):
    case, generator = CONVOLUTIONS[2], np.random.default_rng(seed)
    sides = [[drawn_map(case, samples, generator) for _ in range(2)] for samples in (N_VAL, N_TRAIN)]
    records = [
        [*(convolution(backend, use, case, weight="k") for use in uses), head(backend, len(uses[0][0]))]
        for uses in sides
    ]
    gradients = [sum(kernel_gradient(*use, case) for use in uses) for uses in sides]
    check_all_forms(backend, *records, *gradients)


def test_lai_sees_the_raw_map_of_a_convolution(backend):
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


ROWS, WIDTH = 6, 3


def table_gradient(ids, gradients, padding=None):
    """D loss / d table of every sample, `(n, rows, width)`, read by read."""
    found = np.zeros((len(ids), ROWS, WIDTH))
    for sample in range(len(ids)):
        for read, gradient in zip(ids[sample].ravel(), gradients[sample].reshape(-1, WIDTH), strict=True):
            if read != padding:
                found[sample, read] += gradient
    return found


def drawn_reads(samples, positions, generator):
    lead = (samples,) if positions is None else (samples, positions)
    return generator.integers(0, ROWS, size=lead), generator.normal(size=(*lead, WIDTH))


def table(backend, reads, **options):
    return lai.EmbeddingTrace(backend.array(reads[0]), backend.array(reads[1]), ROWS, **options)


@pytest.mark.equation("embedding-gradient")
@pytest.mark.parametrize("positions", [None, 5])
@pytest.mark.parametrize("padding", [None, 2])
@FEW
@given(seed=SEEDS)
def test_an_embedding_compares_ids(backend, positions, padding, seed):
    generator = np.random.default_rng(seed)
    sides = [drawn_reads(samples, positions, generator) for samples in (N_VAL, N_TRAIN)]
    records = [[table(backend, side, padding=padding), head(backend, len(side[0]))] for side in sides]
    gradients = [table_gradient(*side, padding).reshape(len(side[0]), -1) for side in sides]
    check_all_forms(backend, *records, *gradients)


@pytest.mark.equation("embedding-gradient", "ghost-sharing")
@pytest.mark.parametrize("order", ["table first", "layer first"])
@pytest.mark.parametrize(("uses", "padding"), [(1, None), (2, 2)])
@FEW
@given(seed=SEEDS)
def test_a_table_tied_to_layers_has_all_cross_terms(backend, order, uses, padding, seed):
    """Of as many reads as layers; the padding's row trains as a row of the layers' matrix."""
    generator = np.random.default_rng(seed)
    records, gradients = [], []
    for samples in (N_VAL, N_TRAIN):
        reads = [drawn_reads(samples, 4, generator) for _ in range(uses)]
        dense = [[generator.normal(size=(samples, 5, width)) for width in (WIDTH, ROWS)] for _ in range(uses)]
        layers = [lai.LayerTrace(backend.array(a), backend.array(g), weight="tied") for a, g in dense]
        tables = [table(backend, each, weight="tied", padding=padding) for each in reads]
        tied = [*tables, *layers] if order == "table first" else [*layers, *tables]
        records.append([*tied, head(backend, samples)])
        total = sum(np.einsum("nto,nti->noi", g, a) for a, g in dense)
        total = total + sum(table_gradient(*each, padding) for each in reads)
        gradients.append(total.reshape(samples, -1))
    check_all_forms(backend, *records, *gradients)


@pytest.mark.equation("gain-gradient")
@pytest.mark.parametrize("positions", [None, 4])
@FEW
@given(seed=SEEDS)
def test_gains_and_offsets_sum_over_positions(backend, positions, seed):
    generator = np.random.default_rng(seed)
    records, gradients = [], []
    for samples in (N_VAL, N_TRAIN):
        lead = (samples,) if positions is None else (samples, positions)
        x, g = generator.normal(size=(*lead, 3)), generator.normal(size=(*lead, 3))
        x_, g_ = backend.array(x), backend.array(g)
        shared = [lai.GainTrace(x_, g_, weight="gain"), lai.GainTrace(x_, g_, weight="gain")]
        records.append([*shared, lai.GainTrace(None, g_), head(backend, samples)])
        axis = 1 if positions else ()
        gradients.append(np.hstack([2 * (x * g).sum(axis), g.sum(axis)]))
    check_all_forms(backend, *records, *gradients)


def test_a_frozen_layer_is_in_lai_and_not_in_ghost(backend):
    generator = np.random.default_rng(0)
    arrays = [backend.array(generator.normal(size=(4, d))) for d in (3, 5, 5, 2)]
    last = lai.LayerTrace(*arrays[2:])
    frozen = lai.Trace([lai.ReadoutTrace(*arrays[:2]), last])
    trains = lai.Trace([lai.LayerTrace(*arrays[:2]), last])
    alone = lai.Trace([last])
    ghost, expected = lai.ghost_kernel(frozen, frozen), lai.ghost_kernel(alone, alone)
    np.testing.assert_allclose(backend.numpy(ghost), backend.numpy(expected))
    ghost = lai.ghost_scores(lai.summarize(frozen, "ghost"), frozen)
    np.testing.assert_allclose(backend.numpy(ghost), backend.numpy(expected).sum(0))
    seen, expected = lai.lai_kernel(frozen, frozen), lai.lai_kernel(trains, trains)
    np.testing.assert_allclose(backend.numpy(seen), backend.numpy(expected))


def test_a_trace_without_parameters_has_no_ghost_and_says_so():
    readout = lai.ReadoutTrace(np.ones((2, 3)), np.ones((2, 4)))
    for function in (lai.ghost_kernel, lai.lli_scores):
        with pytest.raises(ValueError, match="expected a record with parameters of its own"):
            function(*[lai.Trace([readout])] * 2)
    dense = lai.LayerTrace(np.ones((2, 3)), np.ones((2, 3)))
    for traced, estimator in (([readout], "ghost"), ([dense, readout], "lli")):
        with pytest.raises(ValueError, match="validation: expected a record with parameters of its own"):
            lai.summarize(lai.Trace(traced), estimator)


def maps(*shape):
    return np.ones(shape)


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        (
            lambda: lai.ConvolutionTrace(maps(2, 3, 8), maps(2, 4, 6)),
            ValueError,
            "one axis of space per kernel",
        ),
        (
            lambda: lai.ConvolutionTrace(maps(2, 3, 8), maps(2, 4, 6), kernel=(3, 3)),
            ValueError,
            "(n, channels, *sp",
        ),
        (
            lambda: lai.ConvolutionTrace(maps(2, 3, 8), maps(2, 4, 7), kernel=(3,)),
            ValueError,
            "space (2, 6) as the",
        ),
        (
            lambda: lai.ConvolutionTrace(maps(2, 3, 8), maps(2, 4, 6), (3,), groups=2),
            ValueError,
            "channels of act",
        ),
        (
            lambda: lai.ConvolutionTrace(maps(2, 3, 8), maps(2, 4, 6), (3,), stride=(1, 1)),
            ValueError,
            "stride: exp",
        ),
        (
            lambda: lai.EmbeddingTrace(maps(2, 3), maps(2, 3, 4), 5),
            TypeError,
            "ids: expected an integer dtype",
        ),
        (lambda: lai.EmbeddingTrace(np.ones((2, 3, 1), int), maps(2, 3, 4), 5), ValueError, "(n,) or (n, t)"),
        (
            lambda: lai.EmbeddingTrace(np.ones((2, 3), int), maps(2, 4, 4), 5),
            ValueError,
            "(n, t, d) with the ids'",
        ),
        (
            lambda: lai.GainTrace(maps(2, 3), maps(2, 4)),
            ValueError,
            "the shape of normalized, (2, 3), got (2, 4)",
        ),
        (lambda: lai.GainTrace(None, maps(2)), ValueError, "expected shape (n, d) or (n, t, d), got (2,)"),
    ],
)
def test_bad_records_are_named(record, error, message):
    trace = lai.Trace([record(), lai.LayerTrace(maps(2, 1), maps(2, 1))])
    with pytest.raises(error, match=re.escape(message)):
        lai.ghost_kernel(trace, trace)


def test_sides_of_different_geometry_are_refused():
    case = CONVOLUTIONS[0]
    layers = [
        lai.ConvolutionTrace(maps(2, 2, 6), maps(2, 3, 4), kernel=(3,)),
        lai.ConvolutionTrace(maps(2, 2, 6), maps(2, 3, 3), kernel=(4,)),
    ]
    last = lai.LayerTrace(maps(2, 1), maps(2, 1))
    with pytest.raises(ValueError, match="geometry"):
        lai.ghost_kernel(*(lai.Trace([layer, last]) for layer in layers))
    assert case[1] == (3,)
