"""Each hypothesis that a page states is needed: without it the statement fails, with these numbers."""

import itertools
import math

import numpy as np
import pytest

import lai_core as lai
from lai_core import assumptions, optimizers, propagation
from lai_core.estimators.sketches._variance import chance_of_a_shared_group


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


@pytest.mark.equation("ghost-lai-range")
def test_lai_understates_where_a_lower_layer_grows_a_counterexample():
    trace = lai.Trace([lai.LayerTrace(np.eye(1), 2 * np.eye(1)), lai.LayerTrace(np.eye(1), np.eye(1))])
    assert lai.lai_scores(trace, trace)[0] == 2.0
    assert lai.ghost_scores(trace, trace)[0] == 5.0


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


@pytest.mark.equation("separating-operator")
def test_the_product_form_may_hold_where_a_layer_does_not_separate():
    """A skip of weight zero: s_3 = w_3 s_2 + 0 s_1. The converse that a page once claimed is false."""
    first, second, skip = 3.0, 5.0, 0.0
    assert first * second + skip == first * second
    chain = propagation.backward_operator([np.array([[first]]), np.array([[second]])])
    assert np.ravel(chain)[0] == first * second
