"""Counted costs against the products themselves, counted one by one from the formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.costs import pairwise_cost, summary_cost

SIZES = st.integers(1, 4)
POSITIONS = st.one_of(st.none(), SIZES)
WIDTHS = st.lists(st.tuples(SIZES, SIZES))


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


def test_what_has_no_cost_is_refused():
    one = trace(2, 3, [], 4)
    with pytest.raises(ValueError, match=r"estimator: expected one of 'ghost', 'lai', 'lli', got 'exact'"):
        summary_cost(one, "exact")
    with pytest.raises(ValueError, match="positions: expected one of"):
        pairwise_cost(one, one, "lai", positions="all")
    with pytest.raises(ValueError, match="positions"):
        pairwise_cost(one, trace(2, 2, [], 4), "lai", positions="flatten")
