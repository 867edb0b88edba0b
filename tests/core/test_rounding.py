"""The bound on rounding, held against scores in float64 and exact fractions, and the errors that it meets."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.rounding import count_roundings, rounding_bound, rounding_factor
from proofs import prove_rounding
from tests.support.refusals import Table, refusals
from tests.support.statements import numbers

SCORES = {
    "ghost": lai.ghost_scores,
    "lai": lai.lai_scores,
    "lai of means": partial(lai.lai_scores, positions="mean"),
    "lai, flattened": partial(lai.lai_scores, positions="flatten"),
    "lli": lai.lli_scores,
}


def entries(rng, shape):
    """Draw numbers of float32 of many sizes, of both signs, with zeros."""
    sizes = 2.0 ** rng.uniform(-8, 8, shape) * rng.choice([-1, 1], shape)
    return (sizes * (rng.random(shape) > 0.1)).astype(np.float32)


def stored(values):
    """Round to bfloat16, to nearest and even, and read it as float32 again."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def sides(rng, widths, *, n_val, n_train, positions, bias, kept=lambda values: values):
    """Draw both sides: what is stored of them, and in float64, where rounding does not matter."""
    stored_ones, exact = [], []
    for count in (n_val, n_train):
        shape = (count, positions) if positions else (count,)
        drawn = [(entries(rng, (*shape, d)), entries(rng, (*shape, o))) for d, o in widths]
        for found, read in ((stored_ones, kept), (exact, np.float64)):
            found.append(lai.Trace([lai.LayerTrace(read(a), read(g), bias=bias) for a, g in drawn]))
    return stored_ones, exact


@pytest.mark.equation("rounding-error")
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("positions", [None, 3], ids=["vectors", "positions"])
@pytest.mark.parametrize("name", SCORES)
def test_a_hundred_thousand_scores_are_within_the_bound(name, positions, bias):
    rng = np.random.default_rng(len(name) + 10 * bool(positions) + 20 * bias)
    for widths in ([(1, 1)], [(7, 3), (3, 5)], [(33, 2), (2, 9), (9, 4)], [(160, 6)]):
        sizes = {"n_val": int(rng.integers(1, 6)), "n_train": 2100, "positions": positions, "bias": bias}
        found, exact = sides(rng, widths, **sizes)
        error = np.abs(SCORES[name](*found).astype(np.float64) - SCORES[name](*exact))
        bound = rounding_bound(SCORES[name], *found)
        assert bound.dtype == np.float32
        assert np.all(error <= bound.astype(np.float64))


@pytest.mark.equation("rounding-error")
@pytest.mark.parametrize("name", SCORES)
def test_entries_that_were_stored_in_bfloat16_are_within_its_bound(name):
    rng = np.random.default_rng(5)
    sizes = {"n_val": 3, "n_train": 500, "positions": 2, "bias": True}
    found, exact = sides(rng, [(7, 3), (3, 5)], kept=stored, **sizes)
    error = np.abs(SCORES[name](*found).astype(np.float64) - SCORES[name](*exact))
    assert np.all(error <= rounding_bound(SCORES[name], *found, stored_roundoff=2.0**-8))
    assert np.any(error > rounding_bound(SCORES[name], *found))


@pytest.mark.equation("rounding-error")
@given(st.integers(1, 3), st.floats(0, 0.1))
def test_the_factor_is_the_one_that_is_proved(n, unit):
    errors = [[0.0] * n] * 2
    statement = prove_rounding.STATEMENT
    proved = numbers(statement, depth=n)(*errors, unit)
    assert rounding_factor(roundings=n, unit_roundoff=unit) == pytest.approx(proved, rel=1e-12)


SIZES = st.integers(1, 4)


@given(st.lists(st.tuples(SIZES, SIZES, st.booleans()), min_size=1, max_size=3), SIZES, SIZES, SIZES, SIZES)
def test_roundings_are_counted_for_any_order(widths, n_val, n_train, t, u):
    """The last matrix is used twice; a layer without positions counts as one of 1."""

    def side(samples, positions):
        made = [
            lai.LayerTrace(np.ones((samples, positions, d)), np.ones((samples, positions, o)), bias=bias)
            for d, o, bias in widths
        ]
        single = [lai.LayerTrace(np.ones((samples, 2)), weight="shared") for _ in range(2)]
        return lai.Trace([*single, *made])

    validation, training = side(n_val, t), side(n_train, u)
    most = [max(2, positions) for positions in (t, u)]
    products = (2 + 2 + sum(d + bias for d, _, bias in widths)) * max(o for _, o, _ in widths)
    counted = {
        "tokens": (n_val * most[0] * most[1] - 1) + (products - 1),
        "mean": (n_val - 1) + 2 * (most[0] + 1) + 2 * (most[1] + 1) + (products - 1),
        "flatten": (n_val - 1) + (max(most) * products - 1) + (max(most) - 1),
    }
    for positions, number in counted.items():
        assert count_roundings(validation, training, positions=positions) == 4 + number


@given(st.integers(0, 20), st.sampled_from([0.0, 2.0**-8, 0.25]), st.sampled_from([2.0**-6, 2.0**-5]))
def test_the_bound_is_its_formula(count, stored_roundoff, unit):
    one = lai.Trace([lai.LayerTrace(np.array([[1.0, -2.0]]), np.array([[3.0]]))])
    two = lai.Trace([lai.LayerTrace(np.array([[-1.0, 4.0]]), np.array([[-0.5]]))])
    options = {"roundings": count, "unit_roundoff": unit, "stored_roundoff": stored_roundoff}
    factor = count * unit / (1 - count * unit)
    expected = (factor + (1 - stored_roundoff) ** -4 - 1) * (1 + 4 * unit) / max(1 - factor, unit) * 13.5
    assert rounding_bound(lai.lli_scores, one, two, **options) == pytest.approx(expected, rel=1e-12)


def test_roundings_are_those_of_the_scores_positions():
    uses = [lai.LayerTrace(np.ones((2, 4, 5)), np.ones((2, 4, 3)), weight="shared")] * 2
    shared = lai.Trace(uses)
    more = lai.Trace([lai.LayerTrace(np.ones((7, 4, 5)), np.ones((7, 4, 3)), weight="shared")] * 2)
    for positions in ("tokens", "mean", "flatten"):
        scores = partial(lai.lai_scores, positions=positions)
        roundings = count_roundings(shared, more, positions=positions)
        default, counted = [rounding_bound(scores, shared, more, roundings=n) for n in (None, roundings)]
        assert np.array_equal(default, counted)


TABLE = lai.Trace([lai.EmbeddingTrace(np.zeros((2, 3), dtype=np.int64), np.ones((2, 3, 2)), rows=4)])
ONE = lai.Trace([lai.LayerTrace(np.ones((2, 5)), np.ones((2, 3)))])
REFUSED: Table = {
    "TypeError: …layers[0]: expected a LayerTrace, got EmbeddingTrace": (
        lambda: rounding_bound(lai.ghost_scores, TABLE, TABLE)
    ),
    "ValueError: roundings: expected fewer than 1 / unit_roundoff (2), got 2": (
        lambda: rounding_factor(roundings=2, unit_roundoff=0.5)
    ),
    "ValueError: unit_roundoff: expected a finite number >= 0 and < 1, got 1": (
        lambda: rounding_factor(roundings=0, unit_roundoff=1)
    ),
    "ValueError: stored_roundoff: expected a finite number >= 0 and < 1, got 1.0": (
        lambda: rounding_bound(lai.lli_scores, ONE, ONE, stored_roundoff=1.0)
    ),
    "ValueError: positions: expected one of 'tokens', 'mean', 'flatten', got 'sum'": (
        lambda: count_roundings(ONE, ONE, positions="sum")
    ),
}


test_what_the_bound_cannot_cover_is_refused = refusals(REFUSED)
