"""What the sign of a score decides, and which rule follows from it."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lai_core import influence
from tests.support.draws import GENERATORS

sizes = st.integers(1, 5)


def quadratic(p, seed):
    """Return a symmetric curvature, its largest absolute eigenvalue and two gradients."""
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(p, p))
    curvature = root + root.T
    smoothness = float(np.abs(np.linalg.eigvalsh(curvature)).max())
    return curvature, smoothness, generator.normal(size=p), generator.normal(size=(4, p))


def change(curvature, slope, gradient, rate):
    """Return by how much a step along minus `gradient` changes the quadratic loss."""
    return -rate * slope @ gradient + rate**2 * gradient @ curvature @ gradient / 2


@pytest.mark.equation("descent-meaning")
@given(p=sizes, seed=GENERATORS, rate=st.sampled_from((0.01, 0.5, 3.0)))
def test_loss_changes_stay_within_the_remainder(p, seed, rate):
    curvature, smoothness, slope, gradients = quadratic(p, seed)
    scores = influence.inner_product_scores(slope[None], gradients)
    bound = influence.descent_remainder(gradients, learning_rate=rate, smoothness=smoothness)
    changes = np.array([change(curvature, slope, gradient, rate) for gradient in gradients])
    missed = np.abs(changes + rate * scores)
    assert np.all(missed <= bound * (1 + 1e-9) + 1e-12)


@pytest.mark.equation("descent-meaning")
@given(p=sizes, seed=GENERATORS, share=st.floats(0.01, 0.999))
def test_scores_decide_below_the_certified_rate(p, seed, share):
    curvature, smoothness, slope, gradients = quadratic(p, seed)
    assume(smoothness > 0)
    scores = influence.inner_product_scores(slope[None], gradients)
    rates = influence.certified_learning_rate(scores, gradients, smoothness=smoothness)
    for gradient, score, rate in zip(gradients, scores, rates, strict=True):
        assert change(curvature, slope, gradient, share * rate) * np.sign(score) <= 1e-12


@pytest.mark.equation("descent-meaning")
def test_loss_is_unchanged_at_certified_rates():
    scores, gradients = np.array([3.0, 0.0, -0.5]), np.array([[1.0, 2.0], [0.0, 0.0], [0.5, 0.0]])
    rates = influence.certified_learning_rate(scores, gradients, smoothness=4.0)
    assert rates.tolist() == [0.3, 0.0, 1.0]  # 2 * 3 / (4 * 5); a gradient of zero moves nothing
    assert -rates[0] * 3.0 + rates[0] ** 2 * 4.0 * 5.0 / 2 == 0.0
