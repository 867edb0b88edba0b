"""Each hypothesis that a page states is needed: without it the statement fails, with these numbers."""

import itertools
import math

import numpy as np
import pytest

from lai_core import assumptions
from lai_core.estimators.sketches._variance import chance_of_a_shared_group


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
