"""The bound on rounding, held against scores in float64 and exact fractions, and the errors that it meets."""

from fractions import Fraction
from functools import partial
from operator import le

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core.rounding import count_roundings, rounding_bound, rounding_factor
from proofs import prove_rounding
from tests.support.refusals import Table, refusals
from tests.support.statements import numbers


def stored(values):
    """Round to bfloat16, to nearest and even, and read it as float32 again."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


FUNCTIONS = {"ghost": lai.ghost_scores, "lai": lai.lai_scores, "lli": lai.lli_scores}
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.float32, "float64": np.float64}


def draw_case(rng):
    """Draw an estimator with options, and both sides' factors, biases and layers' weight key."""
    estimator, layers = rng.choice(list(FUNCTIONS)), int(rng.integers(1, 4))
    n_val, n_train, t, u = (int(number) for number in rng.integers(1, 5, 4))
    same, vectors, shared = rng.random() < 0.4, rng.random() < 0.4, rng.random() < 0.3
    widths = rng.integers(1, 4, (layers, 2)) if not shared else [rng.integers(1, 4, 2)] * layers
    biases = rng.random(layers) < 0.5
    if shared:
        biases[:] = biases[0]
    kind, spread = rng.choice(list(TYPES)), rng.choice([0.5, 3.0, 6.0])
    largest = 16.0 if kind == "float16" else 1e4

    def factor(samples, positions, width):
        shape = (samples, width) if vectors else (samples, positions, width)
        values = 2.0 ** rng.uniform(-spread, spread, shape) * rng.choice([-1, 1], shape)
        values *= rng.random(shape) > 0.15
        values[rng.random(samples) < 0.1] = 0.0
        if rng.random() < 0.3:
            values[rng.integers(samples)] *= largest
        return stored(values.astype(np.float32)) if kind == "bfloat16" else values.astype(TYPES[kind])

    def side(samples, positions):
        return [tuple(factor(samples, positions, width) for width in pair) for pair in widths]

    validation = side(n_val, t)
    training = validation if same else side(n_train, u)
    options = {"exclude_self": True} if same and rng.random() < 0.7 else {}
    if rng.random() < 0.3:
        options["memory_budget"] = int(rng.choice([2000, 4000, 100_000]))
    if estimator == "lai":
        positions = ["tokens", "mean", "flatten"] if vectors or same or t == u else ["tokens", "mean"]
        options["positions"] = rng.choice([None, *positions])
        if rng.random() < 0.7:
            weights = rng.normal(size=layers) * 10.0 ** rng.uniform(-2, 2)
            kinds = weights.tolist(), weights, weights.astype(np.float32)
            options["layer_weights"] = kinds[rng.integers(3)]
    valid = [
        None if vectors or rng.random() < 0.7 else rng.random(one[0][0].shape[:2]) < 0.7
        for one in (validation, training)
    ]
    if same or options.get("positions") == "flatten" or estimator != "lai":
        valid = [valid[0] if same else None] * 2
    if estimator != "lai":
        valid = [None, None]
    return estimator, options, (validation, training), biases.tolist(), "shared" if shared else None, valid


def exact_scores(estimator, options, both, biases, key, valid):
    """Multiply gradients written out in fractions: every float is one."""
    positions, weights = options.get("positions") or "tokens", options.get("layer_weights")
    fraction = np.vectorize(Fraction, otypes=[object])

    def read(factor, mask, bias=False):
        factor = factor if factor.ndim == 3 else factor[:, None, :]
        found = fraction(factor.astype(np.float64))
        if bias:
            found = np.concatenate([found, fraction(np.ones((*factor.shape[:2], 1)))], axis=2)
        mask = np.ones(factor.shape[:2]) if mask is None else mask
        if positions == "mean":  # the number of positions of every sample
            counts = fraction(np.maximum(mask.sum(1), 1).astype(float))
            return (found * fraction(mask.astype(float))[..., None]).sum(1)[:, None] / counts[:, None, None]
        return found * fraction(mask.astype(float))[..., None]

    def gradients(side, mask, scales):
        found, last = {}, read(side[-1][1], mask)
        if positions == "flatten":
            last = last.reshape(len(last), 1, -1)
        for index, ((inputs, outputs), bias) in enumerate(zip(side, biases, strict=True)):
            columns = read(inputs, mask, bias)
            rows = read(outputs, mask) if estimator == "ghost" else last
            if positions == "flatten":
                columns = columns.reshape(len(columns), 1, -1)
            part = np.array([(g.T @ a).ravel() for g, a in zip(rows, columns, strict=True)], dtype=object)
            place = key if key and estimator == "ghost" else index
            found[place] = found.get(place, 0) + part * Fraction(scales[index])
        if estimator == "lli":
            found = {index: found[index]}
        return np.concatenate(list(found.values()), axis=1)

    ones = [1] * len(biases)
    one = gradients(both[0], valid[0], ones)
    other = gradients(both[1], valid[1], ones if weights is None else [float(weight) for weight in weights])
    summed = one.sum(0) - one if options.get("exclude_self") else one.sum(0)[None]
    return (summed * other).sum(1)


def miss_the_bound(rng):
    """Say what of a drawn case is beyond its bound; None where nothing is."""
    case = estimator, options, both, biases, key, valid = draw_case(rng)
    found = []
    for side, mask in zip(both, valid, strict=True):
        layers = [lai.LayerTrace(a, g, bias=b, weight=key) for (a, g), b in zip(side, biases, strict=True)]
        trace = lai.Trace(layers)
        found.append(trace if mask is None else lai.mask_positions(trace, mask))
    scores = partial(FUNCTIONS[estimator], **options)
    computed, bound = scores(*found).tolist(), rounding_bound(scores, *found).tolist()
    errors = [abs(Fraction(one) - e) for one, e in zip(computed, exact_scores(*case), strict=True)]
    return None if all(map(le, errors, bound)) else (case, errors, bound)


@pytest.mark.equation("rounding-error")
@pytest.mark.parametrize("seed", range(4))
def test_bound_holds_exactly_for_every_option(seed):
    rng = np.random.default_rng(seed)
    for _ in range(150):
        assert miss_the_bound(rng) is None


@pytest.mark.equation("rounding-error")
@given(st.integers(1, 3), st.floats(0, 0.1))
def test_factor_is_the_proved_one(n, unit):
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
    outputs = max(o for _, o, _ in widths)
    inputs = 2 + 2 + sum(d + bias for d, _, bias in widths)
    flat_inputs = 2 + 2 + t * sum(d + bias for d, _, bias in widths)
    most = [max(2, positions) for positions in (t, u)]
    counted = {
        "tokens": (n_val * most[0] * most[1] - 1) + (outputs * (inputs + most[1] - 1) - 1),
        "mean": (n_val - 1) + 2 * (most[0] + 2) + 2 * (most[1] + 2) + (inputs * outputs - 1),
        "flatten": (n_val - 1) + (flat_inputs * t * outputs - 1),
    }
    for positions, number in counted.items():
        assert count_roundings(validation, training, positions=positions) == 6 + number


@given(st.integers(0, 20), st.sampled_from([0.0, 2.0**-8, 0.25]), st.sampled_from([2.0**-6, 2.0**-5]))
def test_the_bound_is_its_formula(count, stored_roundoff, unit):
    one = lai.Trace([lai.LayerTrace(np.array([[1.0, -2.0]]), np.array([[3.0]]))])
    two = lai.Trace([lai.LayerTrace(np.array([[-1.0, 4.0]]), np.array([[-0.5]]))])
    options = {"roundings": count, "unit_roundoff": unit, "stored_roundoff": stored_roundoff}
    factor = count * unit / (1 - count * unit)
    expected = (factor + (1 - stored_roundoff) ** -4 - 1) * (1 + factor) * (1 + 4 * unit) * 13.5
    assert rounding_bound(lai.lli_scores, one, two, **options) == pytest.approx(expected, rel=1e-12)


def test_rounding_units_follow_types_and_exclusions():
    plain, off = (partial(lai.ghost_scores, **options) for options in ({}, {"exclude_self": True}))
    expected = rounding_bound(plain, ONE, ONE, unit_roundoff=2.0**-53)
    np.testing.assert_array_equal(rounding_bound(plain, ONE, ONE), expected)
    np.testing.assert_array_equal(rounding_bound(off, ONE, ONE), 2 * expected)


def lai_scores(validation, training):
    """Have the name of a function with a bound."""


def test_roundings_depend_on_position_mode():
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
    "TypeError: scores: expected ghost_scores, lai_scores or lli_scores, options by keyword in "
    "functools.partial, got preconditioned_lai_scores": (
        lambda: rounding_bound(partial(lai.preconditioned_lai_scores, second_moment=np.ones(3)), ONE, ONE)
    ),
    "TypeError: scores: expected ghost_scores, … got self_influence": (
        lambda: rounding_bound(lai.self_influence, ONE, ONE)
    ),
    "TypeError: scores: expected ghost_scores, … got lai_scores": (
        lambda: rounding_bound(lai_scores, ONE, ONE)
    ),
    "ValueError: stored_roundoff: expected a finite number >= 0 and < 1, got 1": (
        lambda: rounding_bound(lai.lai_scores, ONE, ONE, stored_roundoff=1)
    ),
    "ValueError: roundings: expected fewer than 1 / unit_roundoff (2), got 2": (
        lambda: rounding_factor(roundings=2, unit_roundoff=0.5)
    ),
    "ValueError: unit_roundoff: expected a finite number >= 0 and < 1, got 1": (
        lambda: rounding_factor(roundings=0, unit_roundoff=1)
    ),
}


test_uncovered_calls_are_refused = refusals(REFUSED)
