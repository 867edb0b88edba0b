"""Gradients of an embedding table: exactly rounded sums, the budget's bytes, ids that no table has."""

import math

import numpy as np
import pytest

import lai_core as lai
from tests.support.backends import BACKENDS


def table(ids, gradients, rows, backend=BACKENDS[0], **options):
    n = len(ids)
    zeros = np.zeros((n, 1), gradients.dtype)
    head = lai.LayerTrace(backend.array(zeros), backend.array(zeros))
    return lai.Trace(
        [lai.EmbeddingTrace(backend.array(ids), backend.array(gradients), rows, **options), head]
    )


def summed(backend, trace):
    return backend.numpy(lai.summarize(trace, "ghost").totals[0][0])


@pytest.mark.equation("embedding-gradient")
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_row_sums_match_exact_addition(backend):
    """As a language model's table is read: few ids often, many once; against math.fsum."""
    draws = np.random.default_rng(0)
    ids = np.minimum(draws.zipf(1.3, (16, 64)), 300) - 1
    gradients = draws.normal(size=(16, 64, 4)).astype(np.float32) * (1.0 + 1e4 * (ids[..., None] == 0))
    gradients = gradients.astype(np.float32)
    found = summed(backend, table(ids, gradients, 300, backend))
    for row in range(300):
        for column in range(4):
            terms = gradients[ids == row][:, column].astype(float)
            assert abs(found[row, column] - math.fsum(terms)) <= 1e-6 * math.fsum(abs(terms))


@pytest.mark.equation("embedding-gradient")
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_ids_outside_the_table_are_ignored(backend):
    draws = np.random.default_rng(1)
    ids, gradients = np.array([[0, -1, 2], [7, 2, 1]]), draws.normal(size=(2, 3, 2))
    inside = (ids >= 0) & (ids < 5)
    wrong = table(ids, gradients, 5, backend)
    right = table(np.where(inside, ids, 4), np.where(inside[..., None], gradients, 0.0), 5, backend)
    for call in (lai.ghost_kernel, lai.ghost_scores):
        np.testing.assert_allclose(*(backend.numpy(call(x, x)) for x in (wrong, right)), rtol=1e-12)
    np.testing.assert_allclose(summed(backend, wrong), summed(backend, right), rtol=1e-12)
    lai.check_values(right)


@pytest.mark.equation("embedding-gradient")
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("samples", [2, 40])
def test_bytes_read_a_table_of_256(samples, backend):
    """In uint8 the number of rows would be 0."""
    draws = np.random.default_rng(2)
    ids, gradients = draws.integers(0, 256, (samples, 9), np.uint8), draws.normal(size=(samples, 9, 3))
    narrow, wide = (
        table(each, gradients, 256, backend, padding=int(ids[0, 0])) for each in (ids, ids.astype(int))
    )
    for call in (lai.ghost_kernel, lai.ghost_scores):
        np.testing.assert_allclose(*(backend.numpy(call(x, x)) for x in (narrow, wide)), rtol=1e-12)
    np.testing.assert_allclose(*(summed(backend, x) for x in (narrow, wide)), rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize(("low", "high"), [(-1, 7), (-1, 3), (1, 5), (0, 4)])
def test_out_of_range_ids_are_named(low, high, backend):
    trace = table(np.array([[low, 2], [high, 1]]), np.ones((2, 2, 3)), 5, backend)
    if (low, high) == (0, 4):
        lai.check_values(trace)
        return
    with pytest.raises(ValueError, match=rf"layers\[0\].ids: expected ids in \[0, 5\), got {low} to {high}$"):
        lai.check_values(trace)


@pytest.mark.equation("embedding-gradient")
@pytest.mark.parametrize("uses", [1, 2])
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_rows_unread_by_validation_are_skipped(backend, uses):
    """Of a large table, with ids that repeat, do not train or lie outside; the kernel compares every pair."""
    draws = np.random.default_rng(4)
    sides = []
    for n, dtype, few in ((6, np.int64, [2, 400]), (7, np.int32, [2, 3, 400, 401])):
        traces = [
            table(draws.choice([-1, 0, *few, 999, 1000], (n, 7)).astype(dtype),
                  draws.normal(size=(n, 7, 4)), 1000, backend, padding=2, weight="w")
            for _ in range(uses)
        ]  # fmt: skip
        sides.append(lai.Trace([*(trace.layers[0] for trace in traces), traces[0].layers[-1]]))
    expected = backend.numpy(lai.ghost_kernel(*sides)).sum(0)
    assert np.all(expected != 0)
    np.testing.assert_allclose(backend.numpy(lai.ghost_scores(*sides)), expected, rtol=1e-12)
