"""Counted costs against the products themselves, counted one by one from the formulas."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.costs import cost_ratio, list_routes, pairwise_cost, summary_cost
from tests.support.refusals import Table, refusals

SIZES = st.integers(1, 4)


def trace(n, t, widths, outputs):
    shape = (n,) if t is None else (n, t)
    layers = [lai.LayerTrace(np.ones((*shape, d)), np.ones((*shape, d_out))) for d, d_out in widths]
    return lai.Trace([*layers, lai.LayerTrace(np.ones((*shape, 3)), np.ones((*shape, outputs)))])


@given(
    n=SIZES, m=SIZES, t=st.one_of(st.none(), SIZES), outputs=SIZES, widths=st.lists(st.tuples(SIZES, SIZES))
)
def test_costs_are_those_of_the_products(n, m, t, outputs, widths):
    training, validation = trace(n, t, widths, outputs), trace(m, t, widths, outputs)
    positions, read = t or 1, sum(d for d, _ in widths) + 3
    assert summary_cost(training, "lai") == n * positions * outputs * read
    assert summary_cost(training, "lai", positions="mean") == n * outputs * read
    assert summary_cost(training, "lli") == n * positions * outputs * 3
    matrices = [*widths, (3, outputs)]
    assert summary_cost(training, "ghost") == n * positions * sum(d * d_out for d, d_out in matrices)
    assert pairwise_cost(validation, training, "lai") == m * n * positions**2 * (read + outputs)
    assert pairwise_cost(validation, training, "lai", positions="mean") == m * n * (read + outputs)
    assert pairwise_cost(validation, training, "lai", positions="flatten") == m * n * positions * (
        read + outputs
    )
    assert pairwise_cost(validation, training, "lli") == m * n * positions**2 * (3 + outputs)
    both = m * n * positions**2 * sum(d + d_out for d, d_out in matrices)
    assert pairwise_cost(validation, training, "ghost") == both


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_routes_by_hand(dtype):
    """Two samples of five positions, inputs of 3 and 4 and seven outputs; a forward pass of 100."""
    layers = [lai.LayerTrace(np.ones((2, 5, d), dtype), np.ones((2, 5, 7), dtype)) for d in (3, 4)]
    found = list_routes(lai.Trace(layers), 100, sketches=[7, 3, 8, 1])
    size = np.dtype(dtype).itemsize
    whole = 7 * (3 + 4) * size  # the sum's numbers, whatever the number of samples
    kept = 2 * 5 * (3 + 4 + 7) * size
    assert [(route.positions, route.sketch, route.summary_bytes) for route in found] == [
        ("tokens", None, whole), ("mean", None, whole), ("flatten", None, kept),
        ("tokens", 1, whole // 7), ("tokens", 3, whole * 3 // 7),
    ]  # fmt: skip
    tokens = 2 * 5 * 7 * (3 + 4) / 100
    pairs = 2 * 2 * 5 * (3 + 4 + 7) / 100
    assert [route.forwards for route in found] == pytest.approx(
        [tokens, tokens / 5, pairs, tokens / 7, tokens * 3 / 7]
    )
    assert [route.meaning.partition(";")[2].strip() for route in found[3:]] == [
        "unbiased, of sketched output gradients"
    ] * 2


def test_routes_without_or_with_unequal_positions():
    flat = list_routes(trace(3, None, [(2, 1)], 4), 10)
    assert [(route.positions, route.forwards, route.summary_bytes) for route in flat] == [
        ("tokens", 3 * 4 * 5 / 10, 4 * 5 * 8),
        ("mean", 3 * 4 * 5 / 10, 4 * 5 * 8),
        ("flatten", 3 * 3 * (5 + 4) / 10, 3 * (5 + 4) * 8),
    ]
    table = lai.EmbeddingTrace(np.zeros((3, 2), int), np.ones((3, 2, 2)), rows=5)
    uneven = lai.Trace([table, lai.LayerTrace(np.ones((3, 6, 2))), trace(3, None, [], 4).layers[0]])
    found = list_routes(uneven, 10, sketches=[2])
    assert [(route.positions, route.sketch, route.summary_bytes) for route in found] == [
        ("mean", None, 4 * (2 + 3) * 8),
        ("flatten", None, 3 * (6 * 2 + 3 + 4) * 8),
        ("mean", 2, 4 * (2 + 3) * 8 // 2),
    ]


ONE = trace(2, 3, [], 4)
REFUSED: Table = {
    "ValueError: estimator: expected one of 'ghost', 'lai', 'lli', got 'exact'": (
        lambda: summary_cost(ONE, "exact")
    ),
    "ValueError: training.layers[0]: expected 3 positions as in validation": (
        lambda: pairwise_cost(ONE, trace(2, 2, [], 4), "lai", positions="flatten")
    ),
    "ValueError: widths: expected the input's and at least one layer's, got 1 of them": (
        lambda: cost_ratio([3])
    ),
    "TypeError: widths[1]: expected a whole number >= 1, got True": lambda: cost_ratio([3, True]),
    **{
        f"ValueError: sketches: expected positive whole numbers, got {width!r}": partial(
            list_routes, ONE, 10, sketches=[width]
        )
        for width in (0, -1, 2.0, True, "2")
    },
}


test_what_has_no_cost_is_refused = refusals(REFUSED)
