"""Certificates for residual and LayerNorm blocks, rounded up, and the least regret that they promise."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import bounds

floats = st.floats(2**-10, 2**10, width=32)


@pytest.mark.equation("block-factors")
@given(st.lists(floats, min_size=18, max_size=18))
def test_bounds_are_not_below_their_exact_value(backend, numbers):
    """In single precision, where every operation rounds; the exact value in fractions."""
    values = np.array(numbers, np.float32)
    alpha, z, j = values[:8].reshape(4, 2, 1), values[8:16].reshape(4, 2), values[14:18].reshape(4, 1)
    found = backend.numpy(bounds.missing_layers_bound(*map(backend.array, (alpha, z, j))))
    exact = sum(
        Fraction(float(alpha[l, k, 0])) * Fraction(float(z[l, k])) * Fraction(float(j[l, 0]))
        for l in range(4)
        for k in range(2)
    )
    assert Fraction(float(found[0])) >= exact
    branch = backend.numpy(bounds.residual_factor(backend.array(values[:3])))
    assert all(Fraction(float(b)) >= 1 + Fraction(float(a)) for a, b in zip(values[:3], branch, strict=True))
    factor = backend.numpy(bounds.layer_norm_factor(backend.array(values[:3]), backend.array(values[3:5])))
    largest = max(Fraction(float(a)) for a in values[:3])
    assert all(
        Fraction(float(b)) >= largest / Fraction(float(s)) for s, b in zip(values[3:5], factor, strict=True)
    )


entries = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(0, 6), st.integers(-2, 2)), min_size=1, max_size=6
)


@pytest.mark.equation("certified-regret")
@given(entries)
def test_the_regret_is_within_the_certified_one_and_attains_it(backend, rows):
    approximation, errors, shares = (np.array(column, float) for column in zip(*rows, strict=True))
    bound = bounds.certified_regret_bound(backend.array(approximation), backend.array(errors))
    worst = approximation - np.where(approximation > 0, 1, -1) * errors
    for scores, attained in ((approximation + errors * shares / 2, False), (worst, True)):
        best = np.maximum(scores, 0).sum()
        regret = best - scores[approximation > 0].sum()
        assert regret <= backend.numpy(bound) + 1e-12
        assert not attained or regret == pytest.approx(float(backend.numpy(bound)))


@pytest.mark.equation("block-factors", "top-layer-certificate")
def test_by_how_much_each_bound_is_rounded_up():
    """Of ones, which are exact: a unit of rounding for each operation that may round, and the next number."""
    eps = np.finfo(float).eps
    ones = np.ones
    found = {
        1: bounds.layer_norm_factor(ones(3), ones(1))[0],
        2: bounds.residual_factor(np.zeros(1))[0] + eps,
        2 + 2 * 3: bounds.missing_layers_bound(ones((2, 3, 1)), ones((2, 3)), ones((2, 1)))[0] / 6,
        8 + 8 * 4: bounds.layer_factors(np.eye(2), ones((1, 2)))[0],
        8 + 8 * 6: bounds.layer_factors(np.eye(2, 3), ones((1, 3)))[0],
    }
    for operations, bound in found.items():
        assert bound == pytest.approx(1 + (operations + 1) * eps, abs=eps / 2), operations
