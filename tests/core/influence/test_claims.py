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


@pytest.mark.equation("cost-ratio", "order-of-magnitude")
@given(st.lists(st.integers(1, 512), min_size=2, max_size=12))
def test_ghost_costs_less_than_twice_as_much_as_lai(widths):
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
def test_counterexample_two_short_vectors_do_not_determine_lai():
    """Two validation samples with equal last inputs and output gradients, and different scores."""
    first, last, feedback = [[1.0], [0.0]], [[1.0], [1.0]], [[1.0], [1.0]]

    sides = [
        lai.Trace([lai.LayerTrace(np.array(hidden)), lai.LayerTrace(np.array(top), np.array(gradients))])
        for hidden, top, gradients in ((first, last, feedback), [[[1.0]]] * 3)
    ]
    assert lai.lai_kernel(*sides)[:, 0].tolist() == [2.0, 1.0]
    assert lai.lli_kernel(*sides)[:, 0].tolist() == [1.0, 1.0]  # two short vectors are what LLI needs


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
def test_layer_weights_remove_the_scale_of_linear_layers_with_one_output(widths, seed):
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
    validation, training = (batch.trace() for batch in batches)
    calibrated = lai.lai_scores(validation, training, layer_weights=weights)
    ghost = lai.ghost_scores(validation, training)
    np.testing.assert_allclose(calibrated, ghost, rtol=1e-7, atol=1e-9 * (1 + np.abs(ghost).max()))


@pytest.mark.equation("self-exclusion")
@given(n=st.integers(1, 6), p=st.integers(1, 4), seed=GENERATORS)
def test_own_and_other_votes_add_up_and_decide(n, p, seed):
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


@pytest.mark.equation("self-exclusion", "self-influence")
@given(n=st.integers(2, 5), seed=GENERATORS)
def test_leaving_the_own_vote_out_is_what_exclude_self_does(n, seed):
    generator = np.random.default_rng(seed)
    arrays = generator.normal(size=(n, 3)), generator.normal(size=(n, 2))
    trace = lai.Trace([lai.LayerTrace(*arrays)])
    _, others = influence.self_votes(lai.ghost_kernel(trace, trace))
    scores = lai.ghost_scores(trace, trace, exclude_self=True)
    np.testing.assert_allclose(scores, others, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("self-influence")
def test_a_sample_that_its_whole_batch_opposes_is_kept_by_its_own_vote():
    """Three peers pull one way, weakly; the fourth opposes each of them and still scores above zero."""
    gradients = np.array([[1.0], [1.0], [1.0], [-4.0]])
    own, others = influence.self_votes(gradients @ gradients.T)
    assert others[3] == -12.0
    assert own[3] + others[3] == 4.0
    trace = lai.Trace([lai.LayerTrace(np.ones((4, 1)), gradients)])
    assert lai.lai_scores(trace, trace)[3] == 4.0
    assert lai.lai_scores(trace, trace, exclude_self=True)[3] == -12.0


@pytest.mark.equation("sgd-match")
def test_counterexample_a_step_on_the_weights_goes_against_lai():
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


@pytest.mark.equation("sgd-match", "lli")
@given(seed=GENERATORS)
def test_with_one_layer_lai_and_lli_and_ghost_are_the_sgd_score(seed):
    case = unconstrained(np.random.default_rng(seed), Shape(depth=1))
    traces = [batch.trace() for batch in (case.validation, case.training)]
    found = [score(*traces) for score in (lai.ghost_scores, lai.lai_scores, lai.lli_scores)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[0], found[2], rtol=1e-9, atol=1e-12)
