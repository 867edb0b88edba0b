"""Random weights shared by both samples, with normal moments by exact quadrature."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lai_core.propagation import (
    RandomLayer,
    random_weights_moments,
    random_weights_variance,
)
from tests.support.draws import GENERATORS
from tests.support.outcomes import moments, normal_matrices

GATES = ((1, 1), (1, 0), (0, 1), (0, 0))
"""Of one unit: whether it is active for z and for j."""


def similarities(vectors, variance, gates):
    """Yield both vectors one layer below `vectors`, and their probability, all weights listed."""
    gates_z, gates_j = (np.array([gate[side] for gate in gates]) for side in (0, 1))
    for g, h, weight in vectors:
        for matrix, chance in normal_matrices(len(gates), len(g)):
            scaled = np.sqrt(variance) * matrix
            yield gates_z * (scaled @ g), gates_j * (scaled @ h), weight * chance


def exact(vectors):
    """Return P, Q, and mean and variance of the similarity."""
    listed = [((u @ u) * (w @ w), u @ w, weight) for u, w, weight in vectors]
    norms, products, weights = (np.array(side) for side in zip(*listed, strict=True))
    return norms @ weights, products**2 @ weights, *moments(products, weights)


def pair(seed):
    """Draw two vectors; give them with the product of their squared norms and their similarity."""
    g, h = np.random.default_rng(seed).standard_normal((2, 2))
    return g, h, np.asarray((g @ g) * (h @ h)), np.asarray(g @ h)


def check(layer, vectors, P0, similarity):
    """Compare one layer's moments with the enumerated ones; return mean and variance."""
    P, Q, mean, spread = exact(vectors)
    found = random_weights_moments([layer], P0, similarity**2)
    assert [float(moment) for moment in found] == pytest.approx([P, Q], rel=1e-9, abs=1e-12)
    computed = random_weights_variance([layer], P0, similarity)
    assert computed == pytest.approx(spread, rel=1e-8, abs=1e-9)
    return mean, spread


@pytest.mark.equation("random-weights-variance")
@settings(max_examples=10)
@given(
    seed=GENERATORS,
    gates=st.sampled_from(list(itertools.product(GATES, repeat=2))),
    variance=st.sampled_from((0.3, 1.0)),
)
def test_one_layer_with_fixed_gates(seed, gates, variance):
    g, h, P0, similarity = pair(seed)
    n_z, n_j, both = (sum(unit) for unit in zip(*((a, b, a * b) for a, b in gates), strict=True))
    layer = RandomLayer(variance, n_z * n_j, both, both**2)
    mean, spread = check(layer, similarities([(g, h, 1.0)], variance, gates), P0, similarity)
    assert mean == pytest.approx(both * variance * similarity, rel=1e-9, abs=1e-12)
    if both and similarity:  # relative to the squared mean: (1 + 1 / cos^2) / n
        assert spread / mean**2 == pytest.approx((1 + P0 / similarity**2) / both, rel=1e-8)


@pytest.mark.equation("random-weights-variance")
@settings(max_examples=3)
@given(seed=GENERATORS, both=st.sampled_from((0.25, 0.4, 0.5)))
def test_one_layer_with_independent_gates(seed, both):
    """Two units, each active for one sample with probability 1/2 and for both with `both`."""
    g, h, P0, similarity = pair(seed)
    chances = dict(zip(GATES, (both, 0.5 - both, 0.5 - both, both), strict=True))
    vectors = [
        (u, w, weight * chances[gates[0]] * chances[gates[1]])
        for gates in itertools.product(GATES, repeat=2)
        for u, w, weight in similarities([(g, h, 1.0)], 1.0, gates)
    ]
    check(RandomLayer.gated(width=2, variance=1.0, each=0.5, both=both), vectors, P0, similarity)


@pytest.mark.parametrize("width", [1, 3])
def test_gated_layers_count_active_units(width):
    chances = {(1, 1): 0.3, (1, 0): 0.2, (0, 1): 0.2, (0, 0): 0.3}
    expected = np.zeros(3)
    for gates in itertools.product(chances, repeat=width):
        n_z, n_j, both = (sum(unit) for unit in zip(*((a, b, a * b) for a, b in gates), strict=True))
        expected += np.prod([chances[gate] for gate in gates]) * np.array([n_z * n_j, both, both**2])
    layer = RandomLayer.gated(width=width, variance=1.0, each=0.5, both=0.3)
    found = layer.active_pairs, layer.both_active, layer.both_active_squared
    np.testing.assert_allclose(found, expected)
    every = RandomLayer.gated(width=width, variance=1.0, each=1.0, both=1.0)
    assert RandomLayer.linear(width=width, variance=1.0) == every
