"""Each hypothesis that a page states is needed: without it the statement fails, with these numbers."""

import itertools
import math

import numpy as np
import pytest

import lai_core as lai
from lai_core import assumptions, optimizers, propagation
from lai_core.estimators.sketches._variance import chance_of_a_shared_group


@pytest.mark.equation("decay-bounds-gain")
def test_noise_must_be_centred_given_the_gradient_a_counterexample():
    operators, gradients = [np.diag([2.0, 0.0]), np.diag([0.0, 2.0])], [np.eye(2)[1], np.eye(2)[0]]
    decayed = [a @ g for a, g in zip(operators, gradients, strict=True)]
    mean = sum(operators) / 2
    assert not np.any(decayed)  # A1 holds for every rho, and the noise has mean zero
    assert np.trace(mean.T @ mean) / 2 == 1.0


@pytest.mark.equation("gate-corrected")
@pytest.mark.parametrize("angle", [0.0, 0.3, 1.0, 2.5])
def test_the_last_gradients_must_not_know_the_columns_a_counterexample(angle):
    column = np.array([[math.cos(angle)], [math.sin(angle)]])
    hidden = np.ones((1, 1))
    output = hidden @ column.T  # the target is 0 and the loss is half the square: the gradient is the output
    ghost = lai.Trace([lai.LayerTrace(hidden, output @ column), lai.LayerTrace(hidden, output)])
    corrected = float((output @ output.T)[0, 0]) * (1 + 0.5)  # the gain is the squared norm over 2 outputs
    assert lai.ghost_scores(ghost, ghost)[0] == pytest.approx(2.0)
    assert corrected == pytest.approx(1.5)


@pytest.mark.equation("random-weights-variance")
def test_the_weights_must_not_know_the_gradient_above_a_counterexample():
    """Let g = W h with a law of W that has a normal law's second and fourth moments, 1 and 3."""
    weights, chances = np.array([-math.sqrt(3), 0.0, math.sqrt(3)]), np.array([1, 4, 1]) / 6
    assert chances @ weights**2 == pytest.approx(1)
    assert chances @ weights**4 == pytest.approx(3)
    gradient = weights  # W h at h = 1
    below = weights * gradient
    assert chances @ below**2 == pytest.approx(3)
    assert chances @ gradient**2 == pytest.approx(1)  # what m v beta says with v = 1


@pytest.mark.equation("sketch-permutation")
@pytest.mark.parametrize(("outputs", "width"), [(3, 2), (5, 2), (7, 3)])
def test_the_chance_of_a_shared_group_is_attained_where_runs_are_full_a_counterexample(outputs, width):
    run = math.ceil(outputs / width)
    assert (run - 1) * width == outputs - 1
    assert outputs % run
    groups = np.arange(outputs) // run
    shared = np.mean([groups[i] == groups[k] for i, k in itertools.permutations(range(outputs), 2)])
    assert shared == pytest.approx(chance_of_a_shared_group(outputs, width))
    assert shared < 1 / width


@pytest.mark.equation("relative-below-one")
def test_the_last_similarity_must_be_positive_a_counterexample():
    layers = [lai.LayerTrace(np.eye(1), np.zeros((1, 1))), lai.LayerTrace(np.zeros((1, 1)), np.eye(1))]
    trace = lai.Trace(layers)
    score, exact = lai.lai_scores(trace, trace)[0], lai.ghost_scores(trace, trace)[0]
    assert abs(exact - score) / abs(score) == 1.0


@pytest.mark.equation("random-truncation")
def test_probabilities_of_zero_leave_terms_out_a_counterexample():
    terms, chances = np.array([1.0, 2.0, -1.0]), np.array([0.0, 0.0, 1.0])
    stops = np.diff(chances, prepend=0.0)
    kept = sum(p * sum(terms[k:][chances[k:] > 0]) for k, p in enumerate(stops) if p)
    assert kept == -1.0
    assert terms.sum() == 2.0


@pytest.mark.equation("ghost-lai-range")
def test_lai_understates_where_a_lower_layer_grows_a_counterexample():
    trace = lai.Trace([lai.LayerTrace(np.eye(1), 2 * np.eye(1)), lai.LayerTrace(np.eye(1), np.eye(1))])
    assert lai.lai_scores(trace, trace)[0] == 2.0
    assert lai.ghost_scores(trace, trace)[0] == 5.0


@pytest.mark.equation("app-ghost-var")
def test_the_covariance_is_missing_without_any_shared_noise_a_counterexample():
    """A fixed layer with rows (1, 0) and (1, 0): its gain is 1, and it doubles the similarity."""
    layer, g_j = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([2.0, 0.0])
    assert propagation.isotropic_gain([layer]) == 1.0
    beta = np.array([(layer @ [x, 0.0] @ layer @ g_j, np.dot([x, 0.0], g_j)) for x in (0.0, 2.0)])
    noise = beta[:, 0] - beta[:, 1]
    assert beta.sum(1).var() == 36.0
    assert 4.0 * beta[:, 1].var() + noise.var() == 20.0


@pytest.mark.equation("gradient-norm-decay", "bounded-activations", "non-negative-alignment", "non-expansive")
def test_what_satisfies_and_what_violates_each_assumption():
    kept, halved = np.ones((3, 1)), np.array([[0.25], [0.5], [1.0]])
    assert assumptions.decay_rate(halved) == 0.5  # layers of norm 1/2
    assert assumptions.decay_rate(kept) == 1.0  # a residual block whose branch is 0

    def cosines(z, j):  # of gradients (L, n, d)
        norms = np.linalg.norm(z, axis=-1), np.linalg.norm(j, axis=-1)
        return assumptions.cosines(z @ np.swapaxes(j, 1, 2), *norms)

    same = np.random.default_rng(0).standard_normal((3, 1, 4))
    assert assumptions.smallest_cosine(cosines(same, same)) == pytest.approx(1.0)
    assert assumptions.alignment_excess(cosines(same, same)) == pytest.approx(0.0)
    labels = np.array([[[-0.3, 0.3]]]), np.array([[[0.6, -0.6]]])  # probabilities less one-hot labels
    assert assumptions.smallest_cosine(cosines(*labels)) == pytest.approx(-1.0)
    g = np.array([[1.0, 1.0]]), np.array([[1.0, -1.0]])
    narrow = [np.stack([side @ np.diag([1.0, 0.0]), side]) for side in g]
    assert assumptions.alignment_excess(cosines(*narrow)) == pytest.approx(1.0)
    turned = [np.stack([2.0 * side @ np.array([[0.0, 1.0], [-1.0, 0.0]]), side]) for side in g]
    assert assumptions.alignment_excess(cosines(*turned)) == pytest.approx(0.0)
    assert assumptions.activation_bound(np.array([[1.0, 3.0]])) == 3.0  # of a finite set, the largest norm


@pytest.mark.equation("variance-order", "lai-lower-variance")
@pytest.mark.parametrize(
    ("alpha", "lower", "ghost", "layer_aware"),
    [
        ((1, -1), (1 / 2, 1 / 2, 3 / 2, 3 / 2), 1 / 4, 0),  # no more varied below, and an alpha below 0
        ((1, 1), (1 / 2, 17 / 2, 3 / 2, 19 / 2), 73 / 4, 4),  # a gain of 1/2, and more varied below
    ],
)
def test_ghost_varies_more_where_a_hypothesis_fails_a_counterexample(alpha, lower, ghost, layer_aware):
    last = np.array([1.0, 1.0, 3.0, 3.0])
    assert np.cov(lower, last, ddof=0)[0, 1] == last.var() / 2  # the regression gain is 1/2
    assert np.var(alpha[0] * np.array(lower) + alpha[1] * last) == ghost
    assert np.var(sum(alpha) * last) == layer_aware
    assert ghost > layer_aware


@pytest.mark.equation("adam-direction")
def test_a_scale_for_each_output_is_not_adams_a_counterexample():
    validation = lai.Trace([lai.LayerTrace(np.array([[1.0, 10.0]]), np.ones((1, 1)))])
    training = lai.Trace([lai.LayerTrace(np.array([[2.0, -1.0]]), np.ones((1, 1)))])
    moments = np.array([1.0, 100.0])
    step = optimizers.adam_direction_scores(
        np.array([[1.0, 10.0]]), np.array([[2.0, -1.0]]), moments, epsilon=1e-12
    )
    score = lai.preconditioned_lai_scores(validation, training, np.ones(1), exponent=0.5, epsilon=1e-12)
    assert step[0] == pytest.approx(1.0)
    assert score[0] == pytest.approx(-8.0)


@pytest.mark.equation("selection-regret")
def test_a_step_that_divides_by_the_number_kept_has_another_regret_a_counterexample():
    values = np.array([10.0, 1.0])
    both = lai.keep_positive(values) @ values
    first = lai.keep_positive(np.array([10.0, -1.0])) @ values
    assert (both, first) == (5.5, 10.0)


@pytest.mark.equation("variance-order")
def test_the_order_of_variances_needs_aligned_activations_a_counterexample():
    last = np.array([1.0, -1.0])
    alpha, similarities = np.array([1.0, -1.0]), np.stack([-last, last])
    assert np.all(similarities.std(axis=1) <= last.std())
    assert np.var(alpha @ similarities) == 4.0
    assert np.var(alpha.sum() * last) == 0.0


@pytest.mark.equation("calibrated-model")
def test_the_models_slope_is_that_through_the_origin_a_counterexample():
    """Draw (1, 0) and (2, 1) with equal chances; M is diag(1, 0). With an intercept the slope is less."""
    gradients = np.array([[1.0, 0.0], [2.0, 1.0]])
    moment, operator = gradients.T @ gradients / 2, np.diag([1.0, 0.0])
    pairs = [(z @ operator @ j, z @ j) for z in gradients for j in gradients]
    lower, last = np.array(pairs).T
    origin = (lower @ last) / (last @ last)
    assert origin == pytest.approx(np.trace(operator @ moment @ moment) / np.trace(moment @ moment))
    assert np.cov(lower, last, ddof=0)[0, 1] / np.var(last) != pytest.approx(origin)


@pytest.mark.equation("separating-operator")
def test_the_product_form_may_hold_where_a_layer_does_not_separate():
    """A skip of weight zero: s_3 = w_3 s_2 + 0 s_1. The converse that a page once claimed is false."""
    first, second, skip = 3.0, 5.0, 0.0
    assert first * second + skip == first * second
    chain = propagation.backward_operator([np.array([[first]]), np.array([[second]])])
    assert np.ravel(chain)[0] == first * second
