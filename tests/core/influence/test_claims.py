"""What the running text says of caches, costs, calibration, self-influence and SGD."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import influence
from lai_core.estimators import costs
from tests.support.draws import GENERATORS


@pytest.mark.equation("cost-ratio", "order-of-magnitude")
@given(st.lists(st.integers(1, 512), min_size=2, max_size=12))
def test_ghost_costs_below_twice_lai(widths):
    """Vectors and matrix products counted one at a time, as a network keeps and makes them."""
    pairs = list(itertools.pairwise(widths))
    inputs, outputs = sum(widths[:-1]), sum(widths[1:])
    forward, back = sum(x * y for x, y in pairs), sum(x * y for x, y in pairs[1:])
    cost = costs.cost_ratio(widths)
    assert (cost.ghost_numbers, cost.lai_numbers) == (inputs + outputs, inputs + widths[-1])
    assert (cost.ghost_passes, cost.lai_passes) == (forward + back, forward)
    assert cost.numbers_ratio == pytest.approx((inputs + outputs) / (inputs + widths[-1]), rel=1e-12)
    assert cost.passes_ratio == pytest.approx((forward + back) / forward, rel=1e-12)
    assert min(cost.numbers_ratio, cost.passes_ratio) >= 1.0
    assert max(cost.numbers_ratio, cost.passes_ratio) < 2.0


@pytest.mark.equation("validation-cache")
def test_counterexample_last_vectors_underdetermine_lai():
    """Two validation samples with equal last inputs and output gradients, and different scores."""
    first, last, feedback = [[1.0], [0.0]], [[1.0], [1.0]], [[1.0], [1.0]]

    sides = [
        lai.Trace([lai.LayerTrace(np.array(hidden)), lai.LayerTrace(np.array(top), np.array(gradients))])
        for hidden, top, gradients in ((first, last, feedback), [[[1.0]]] * 3)
    ]
    assert lai.lai_kernel(*sides)[:, 0].tolist() == [2.0, 1.0]
    assert lai.lli_kernel(*sides)[:, 0].tolist() == [1.0, 1.0]  # two short vectors are what LLI needs


@pytest.mark.equation("self-exclusion")
@given(n=st.integers(1, 6), p=st.integers(1, 4), seed=GENERATORS)
def test_own_and_others_votes_add_up(n, p, seed):
    """Of columns: a kernel under a preconditioner of one side need not be symmetric."""
    rng = np.random.default_rng(seed)
    gradients, any_kernel = rng.normal(size=(n, p)), rng.normal(size=(n, n))
    own, others = influence.self_votes(any_kernel)
    np.testing.assert_allclose((own, own + others), (np.diag(any_kernel), any_kernel.sum(0)), atol=1e-12)
    own, others = influence.self_votes(gradients @ gradients.T)
    np.testing.assert_allclose(own, (gradients**2).sum(-1), rtol=1e-9)
    rest = gradients.sum(0) - gradients
    np.testing.assert_allclose(others, (rest * gradients).sum(-1), rtol=1e-9, atol=1e-12)
    scores = gradients @ gradients.sum(0)
    decided = np.abs(scores) > 1e-9
    assert np.array_equal((scores < 0)[decided], (others < -own)[decided])


@pytest.mark.equation("self-influence")
def test_self_votes_keep_unanimously_opposed_samples():
    """Three peers pull one way, weakly; the fourth opposes each of them and still scores above zero."""
    gradients = np.array([[1.0], [1.0], [1.0], [-4.0]])
    own, others = influence.self_votes(gradients @ gradients.T)
    assert others[3] == -12.0
    assert own[3] + others[3] == 4.0
    trace = lai.Trace([lai.LayerTrace(np.ones((4, 1)), gradients)])
    assert lai.lai_scores(trace, trace)[3] == 4.0
    assert lai.lai_scores(trace, trace, exclude_self=True)[3] == -12.0


@pytest.mark.equation("sgd-match")
def test_counterexample_weight_steps_oppose_lai():
    """W1 = (0, 1), W2 = 1/2, unit feedback: LAI is 1/2, and the loss's first-order decrease -1/4."""
    upper = np.array([[1.0]]), np.array([[-0.5]])
    inputs = np.array([[1.0, 1.0]]), np.array([[1.5, -0.5]])
    traces = [
        lai.Trace([lai.LayerTrace(x, np.array([[0.5]])), lai.LayerTrace(a, np.array([[1.0]]))])
        for x, a in zip(inputs, upper, strict=True)
    ]
    assert lai.lai_scores(*traces).tolist() == [0.5]
    assert lai.ghost_scores(*traces).tolist() == [-0.25]
    rate, first, second = 1e-6, np.array([0.0, 1.0]), 0.5  # losses are the outputs: their gradient is 1
    moved = first - rate * second * inputs[1][0], second - rate * (inputs[1][0] @ first)
    decrease = second * (inputs[0][0] @ first) - moved[1] * (inputs[0][0] @ moved[0])
    assert decrease / rate == pytest.approx(-0.25, abs=1e-5)
