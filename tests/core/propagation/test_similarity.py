"""Similarities layer by layer: their operator, their gain, and what remains beside the signal."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import propagation
from tests.support.draws import GENERATORS
from tests.support.networks import Shape, unconstrained
from tests.support.outcomes import product, random_law

chains = st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple)
"""Widths d_l, ..., d_L."""
close = {"rtol": 1e-9, "atol": 1e-9}


class Pair:
    """Mean parts, the rests of two samples, and their last gradients as mean and fluctuation."""

    def __init__(self, widths, seed):
        rng = np.random.default_rng(seed)
        sizes = list(itertools.pairwise(widths))
        self.means, *self.rests = ([rng.standard_normal(size) for size in sizes] for _ in range(3))
        clean_z, noise_z, clean_j, noise_j = rng.standard_normal((4, widths[-1]))
        self.parts = (clean_z, noise_z), (clean_j, noise_j)
        self.g, self.h = clean_z + noise_z, clean_j + noise_j
        self.jacobians = [
            [mean + rest for mean, rest in zip(self.means, rests, strict=True)] for rests in self.rests
        ]
        self.average, self.gain = product(self.means), np.asarray(rng.standard_normal())
        self.operator = product(self.jacobians[0]).T @ product(self.jacobians[1])
        self.remainder = self.g @ self.operator @ self.h - self.gain * (self.g @ self.h)


PAIRS = st.builds(Pair, chains, GENERATORS)


@pytest.mark.equation("layer-gradients", "shared-signal", "app-beta-L")
@given(seed=GENERATORS, depth=st.integers(1, 3))
def test_layer_similarities_and_signal_match_networks(seed, depth):
    case = unconstrained(np.random.default_rng(seed), Shape(depth=depth, n_val=2, n_train=3))
    validation = [g[0][:, None, :] for g in case.validation.gradients]
    training = [g[0][None, :, :] for g in case.training.gradients]
    found = propagation.layer_similarities(validation, training)
    np.testing.assert_allclose(found, case.beta[0], **close)
    signal = propagation.shared_signal(validation[-1], training[-1])
    np.testing.assert_array_equal(found[-1], signal)


@pytest.mark.equation("output-fluctuation")
@given(seed=GENERATORS)
def test_fluctuations_are_centred(seed):
    outcomes, weights = random_law(np.random.default_rng(seed), 5, (3,))
    clean, noise = propagation.output_fluctuation(outcomes, weights)
    np.testing.assert_allclose(clean, weights @ outcomes, **close)
    np.testing.assert_allclose(clean + noise, outcomes, **close)


@pytest.mark.equation("app-g-l-decomp")
@given(PAIRS)
def test_four_parts_make_the_layer_gradient(pair):
    parts = propagation.gradient_decomposition(pair.means, pair.rests[0], *pair.parts[0])
    rest = product(pair.jacobians[0]) - pair.average
    expected = [operator @ vector for operator in (pair.average, rest) for vector in pair.parts[0]]
    for part, wanted in zip(parts, expected, strict=True):
        np.testing.assert_allclose(part, wanted, **close)


@pytest.mark.equation("app-M-def", "app-beta-decomp", "remainder", "app-eps-explicit")
@given(PAIRS)
def test_operator_and_remainder_match_their_formulas(pair):
    """For any number as gain; the printed remainder counts the fluctuations twice."""
    operator = propagation.similarity_operator(*pair.jacobians)
    np.testing.assert_allclose(operator, pair.operator, **close)
    signal, remainder = propagation.similarity_decomposition(operator, pair.gain, pair.g, pair.h)
    np.testing.assert_allclose(signal, pair.gain * (pair.g @ pair.h), **close)
    np.testing.assert_allclose(remainder, pair.remainder, **close)
    terms = propagation.remainder_terms(pair.means, *pair.rests, pair.gain, pair.g, pair.h)
    np.testing.assert_allclose(terms.sum(), pair.remainder, **close)
    isotropic = pair.average.T @ pair.average - pair.gain * np.eye(len(pair.g))
    np.testing.assert_allclose(terms[0], pair.g @ isotropic @ pair.h, **close)
    printed = propagation.printed_remainder(pair.means, *pair.rests, pair.gain, *pair.parts)
    (clean_z, _), (clean_j, _) = pair.parts
    twice = pair.g @ pair.operator @ pair.h - clean_z @ pair.operator @ clean_j
    np.testing.assert_allclose(printed, pair.remainder + twice, **close)


@pytest.mark.equation("trace-gain", "isotropic-gain")
@given(PAIRS)
def test_trace_gain_is_nearest_identity_multiple(pair):
    (width, last), gain = pair.average.shape, propagation.trace_gain(pair.means)
    flat, identity = (pair.average.T @ pair.average).reshape(-1), np.eye(last).reshape(-1, 1)
    assert gain == pytest.approx(np.linalg.lstsq(identity, flat, rcond=None)[0][0], rel=1e-9)
    assert propagation.isotropic_gain(pair.means) == pytest.approx(gain * last / width, rel=1e-9)
