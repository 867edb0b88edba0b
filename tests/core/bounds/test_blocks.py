"""The least regret that a certificate promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import bounds

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
