"""What the running text says of caches, costs, calibration, self-influence and SGD."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import influence
from lai_core.estimators import costs
from tests.support.draws import GENERATORS
from tests.support.networks import Networks, Shape, unconstrained
from tests.support.search import largest_margin

widths = st.lists(st.integers(1, 512), min_size=2, max_size=12)


def counted(widths):
    """Count vectors and matrix products one at a time, as a network keeps and makes them."""
    kept = {"ghost": 0, "lai": 0}
    passes = {"ghost": 0, "lai": 0}
    for index, (d_in, d_out) in enumerate(itertools.pairwise(widths)):
        last = index == len(widths) - 2
        kept["ghost"] += d_in + d_out
        kept["lai"] += d_in + (d_out if last else 0)
        passes["ghost"] += d_in * d_out + (d_in * d_out if index else 0)
        passes["lai"] += d_in * d_out
    return kept, passes


@pytest.mark.equation("cost-ratio")
@given(widths=widths)
def test_ghost_costs_less_than_twice_as_much_as_lai(widths):
    cost, (kept, passes) = costs.cost_ratio(widths), counted(widths)
    assert (cost.ghost_numbers, cost.lai_numbers) == (kept["ghost"], kept["lai"])
    assert (cost.ghost_passes, cost.lai_passes) == (passes["ghost"], passes["lai"])
    assert 1.0 <= cost.numbers_ratio < 2.0
    assert 1.0 <= cost.passes_ratio < 2.0


@pytest.mark.equation("cost-ratio")
@given(depth=st.integers(1, 40), width=st.integers(1, 512))
def test_ratios_at_equal_widths(depth, width):
    cost = costs.cost_ratio([width] * (depth + 1))
    assert cost.passes_ratio == pytest.approx((2 * depth - 1) / depth, rel=1e-12)
    assert cost.numbers_ratio == pytest.approx(2 * depth / (depth + 1), rel=1e-12)


@pytest.mark.equation("order-of-magnitude")
def test_counterexample_twelve_equal_layers_save_less_than_half():
    cost = costs.cost_ratio([64] * 13)
    assert (cost.passes_ratio, cost.numbers_ratio) == (23 / 12, 24 / 13)


@pytest.mark.equation("order-of-magnitude")
def test_counterexample_no_widths_reach_an_order_of_magnitude():
    def margin(widths):
        cost = costs.cost_ratio(widths)
        return max(cost.passes_ratio, cost.numbers_ratio)

    found = largest_margin(widths, margin)
    assert 1.5 < found < 2.0


@pytest.mark.parametrize("widths", [[3], [3, 0], [3, 2.0], [3, True]])
def test_widths_are_positive_whole_numbers(widths):
    with pytest.raises((TypeError, ValueError), match="widths"):
        costs.cost_ratio(widths)


@pytest.mark.equation("validation-cache")
def test_counterexample_two_short_vectors_do_not_determine_lai(backend):
    """Two validation samples with equal last inputs and output gradients, and different scores."""
    first, last, feedback = [[1.0], [0.0]], [[1.0], [1.0]], [[1.0], [1.0]]

    def trace(hidden, top, gradients):
        top_layer = lai.LayerTrace(backend.array(top), backend.array(gradients))
        return lai.Trace([lai.LayerTrace(backend.array(hidden)), top_layer])

    found = lai.lai_kernel(trace(first, last, feedback), trace([[1.0]], [[1.0]], [[1.0]]))
    assert backend.numpy(found)[:, 0].tolist() == [2.0, 1.0]
    alike = lai.lli_kernel(trace(first, last, feedback), trace([[1.0]], [[1.0]], [[1.0]]))
    assert backend.numpy(alike)[:, 0].tolist() == [1.0, 1.0]  # two short vectors are what LLI needs


@pytest.mark.equation("validation-cache", "aggregation")
@given(depth=st.integers(1, 3), seed=GENERATORS)
def test_a_summary_of_fixed_size_does_determine_lai(depth, seed):
    case = unconstrained(np.random.default_rng(seed), Shape(depth=depth, n_val=5))
    validation, training = (batch.trace() for batch in (case.validation, case.training))
    summary = lai.summarize(validation, "lai")
    entries = sum(int(np.prod(block.shape)) for blocks in summary.totals for block in blocks)
    inputs = [a.shape[-1] for a in case.validation.activations]
    assert entries == sum(inputs) * case.validation.gradients[-1].shape[-1]  # whatever n_val is
    expected = lai.lai_kernel(validation, training).sum(0)
    np.testing.assert_allclose(lai.lai_scores(summary, training), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("lightweight-calibration")
@given(widths=st.lists(st.integers(1, 4), min_size=2, max_size=4), seed=GENERATORS)
def test_layer_weights_remove_the_scale_of_linear_layers_with_one_output(backend, widths, seed):
    """There beta_l is one number times beta_L, and with those numbers for weights LAI is Ghost."""
    generator = np.random.default_rng(seed)
    sizes = [*widths, 1]
    chain = Networks(tuple(generator.normal(size=(1, d, below)) for below, d in itertools.pairwise(sizes)))
    batches = [
        chain.run(generator.normal(size=(1, n, sizes[0])), generator.normal(size=(1, n, 1))) for n in (2, 3)
    ]
    pairs = [[batch.gradients[index][0] for batch in batches] for index in range(len(widths))]
    beta = [validation @ training.T for validation, training in pairs]
    assume(beta[-1].any())
    weights = [float((b * beta[-1]).sum() / (beta[-1] ** 2).sum()) for b in beta]
    validation, training = (batch.trace(0, backend.array) for batch in batches)
    calibrated = backend.numpy(lai.lai_scores(validation, training, layer_weights=weights))
    ghost = backend.numpy(lai.ghost_scores(validation, training))
    np.testing.assert_allclose(calibrated, ghost, rtol=1e-7, atol=1e-9 * (1 + np.abs(ghost).max()))


@pytest.mark.equation("self-exclusion")
@given(n=st.integers(1, 6), p=st.integers(1, 4), seed=GENERATORS)
def test_own_and_other_votes_add_up_and_decide(backend, n, p, seed):
    gradients = np.random.default_rng(seed).normal(size=(n, p))
    own, others = (backend.numpy(v) for v in influence.self_votes(backend.array(gradients @ gradients.T)))
    np.testing.assert_allclose(own, (gradients**2).sum(-1), rtol=1e-9)
    rest = gradients.sum(0) - gradients
    np.testing.assert_allclose(others, (rest * gradients).sum(-1), rtol=1e-9, atol=1e-12)
    scores = gradients @ gradients.sum(0)
    decided = np.abs(scores) > 1e-9
    assert np.array_equal((scores < 0)[decided], (others < -own)[decided])


@pytest.mark.equation("self-exclusion", "self-influence")
@given(n=st.integers(2, 5), seed=GENERATORS)
def test_leaving_the_own_vote_out_is_what_exclude_self_does(backend, n, seed):
    generator = np.random.default_rng(seed)
    arrays = generator.normal(size=(n, 3)), generator.normal(size=(n, 2))
    trace = lai.Trace([lai.LayerTrace(*(backend.array(array) for array in arrays))])
    _, others = influence.self_votes(lai.ghost_kernel(trace, trace))
    scores = lai.ghost_scores(trace, trace, exclude_self=True)
    np.testing.assert_allclose(backend.numpy(scores), backend.numpy(others), rtol=1e-7, atol=1e-9)


@pytest.mark.equation("self-influence")
def test_a_sample_that_its_whole_batch_opposes_is_kept_by_its_own_vote(backend):
    """Three peers pull one way, weakly; the fourth opposes each of them and still scores above zero."""
    gradients = np.array([[1.0], [1.0], [1.0], [-4.0]])
    own, others = influence.self_votes(backend.array(gradients @ gradients.T))
    assert backend.numpy(others)[3] == -12.0
    assert backend.numpy(own)[3] + backend.numpy(others)[3] == 4.0
    trace = lai.Trace([lai.LayerTrace(backend.array(np.ones((4, 1))), backend.array(gradients))])
    assert backend.numpy(lai.lai_scores(trace, trace))[3] == 4.0
    assert backend.numpy(lai.lai_scores(trace, trace, exclude_self=True))[3] == -12.0


@pytest.mark.equation("sgd-match")
def test_counterexample_a_step_on_the_weights_goes_against_lai(backend):
    """W1 = (0, 1), W2 = 1/2, unit feedback: LAI is 1/2, and the loss's first-order decrease -1/4."""
    upper = np.array([[1.0]]), np.array([[-0.5]])
    inputs = np.array([[1.0, 1.0]]), np.array([[1.5, -0.5]])
    traces = [
        lai.Trace(
            [
                lai.LayerTrace(backend.array(x), backend.array([[0.5]])),
                lai.LayerTrace(backend.array(a), backend.array([[1.0]])),
            ]
        )
        for x, a in zip(inputs, upper, strict=True)
    ]
    assert backend.numpy(lai.lai_scores(*traces)).tolist() == [0.5]
    assert backend.numpy(lai.ghost_scores(*traces)).tolist() == [-0.25]
    rate, first, second = 1e-6, np.array([0.0, 1.0]), 0.5  # losses are the outputs: their gradient is 1
    moved = first - rate * second * inputs[1][0], second - rate * (inputs[1][0] @ first)
    decrease = second * (inputs[0][0] @ first) - moved[1] * (inputs[0][0] @ moved[0])
    assert decrease / rate == pytest.approx(-0.25, abs=1e-5)


@pytest.mark.equation("sgd-match", "lli")
@given(seed=GENERATORS)
def test_with_one_layer_lai_and_lli_and_ghost_are_the_sgd_score(backend, seed):
    case = unconstrained(np.random.default_rng(seed), Shape(depth=1))
    traces = [batch.trace(0, backend.array) for batch in (case.validation, case.training)]
    found = [backend.numpy(score(*traces)) for score in (lai.ghost_scores, lai.lai_scores, lai.lli_scores)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-9, atol=1e-12)
