"""Random weights shared by both samples, with normal moments by exact quadrature."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lai_core.propagation import (
    RandomLayer,
    linear_random_weights_variance,
    random_weights_moments,
    random_weights_variance,
)
from tests.support.draws import GENERATORS
from tests.support.outcomes import moments, normal_matrices

GATES = ((1, 1), (1, 0), (0, 1), (0, 0))
"""Of one unit: whether it is active for z and for j."""


def similarities(vectors, variance, gates):
    """Yield (norms product, similarity, probability) one layer below `vectors`, all weights listed."""
    for g, h, weight in vectors:
        for matrix, chance in normal_matrices(len(gates), len(g)):
            scaled = np.sqrt(variance) * matrix
            gates_z, gates_j = (np.array([gate[side] for gate in gates]) for side in (0, 1))
            yield gates_z * (scaled @ g), gates_j * (scaled @ h), weight * chance


def exact(vectors):
    """Return P, Q, and mean and variance of the similarity."""
    listed = [((u @ u) * (w @ w), u @ w, weight) for u, w, weight in vectors]
    norms, products, weights = (np.array(side) for side in zip(*listed, strict=True))
    return norms @ weights, products**2 @ weights, *moments(products, weights)


@pytest.mark.equation("random-weights-variance")
@settings(max_examples=10)
@given(
    seed=GENERATORS,
    gates=st.sampled_from(list(itertools.product(GATES, repeat=2))),
    variance=st.sampled_from((0.3, 1.0)),
)
def test_one_layer_with_fixed_gates(backend, seed, gates, variance):
    g, h = np.random.default_rng(seed).standard_normal((2, 2))
    n_z, n_j, both = (sum(unit) for unit in zip(*((a, b, a * b) for a, b in gates), strict=True))
    layer = RandomLayer(variance, n_z * n_j, both, both**2)
    P0, Q0 = (g @ g) * (h @ h), (g @ h) ** 2
    P, Q, mean, spread = exact(similarities([(g, h, 1.0)], variance, gates))
    found = random_weights_moments([layer], backend.array(P0), backend.array(Q0))
    assert [float(moment) for moment in found] == pytest.approx([P, Q], rel=1e-9, abs=1e-12)
    assert mean == pytest.approx(both * variance * (g @ h), rel=1e-9, abs=1e-12)
    computed = random_weights_variance([layer], backend.array(P0), backend.array(g @ h))
    assert float(computed) == pytest.approx(spread, rel=1e-8, abs=1e-9)
    if both and Q0:  # relative to the squared mean: (1 + 1 / cos^2) / n
        assert spread / mean**2 == pytest.approx((1 + P0 / Q0) / both, rel=1e-8)


@pytest.mark.equation("random-weights-variance")
@settings(max_examples=3)
@given(seed=GENERATORS)
def test_two_linear_layers_and_the_closed_form(backend, seed):
    g, h = np.random.default_rng(seed).standard_normal((2, 2))
    linear = RandomLayer.linear(width=2, variance=0.5)
    vectors = [(g, h, 1.0)]
    for depth in (1, 2):
        vectors = list(similarities(vectors, 0.5, ((1, 1),) * 2))
        spread = exact(vectors)[3]
        P0, similarity = backend.array((g @ g) * (h @ h)), backend.array(g @ h)
        recursion = float(random_weights_variance([linear] * depth, P0, similarity))
        closed = float(linear_random_weights_variance(P0, similarity, width=2, depth=depth))
        assert recursion == pytest.approx(spread, rel=1e-8)
        assert closed == pytest.approx(spread, rel=1e-8)


@pytest.mark.equation("random-weights-variance")
@given(seed=GENERATORS, width=st.integers(1, 300), depth=st.integers(0, 12))
def test_closed_form_is_the_recursion(backend, seed, width, depth):
    g, h = np.random.default_rng(seed).standard_normal((2, 3))
    P0, similarity = backend.array((g @ g) * (h @ h)), backend.array(g @ h)
    recursion = random_weights_variance(
        [RandomLayer.linear(width=width, variance=1 / width)] * depth, P0, similarity
    )
    closed = linear_random_weights_variance(P0, similarity, width=width, depth=depth)
    assert float(closed) == pytest.approx(float(recursion), rel=1e-9, abs=1e-9)


@pytest.mark.equation("random-weights-variance")
@given(seed=GENERATORS)
def test_variance_is_near_depth_over_width_where_that_is_small(seed):
    g, h = np.random.default_rng(seed).standard_normal((2, 3))
    P0, Q0 = (g @ g) * (h @ h), (g @ h) ** 2
    variance = float(linear_random_weights_variance(np.asarray(P0), np.asarray(g @ h), width=10**4, depth=5))
    assert variance == pytest.approx(5 / 10**4 * (P0 + Q0), rel=1e-2)


@pytest.mark.equation("random-weights-variance")
@settings(max_examples=3)
@given(seed=GENERATORS, both=st.sampled_from((0.25, 0.4, 0.5)))
def test_one_layer_with_independent_gates(seed, both):
    """Two units, each active for one sample with probability 1/2 and for both with `both`."""
    g, h = np.random.default_rng(seed).standard_normal((2, 2))
    chances = dict(zip(GATES, (both, 0.5 - both, 0.5 - both, both), strict=True))
    vectors = [
        (u, w, weight * chances[gates[0]] * chances[gates[1]])
        for gates in itertools.product(GATES, repeat=2)
        for u, w, weight in similarities([(g, h, 1.0)], 1.0, gates)
    ]
    P, Q, _, spread = exact(vectors)
    layer = RandomLayer.gated(width=2, variance=1.0, each=0.5, both=both)
    P0, similarity = np.asarray((g @ g) * (h @ h)), np.asarray(g @ h)
    found = random_weights_moments([layer], P0, similarity**2)
    assert [float(moment) for moment in found] == pytest.approx([P, Q], rel=1e-9)
    assert float(random_weights_variance([layer], P0, similarity)) == pytest.approx(spread, rel=1e-8)


@pytest.mark.equation("random-weights-variance")
@pytest.mark.parametrize("width", [1, 4, 100])
def test_a_sample_with_itself_grows_by_five_over_width(width):
    """ReLU with variance 2 / n, half of the units active: P = Q, and both grow by 1 + 5/n a layer."""
    layer = RandomLayer.gated(width=width, variance=2 / width, each=0.5, both=0.5)
    P, Q = random_weights_moments([layer], np.asarray(1.0), np.asarray(1.0))
    assert [float(P), float(Q)] == pytest.approx([1 + 5 / width] * 2)


def test_wrong_values_are_refused():
    one = np.ones(())
    with pytest.raises(ValueError, match="width: expected"):
        linear_random_weights_variance(one, one, width=0, depth=1)
    with pytest.raises(ValueError, match="both: expected"):
        RandomLayer.gated(width=3, variance=1.0, each=0.5, both=0.6)
    with pytest.raises(TypeError, match="norms: expected an array"):
        random_weights_moments([], 1.0, one)
