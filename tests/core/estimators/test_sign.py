"""Positive helps: the sign of a score is the sign of what one small step does to the validation loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from tests.support.draws import GENERATORS
from tests.support.regression import Network
from tests.support.traces import trace

MOVES = {
    "ghost": ("all", True, lambda *sides: lai.ghost_scores(*sides)),
    "lli": ("last", True, lambda *sides: lai.lli_scores(*sides)),
    "lai": ("readouts", False, lambda *sides: lai.lai_scores(*sides)),
}
"""Per estimator: what moves, whether biases do, and its scores."""


@pytest.mark.equation("IP", "descent-meaning")
@pytest.mark.parametrize("estimator", sorted(MOVES))
@given(st.sampled_from(((3, 2), (3, 4, 2), (2, 5, 4, 3))), GENERATORS)
def test_small_steps_lower_loss_by_scores(backend, estimator, widths, seed):
    move, bias, scores = MOVES[estimator]
    generator = np.random.default_rng(seed)
    network = Network.random(widths, seed)
    x, y = generator.normal(size=(9, widths[0])), generator.normal(size=(9, widths[-1]))
    sides = [trace(network.trace(x[part], y[part], bias), backend) for part in (slice(0, 4), slice(4, 9))]
    predicted = backend.numpy(scores(*sides))
    for sample, score in enumerate(predicted, start=4):
        rate = 1e-5

        def after(step, sample=sample):
            return network.stepped(x[sample], y[sample], step, move).loss(x[:4], y[:4])

        lowered, halved = ((after(-step) - after(step)) / (2 * step) for step in (rate, rate / 2))
        # Central differences are off by the order of rate^2, as halving shows, and by rounding over rate.
        assert lowered == pytest.approx(score, abs=1e-5 * (1 + abs(score)) + 2 * abs(lowered - halved))
        here = network.loss(x[:4], y[:4])
        bent = abs(after(rate) + after(-rate) - 2 * here) / rate
        if abs(score) > 1e-2 + bent:
            assert np.sign(here - after(rate)) == np.sign(score)
