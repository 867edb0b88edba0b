"""Values by hand where random numbers seldom go: ties, zeros, signs, and matrices that are not square."""

import numpy as np
import pytest

import lai_core as lai
from lai_core import assumptions, bounds, influence, optimizers, propagation, shapley


@pytest.mark.equation("jacobian-noise-bound")
def test_the_noise_gain_of_a_tall_jacobian_is_that_of_its_rows():
    """The rests have two rows and one column: the energy is a sum over rows, here two of 1."""
    outcomes = np.array([[[1.0], [1.0]], [[-1.0], [-1.0]]])
    _, noise = propagation.measured_gains([(outcomes, np.array([0.5, 0.5]))])
    assert noise[0] ** 2 == pytest.approx(2.0)
    independent = np.array([[[s], [t]] for s in (1.0, -1.0) for t in (1.0, -1.0)])
    _, noise = propagation.measured_gains([(independent, np.full(4, 0.25))])
    assert noise[0] ** 2 == pytest.approx(2.0)  # the other way round the mean is the identity, of norm 1


@pytest.mark.equation("concordance")
def test_equal_scores_and_scores_of_zero_are_in_no_certain_order():
    order = bounds.certain_order(np.array([1.0, 1.0, 0.0, 0.0]), low=1.0, high=1.0)
    assert order.tolist() == [[False, False, True, True]] * 2 + [[False] * 4] * 2


@pytest.mark.equation("sign-agreement")
def test_a_kernel_of_zeros_and_a_draw_have_no_certain_sign():
    kernel = np.array([[0.0, 1.0, 1.0], [0.0, -1.0, 0.0]])
    assert bounds.certain_sign(kernel, low=1.0, high=1.0).tolist() == [False, False, True]


@pytest.mark.equation("lai-two-sided")
def test_negative_similarities_do_not_shrink_the_bound_of_the_gap():
    assert bounds.lai_gap_bound(np.array([[-1.0], [2.0]]), C_a=2.0, depth=3)[0] == 4.0 * 2 * 3.0


@pytest.mark.equation("lai-nearer-than-lli")
def test_lai_and_lli_that_are_equal_are_a_tie():
    alpha = np.array([[[1.0], [-1.0]], [[1.0], [1.0]]])
    beta = np.array([[[1.0], [0.0]], [[1.0], [1.0]]])
    assert bounds.mean_ratio(alpha, beta)[0] == 0.5


@pytest.mark.equation("relative-limit")
def test_the_limit_of_the_relative_error_is_a_size():
    alpha = np.array([[[-0.5]], [[1.0]]])
    assert bounds.relative_limit(alpha, np.array([[1.0]]))[0] == 1.0  # |1 - 1 / (1 - 1/2)|


@pytest.mark.equation("rank-flip")
def test_ties_are_not_reversed():
    assert not np.any(bounds.reversed_pairs(np.array([2.0, 1.0]), np.array([1.0, 1.0])))
    assert not np.any(bounds.reversed_pairs(np.array([1.0, 1.0]), np.array([2.0, 1.0])))
    assert bounds.reversed_pairs(np.array([2.0, 1.0]), np.array([1.0, 2.0])).tolist() == [
        [False, True],
        [False, False],
    ]


def report(hidden, last, **options):
    layers = [
        lai.LayerTrace(np.array(hidden), np.ones((len(hidden), 1))),
        lai.LayerTrace(np.array(last), np.ones((len(last), 1))),
    ]
    trace = lai.Trace(layers)
    return assumptions.measure_assumptions(trace, trace, **options)


@pytest.mark.equation("lai-lower-bound")
def test_alpha_bar_is_the_last_layers_smallest_similarity():
    found = report([[0.5], [-0.5]], [[2.0], [3.0]])
    assert found.alpha_bar == 4.0
    assert found.smallest_alpha == -0.25


@pytest.mark.equation("app-relative-conservative")
@pytest.mark.parametrize(("similarity", "agree"), [(-0.39, True), (-0.41, False)])
def test_the_tolerance_of_the_embeddings_sign_is_in_their_own_unit(similarity, agree):
    found = report([[1.0, 0.0], [similarity, 1.0]], [[2.0, 0.0], [0.0, 2.0]], tolerance=0.1)
    assert found.C_a == 2.0
    assert bool(found.embeddings_agree) is agree


@pytest.mark.equation("adam-derivative")
@pytest.mark.parametrize("norm_epsilon", [0.0, 0.5])
@pytest.mark.parametrize("size", [0.8, 2.0])
def test_clipping_differentiates_with_what_is_added_to_the_norm(norm_epsilon, size):
    """At a norm of 0.8, clipped at 1, an epsilon of 0.5 switches clipping on: 0.8 + 0.5 > 1."""
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(4)
    mean = size * direction / np.linalg.norm(direction)
    gradients = np.stack([mean + rest for rest in (lambda r: [r, -r])(rng.standard_normal(4))])
    adam = optimizers.Adam(learning_rate=0.1, max_norm=1.0, norm_epsilon=norm_epsilon)
    parameters, slope = rng.standard_normal(4), rng.standard_normal(4)
    state = (0.1 * rng.standard_normal(4), rng.uniform(0.5, 1, 4))

    def stepped(weights):
        return optimizers.adam_step(parameters, weights @ gradients, *state, adam=adam, step=3)[0]

    weights = np.full(2, 0.5)
    found = optimizers.adam_derivative_scores(
        slope, gradients, parameters, weights @ gradients, *state, adam=adam, step=3
    )
    for sample, shift in enumerate(np.eye(2) * 1e-6):
        expected = -slope @ (stepped(weights + shift) - stepped(weights - shift)) / 2e-6 / adam.learning_rate
        assert found[sample] == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.equation("adam-derivative")
@pytest.mark.parametrize("norm", [0.4, 0.8, 2.0])
def test_a_gradient_is_clipped_by_its_norm_and_the_epsilon(norm):
    """As torch does: multiplied by max_norm / (norm + epsilon), never by more than 1."""
    state = np.zeros(2), np.array([0.6, 0.8]) * norm, np.ones(2), np.ones(2)
    clipped = (state[0], state[1] * min(1.0, 1.0 / (norm + 0.5)), *state[2:])
    found = optimizers.adam_step(*state, adam=optimizers.Adam(max_norm=1.0, norm_epsilon=0.5), step=1)
    expected = optimizers.adam_step(*clipped, adam=optimizers.Adam(), step=1)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)


@pytest.mark.equation("gradient1")
@pytest.mark.parametrize("memory_budget", [392, 800, 1600])
def test_pairs_that_are_cut_over_validation_samples_add_up(memory_budget):
    """Wide layers of few samples go pair by pair; 392 bytes hold one pair. The sums are below."""
    validation = np.arange(24.0).reshape(3, 8)
    training = np.arange(16.0).reshape(2, 8)
    found = lai.ghost_scores(
        lai.Trace([lai.LayerTrace(validation - 10, validation % 5 - 2)]),
        lai.Trace([lai.LayerTrace(training % 7 - 3, training % 3 - 1)]),
        memory_budget=memory_budget,
    )
    assert found.tolist() == [0 - 39 + 11, -39 - 6 - 38]


@pytest.mark.equation("non-expansive")
def test_alignment_that_stays_the_same_is_not_more_and_one_use_of_a_named_matrix_is_not_shared():
    layers = [lai.LayerTrace(np.ones((1, 1)), np.ones((1, 1)), weight=name) for name in ("below", "top")]
    report = assumptions.measure_assumptions(lai.Trace(layers), lai.Trace(layers), tolerance=0.0)
    assert float(report.excess) == 0.0
    assert bool(report.non_expansive_holds)


@pytest.mark.equation("self-exclusion")
def test_votes_are_those_of_validation_samples_for_each_training_sample():
    """Columns, not rows: a kernel under a preconditioner of one side need not be symmetric."""
    own, others = influence.self_votes(np.array([[4.0, 1.0, 0.0], [2.0, 9.0, 5.0], [3.0, 0.0, 7.0]]))
    assert (own.tolist(), others.tolist()) == ([4.0, 9.0, 7.0], [5.0, 1.0, 5.0])


@pytest.mark.equation("descent-meaning")
def test_the_certified_rate_of_small_gradients_and_of_none():
    gradients = np.array([[0.5, 0.0], [0.0, 0.0]])
    rates = influence.certified_learning_rate(np.array([-0.5, 0.0]), gradients, smoothness=2.0)
    assert rates.tolist() == [2.0, 0.0]


@pytest.mark.equation("app-relative-conservative")
def test_the_relative_bound_multiplies_norms():
    """C_a^2 / alpha = 8; the norms' products are 6 and 12 over a beta of 9; rho^2 + rho^4 = 5/16."""
    bound = bounds.relative_conservative_bound(
        np.array([[4.0], [5.0]]),
        np.array([2.0, 4.0]),
        np.array([3.0]),
        rho=0.5,
        C_a=2.0,
        alpha_bar=0.5,
        depth=3,
    )
    assert bound[0] == 8 * (2 + 18 / 9 * 5 / 16)


@pytest.mark.equation("jacobian-noise-variance")
def test_moments_of_a_gradient_with_a_dead_entry():
    """The Jacobian is 1 or 3 times the identity: a mean of 2 and a variance of 1 for each unit squared."""
    laws = [(np.stack([np.eye(2), 3 * np.eye(2)]), np.array([0.5, 0.5]))]
    mean, covariance = propagation.propagated_moments(laws, np.array([0.0, 5.0]))
    assert (mean.tolist(), covariance.tolist()) == ([0.0, 10.0], [[0.0, 0.0], [0.0, 25.0]])


@pytest.mark.equation("layer-gradients")
def test_a_network_of_one_layer_has_one_similarity():
    found = propagation.layer_similarities([np.array([1.0, 2.0])], [np.array([3.0, 4.0])])
    assert found.tolist() == [11.0]


def test_as_many_players_as_are_said_are_enumerated(monkeypatch):
    assert shapley.MOST_PLAYERS == 16
    monkeypatch.setattr(shapley, "MOST_PLAYERS", 2)
    start, gradients = np.zeros(1), np.array([[1.0], [2.0], [3.0]])
    values = shapley.one_step_shapley(lambda at: at[0], start, gradients[:2], learning_rate=1.0)
    assert values.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="expected at most 2 samples to enumerate, got 3"):
        shapley.one_step_shapley(lambda at: at[0], start, gradients, learning_rate=1.0)


@pytest.mark.equation("relative-below-one")
def test_the_relative_error_is_that_of_the_validation_sample_with_the_least_share_at_the_top():
    alpha = np.array([[[1.0], [3.0]], [[1.0], [1.0]]])  # the last layer's shares are 1/2 and 1/4
    assert bounds.relative_error_bound(alpha)[0] == 0.75
