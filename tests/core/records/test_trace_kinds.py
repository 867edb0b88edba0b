"""Embeddings, gains, frozen layers: Ghost against gradients built entry by entry in numpy loops."""

import numpy as np
import pytest
from hypothesis import given, settings

import lai_core as lai
from tests.support.draws import GENERATORS
from tests.support.forms import N_TRAIN, N_VAL, check_all_forms, head

FEW = settings(max_examples=4)  # one shape a case: the numbers are generic

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
@given(seed=GENERATORS)
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
@given(seed=GENERATORS)
def test_tied_tables_have_all_cross_terms(backend, order, uses, padding, seed):
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
@given(seed=GENERATORS)
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


def test_ghost_refuses_traces_without_parameters():
    readout = lai.ReadoutTrace(np.ones((2, 3)), np.ones((2, 4)))
    for function in (lai.ghost_kernel, lai.lli_scores):
        with pytest.raises(ValueError, match="expected a record with parameters of its own"):
            function(*[lai.Trace([readout])] * 2)
    dense = lai.LayerTrace(np.ones((2, 3)), np.ones((2, 3)))
    for traced, estimator in (([readout], "ghost"), ([dense, readout], "lli")):
        with pytest.raises(ValueError, match="validation: expected a record with parameters of its own"):
            lai.summarize(lai.Trace(traced), estimator)
