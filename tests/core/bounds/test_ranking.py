"""What selecting by an approximate score costs."""

import numpy as np
import pytest
from hypothesis import example, given

from lai_core import bounds
from tests.support.entries import halves
from tests.support.inequalities import at_most, hunt


@pytest.mark.equation("selection-regret")
@given(halves((2, 5)))
@example(np.array([[-1.0, 0.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.5]]))
@example(np.array([[7.0, 0.0, 5.0, 1.0, 6.0], [1.0] * 5]))
def test_rescaled_score_distances_bound_selection_regret(scores):
    exact, approximate = scores
    regret = bounds.selection_regret(exact, approximate)
    best = np.maximum(exact, 0).sum() - exact[approximate > 0].sum()
    np.testing.assert_allclose(regret, best, rtol=1e-9, atol=1e-12)
    bound = bounds.selection_regret_bound(exact, approximate)
    hunt(regret, bound)
    assert at_most(regret, bound)
    scales = np.append(np.linspace(0.1, 5, 30), 0.0)
    breaks = exact[approximate != 0] / approximate[approximate != 0]
    scales = np.append(scales, breaks[breaks > 0])
    distances = np.abs(exact - scales[:, None] * approximate).sum(1)
    np.testing.assert_allclose(bound, distances.min(), rtol=1e-9, atol=1e-12)
