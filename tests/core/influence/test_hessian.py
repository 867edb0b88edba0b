"""Eq. 1 and 2 on explicit gradients: the sign of removal, retraining, and the first-order change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core import influence
from tests.support.draws import GENERATORS

SHAPES = st.tuples(st.integers(1, 3), st.integers(3, 6), st.integers(1, 5))
"""Validation samples, training samples, parameters."""


class Quadratics:
    """Losses `theta^T A_i theta / 2 - b_i^T theta` with random positive definite sums."""

    def __init__(self, shape, seed, damping=0.0):
        generator = np.random.default_rng(seed)
        n_val, n_train, p = shape
        roots = generator.normal(size=(n_val + n_train, p, p))
        self.matrices = roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(p)
        self.vectors = generator.normal(size=(n_val + n_train, p))
        self.n_val, self.damping = n_val, damping
        self.minimiser = self.trained(np.ones(n_train))

    def trained(self, weights):
        """Minimise the weighted training loss and the ridge penalty."""
        hessian = np.einsum("i,ijk->jk", weights, self.matrices[self.n_val :])
        hessian += self.damping * np.eye(len(hessian))
        return np.linalg.solve(hessian, weights @ self.vectors[self.n_val :])

    def validation_loss(self, theta):
        a, b = self.matrices[: self.n_val].sum(0), self.vectors[: self.n_val].sum(0)
        return theta @ a @ theta / 2 - b @ theta

    def gradients(self, theta):
        """Return every sample's own gradient, validation samples first."""
        return self.matrices @ theta - self.vectors

    def split(self):
        """Return validation and training gradients at the minimiser, and the summed training Hessian."""
        gradients = self.gradients(self.minimiser)
        return gradients[: self.n_val], gradients[self.n_val :], self.matrices[self.n_val :].sum(0)

    def retrained_without(self, left_out, by=1.0):
        """Return the minimiser with a sample's weight lowered from 1 by this much."""
        weights = np.ones(len(self.matrices) - self.n_val)
        weights[left_out] -= by
        return self.trained(weights)


@pytest.mark.equation("removal-influence", "influence")
@given(shape=SHAPES, seed=GENERATORS, damping=st.sampled_from((0.0, 0.7)))
def test_removal_is_the_derivative_of_retraining(shape, seed, damping):
    """What is printed is the derivative of counting a sample more."""
    problem = Quadratics(shape, seed, damping)
    scores = influence.removal_influence(*problem.split(), damping=damping)
    printed = influence.printed_influence(*problem.split(), damping=damping)
    np.testing.assert_allclose(printed, -scores, rtol=1e-12)
    step = 1e-5
    for left_out, score in enumerate(scores):
        ahead, behind = (
            problem.validation_loss(problem.retrained_without(left_out, by)) for by in (step, -step)
        )
        np.testing.assert_allclose((ahead - behind) / (2 * step), score, rtol=1e-4, atol=1e-6)


@pytest.mark.equation("IP")
@given(shape=SHAPES, seed=GENERATORS)
def test_identity_hessian_gives_inner_products(shape, seed):
    validation, training, _ = Quadratics(shape, seed).split()
    scores = influence.inner_product_scores(validation, training)
    removed = influence.removal_influence(validation, training, np.eye(shape[2]))
    np.testing.assert_allclose(scores, removed, rtol=1e-9)
    np.testing.assert_allclose(scores, training @ validation.sum(0), rtol=1e-9, atol=1e-12)


@pytest.mark.equation("IP")
def test_counterexample_dropping_the_hessian_reverses_rankings():
    """The validation gradient is no eigenvector of the Hessian, and two samples change places."""
    validation, training = np.array([[1.0, 1.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])
    hessian = np.array([[4.0, 0.0], [0.0, 1.0]])
    assert influence.inner_product_scores(validation, training).tolist() == [2.0, 1.0]
    assert influence.removal_influence(validation, training, hessian).tolist() == [0.5, 1.0]
