"""Scores along Adam's step: the printed scaling, the direction, and the derivative of one whole step."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lai_core import optimizers
from lai_core.optimizers import Adam
from tests.support.draws import GENERATORS

sizes = st.tuples(st.integers(1, 3), st.integers(1, 4))
"""Training samples and parameters."""
settings = st.builds(
    Adam,
    learning_rate=st.sampled_from((1e-3, 0.1)),
    beta1=st.sampled_from((0.0, 0.9)),
    beta2=st.sampled_from((0.95, 0.999)),
    epsilon=st.sampled_from((1e-8, 1e-2)),
    weight_decay=st.sampled_from((0.0, 0.3)),
    decoupled=st.booleans(),
    max_norm=st.sampled_from((None, 0.2, 0.8, 50.0)),
    norm_epsilon=st.sampled_from((1e-6, 0.1)),
)
steps = st.sampled_from((1, 2, 30))


class Training:
    """A quadratic validation loss, samples' gradients, and Adam in the middle of a run, by torch."""

    def __init__(self, shape, seed, step):
        n, p = shape
        generator = np.random.default_rng(seed)
        self.theta, self.gradients = generator.normal(size=p), generator.normal(size=(n, p))
        root = generator.normal(size=(p, p))
        self.matrix, self.vector, self.step = root @ root.T, generator.normal(size=p), step
        started = 0.0 if step == 1 else 1.0
        self.first = generator.normal(size=p) * started * 0.3
        self.second = generator.uniform(0.1, 1.0, p) * started

    def loss(self, theta):
        return theta @ self.matrix @ theta / 2 - self.vector @ theta

    def slope(self, theta):
        return self.matrix @ theta - self.vector

    def stepped(self, adam, weights):
        """Take the step on the weighted gradient with torch's own optimizer; clip as torch says."""
        parameter = torch.nn.Parameter(torch.from_numpy(self.theta.copy()))
        kind = torch.optim.AdamW if adam.decoupled else torch.optim.Adam
        optimizer = kind(
            [parameter],
            lr=adam.learning_rate,
            betas=(adam.beta1, adam.beta2),
            eps=adam.epsilon,
            weight_decay=adam.weight_decay,
        )
        optimizer.state[parameter] = {
            "step": torch.tensor(float(self.step - 1)),
            "exp_avg": torch.from_numpy(self.first.copy()),
            "exp_avg_sq": torch.from_numpy(self.second.copy()),
        }
        gradient = weights @ self.gradients
        if adam.max_norm is not None:
            gradient = (
                gradient * adam.max_norm / max(adam.max_norm, np.linalg.norm(gradient) + adam.norm_epsilon)
            )
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
        state = optimizer.state[parameter]
        return parameter.detach().numpy(), state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()

    def arrays(self, weights):
        return self.theta, weights @ self.gradients, self.first, self.second

    def scores(self, adam, weights):
        slope = self.slope(self.stepped(adam, weights)[0])
        return optimizers.adam_derivative_scores(
            slope, self.gradients, *self.arrays(weights), adam=adam, step=self.step
        )

    def differences(self, adam, weights, tiny=1e-6):
        """Return, per sample, what moving its weight does to the loss, and how far rounding may be off."""
        for nudge in tiny * np.eye(len(weights)):
            ahead, behind = (self.loss(self.stepped(adam, weights + s * nudge)[0]) for s in (1, -1))
            rounding = np.finfo(float).eps * abs(ahead) / tiny / adam.learning_rate
            yield -(ahead - behind) / (2 * tiny) / adam.learning_rate, rounding


@pytest.mark.equation("adam-derivative")
@given(shape=sizes, adam=settings, step=steps, seed=GENERATORS)
def test_steps_match_another_implementation(shape, adam, step, seed):
    training = Training(shape, seed, step)
    weights = np.full(shape[0], 1 / shape[0])
    found = optimizers.adam_step(*training.arrays(weights), adam=adam, step=step)
    for part, wanted in zip(found, training.stepped(adam, weights), strict=True):
        np.testing.assert_allclose(part, wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("adam-derivative", "adam-needs-moments")
@given(shape=sizes, adam=settings, step=st.sampled_from((2, 30)), seed=GENERATORS)
def test_scores_match_weight_finite_differences(shape, adam, step, seed):
    training = Training(shape, seed, step)
    weights = np.full(shape[0], 1 / shape[0])
    scores = training.scores(adam, weights)
    for score, (slope, rounding) in zip(scores, training.differences(adam, weights), strict=True):
        assert slope == pytest.approx(score, rel=1e-4, abs=1e-5 * (1 + np.abs(scores).max()) + 4 * rounding)


@pytest.mark.equation("adam-derivative")
def test_parameters_without_gradients_keep_first_terms():
    """Rows of an embedding that were never seen: the root of the second moment is not differentiable."""
    zero, one = np.array([0.0]), np.array([1.0])
    # 2 * 0.5 / (0.5 * 0.25); clipping to 1/2 over |g| + 1 halves it, over |g| leaves it as it is
    for max_norm, norm_epsilon, expected in ((None, 1e-6, 8.0), (0.5, 1.0, 4.0), (0.5, 0.0, 8.0)):
        adam = Adam(beta1=0.5, beta2=0.75, epsilon=0.25, max_norm=max_norm, norm_epsilon=norm_epsilon)
        found = optimizers.adam_derivative_scores(
            one, np.array([[2.0]]), zero, zero, zero, zero, adam=adam, step=1
        )
        assert found.tolist() == [expected]


@pytest.mark.equation("adam-direction")
@given(shape=sizes, n_val=st.integers(1, 2), seed=GENERATORS)
def test_adam_direction_is_first_order_decrease(shape, n_val, seed):
    training = Training(shape, seed, 2)
    validation = np.stack([training.slope(training.theta)] + [np.zeros(shape[1])] * (n_val - 1))
    found = optimizers.adam_direction_scores(validation, training.gradients, training.second, epsilon=1e-3)
    tiny = 1e-6
    for gradient, score in zip(training.gradients, found, strict=True):
        move = tiny * gradient / (np.sqrt(training.second) + 1e-3)
        decrease = training.loss(training.theta - move) - training.loss(training.theta + move)
        assert -decrease / (2 * tiny) == pytest.approx(score, rel=1e-5, abs=1e-6)


def test_adam_defaults_match_torch():
    """Those of torch; a gradient of 1e-6 that it clips at 1e-6 is halved."""
    torchs = {name: option.default for name, option in inspect.signature(torch.optim.Adam).parameters.items()}
    chosen = Adam()
    assert chosen.learning_rate == torchs["lr"]
    assert (chosen.beta1, chosen.beta2) == torchs["betas"]
    assert (chosen.epsilon, chosen.weight_decay) == (torchs["eps"], torchs["weight_decay"])
    assert chosen.decoupled is torchs["decoupled_weight_decay"] is False
    assert chosen.max_norm is None
    clipped = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    clipped.grad = torch.full((1,), 1e-6, dtype=torch.float64)
    torch.nn.utils.clip_grad_norm_([clipped], 1e-6)
    assert 1e-12 / (1e-6 + chosen.norm_epsilon) == pytest.approx(float(clipped.grad), rel=1e-9)
