"""Scores along Adam's step: the printed scaling, the direction, and the derivative of one whole step."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import optimizers
from lai_core.optimizers import Adam
from tests.support.backends import BACKENDS
from tests.support.draws import GENERATORS
from tests.support.inequalities import SEEDS
from tests.support.search import largest_margin

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
    max_norm=st.sampled_from((None, 0.2, 50.0)),
)
steps = st.sampled_from((1, 2, 30))
NUMPY = BACKENDS[0]


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
        """Take the step on the weighted gradient with torch's own optimizer and clipping."""
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
        parameter.grad = torch.from_numpy(weights @ self.gradients)
        if adam.max_norm is not None:
            torch.nn.utils.clip_grad_norm_([parameter], adam.max_norm)
        optimizer.step()
        state = optimizer.state[parameter]
        return parameter.detach().numpy(), state["exp_avg"].numpy(), state["exp_avg_sq"].numpy()

    def arrays(self, backend, weights):
        """Return what a step is given: parameters, gradient and moments."""
        numbers = self.theta, weights @ self.gradients, self.first, self.second
        return [backend.array(number) for number in numbers]

    def scores(self, backend, adam, weights):
        """Return the derivative scores at these weights."""
        slope = self.slope(self.stepped(adam, weights)[0])
        found = optimizers.adam_derivative_scores(
            backend.array(slope),
            backend.array(self.gradients),
            *self.arrays(backend, weights),
            adam=adam,
            step=self.step,
        )
        return backend.numpy(found)


@pytest.mark.equation("adam-derivative")
@given(shape=sizes, adam=settings, step=steps, seed=GENERATORS)
def test_the_step_is_that_of_another_implementation(backend, shape, adam, step, seed):
    training = Training(shape, seed, step)
    weights = np.full(shape[0], 1 / shape[0])
    found = optimizers.adam_step(*training.arrays(backend, weights), adam=adam, step=step)
    for part, wanted in zip(found, training.stepped(adam, weights), strict=True):
        np.testing.assert_allclose(backend.numpy(part), wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("adam-derivative")
@given(shape=sizes, adam=settings, step=st.sampled_from((2, 30)), seed=GENERATORS)
def test_derivative_is_what_moving_a_weight_does_to_the_loss(backend, shape, adam, step, seed):
    training = Training(shape, seed, step)
    weights = np.full(shape[0], 1 / shape[0])
    scores = training.scores(backend, adam, weights)
    tiny = 1e-6
    for sample, score in enumerate(scores):
        nudge = tiny * np.eye(shape[0])[sample]
        ahead, behind = (training.loss(training.stepped(adam, weights + s * nudge)[0]) for s in (1, -1))
        slope = -(ahead - behind) / (2 * tiny) / adam.learning_rate
        rounding = np.finfo(float).eps * abs(ahead) / tiny / adam.learning_rate
        assert slope == pytest.approx(score, rel=1e-4, abs=1e-5 * (1 + np.abs(scores).max()) + 4 * rounding)


@pytest.mark.equation("adam-derivative")
@pytest.mark.parametrize(("betas", "ratio"), [((0.9, 0.95), 0.5), ((0.9, 0.999), 0.99)])
def test_holding_the_second_moment_fixed_overstates_by_a_constant_factor(backend, betas, ratio):
    """A constant gradient of 1, both moments settled: the whole derivative over its first term."""
    adam = Adam(beta1=betas[0], beta2=betas[1], epsilon=1e-12)
    one = backend.array([1.0])
    found = optimizers.adam_derivative_scores(
        one, backend.array([[1.0]]), one, one, one, one, adam=adam, step=10**6
    )
    assert float(backend.numpy(found)[0]) / (1 - betas[0]) == pytest.approx(ratio, rel=1e-6)


@pytest.mark.equation("adam-derivative")
def test_the_first_step_moves_by_the_sign_and_has_no_derivative(backend):
    zero, one = backend.array([0.0]), backend.array([1.0])
    found = optimizers.adam_derivative_scores(
        one, backend.array([[1.0]]), one, backend.array([0.3]), zero, zero, adam=Adam(epsilon=1e-14), step=1
    )
    assert abs(float(backend.numpy(found)[0])) < 1e-10


@pytest.mark.equation("adam-derivative")
def test_parameters_without_any_gradient_keep_the_first_term(backend):
    """Rows of an embedding that were never seen: the root of the second moment is not differentiable."""
    adam = Adam(beta1=0.5, beta2=0.75, epsilon=0.25)
    zero, one = backend.array([0.0]), backend.array([1.0])
    found = optimizers.adam_derivative_scores(
        one, backend.array([[2.0]]), zero, zero, zero, zero, adam=adam, step=1
    )
    assert backend.numpy(found).tolist() == [8.0]  # 2 * 0.5 / (0.5 * 0.25)


@pytest.mark.equation("adam-derivative")
@given(seed=SEEDS)
def test_decoupled_decay_drops_out_and_coupled_decay_does_not(backend, seed):
    training = Training((3, 4), seed, 7)
    weights, plain = np.full(3, 1 / 3), Adam(learning_rate=1e-12)
    scores = {
        name: training.scores(backend, adam, weights)
        for name, adam in {
            "none": plain,
            "decoupled": replace(plain, weight_decay=0.5, decoupled=True),
            "coupled": replace(plain, weight_decay=0.5),
        }.items()
    }
    np.testing.assert_allclose(scores["decoupled"], scores["none"], rtol=1e-6)
    assert np.abs(scores["coupled"] - scores["none"]).max() > 1e-6


@pytest.mark.equation("adam-needs-moments")
def test_counterexample_batch_moments_are_enough(backend):
    """Two samples with gradients 3 and -1: no moment of their own, and yet the exact derivatives."""
    training = Training((2, 1), 0, 2)
    training.gradients = np.array([[3.0], [-1.0]])
    training.first, training.second = np.array([0.5]), np.array([0.25])
    adam, weights, tiny = Adam(), np.array([0.5, 0.5]), 1e-6
    scores = training.scores(backend, adam, weights)
    for sample, score in enumerate(scores):
        nudge = tiny * np.eye(2)[sample]
        ahead, behind = (training.loss(training.stepped(adam, weights + s * nudge)[0]) for s in (1, -1))
        assert -(ahead - behind) / (2 * tiny) / adam.learning_rate == pytest.approx(score, rel=1e-6)
    assert scores[0] == pytest.approx(-3 * scores[1], rel=1e-9)  # one diagonal serves both


@pytest.mark.equation("adam-direction")
@given(shape=sizes, n_val=st.integers(1, 2), seed=GENERATORS)
def test_adam_direction_is_the_first_order_decrease_of_a_scaled_step(backend, shape, n_val, seed):
    training = Training(shape, seed, 2)
    validation = np.stack([training.slope(training.theta)] + [np.zeros(shape[1])] * (n_val - 1))
    found = optimizers.adam_direction_scores(
        backend.array(validation),
        backend.array(training.gradients),
        backend.array(training.second),
        epsilon=1e-3,
    )
    tiny = 1e-6
    for gradient, score in zip(training.gradients, backend.numpy(found), strict=True):
        move = tiny * gradient / (np.sqrt(training.second) + 1e-3)
        decrease = training.loss(training.theta - move) - training.loss(training.theta + move)
        assert -decrease / (2 * tiny) == pytest.approx(score, rel=1e-5, abs=1e-6)


@pytest.mark.equation("optimizer-preconditioning")
def test_counterexample_the_printed_scaling_turns_the_sign(backend):
    """D = diag(1, 16): Adam's direction says 1, the printed product -1/2."""
    moment, g_z, g_j = [1.0, 16.0], [[1.0, 1.0]], [[-1.0, 8.0]]
    along = optimizers.adam_direction_scores(*map(backend.array, (g_z, g_j, moment)), epsilon=1e-17)
    assert backend.numpy(along).tolist() == [1.0]
    traces = [lai.Trace([lai.LayerTrace(backend.array([[1.0]]), backend.array(g))]) for g in (g_z, g_j)]
    found = [
        lai.preconditioned_lai_scores(*traces, backend.array(moment), exponent=power, epsilon=1e-17)
        for power in (1.0, 0.5)
    ]
    assert [backend.numpy(scores).tolist() for scores in found] == [[-0.5], [1.0]]


@pytest.mark.equation("optimizer-preconditioning")
def test_counterexample_search_finds_signs_that_the_printed_scaling_turns():
    numbers = st.tuples(*[st.floats(-3, 3)] * 4, st.floats(0.1, 5), st.floats(0.1, 5))

    def margin(point):
        """Positive where the step lowers the loss and the printed product says that it raises it."""
        g_z, g_j, root = (np.array(point[start : start + 2]) for start in (0, 2, 4))
        along = optimizers.adam_direction_scores(g_z[None], g_j[None], root**2, epsilon=1e-15)[0]
        return min(along, -float((g_z / root) @ (g_j / root)))

    assert largest_margin(numbers, margin, 400) > 0.01


@pytest.mark.equation("adam-direction", "optimizer-preconditioning")
@given(shape=sizes, seed=GENERATORS)
def test_one_layer_lai_at_exponent_one_half_is_the_direction_score_of_its_outputs(backend, shape, seed):
    training = Training(shape, seed, 2)
    g_z, moment = np.random.default_rng(seed + 1).normal(size=(2, shape[1])), training.second
    traces = [
        lai.Trace([lai.LayerTrace(backend.array(np.ones((len(g), 1))), backend.array(g))])
        for g in (g_z, training.gradients)
    ]
    arrays = backend.array(g_z), backend.array(training.gradients), backend.array(moment)
    for epsilon in (1e-15, 0.3):
        found = lai.preconditioned_lai_scores(*traces, backend.array(moment), exponent=0.5, epsilon=epsilon)
        expected = optimizers.adam_direction_scores(*arrays, epsilon=epsilon)
        np.testing.assert_allclose(backend.numpy(found), backend.numpy(expected), rtol=1e-6, atol=1e-9)


@pytest.mark.equation("adam-direction")
def test_on_a_head_of_50257_words_the_default_epsilon_is_adams():
    """Gradients of 1e-5: with epsilon inside the root the correlation with Adam's direction was .69."""
    rng, words = np.random.default_rng(2), 50_257
    head = rng.standard_normal((words, 64)) * 0.5 / 8

    def batch(samples):
        a = rng.choice([-1.0, 1.0], (samples, 64))  # squares of 1: Adam's moment of a weight is its output's
        p = np.exp(a @ head.T) / np.arange(1, words + 1)
        p /= p.sum(1, keepdims=True)
        p[np.arange(samples), (rng.random((samples, 1)) < p.cumsum(1)).argmax(1)] -= 1.0
        return a, p

    training, validation = batch(32), batch(16)
    moment = (training[1] ** 2).mean(0)
    alpha = validation[0] @ training[0].T

    def along(divisor):
        return (validation[1] / divisor @ training[1].T * alpha).sum(0)

    traces = [lai.Trace([lai.LayerTrace(*side)]) for side in (validation, training)]
    found = lai.preconditioned_lai_scores(*traces, moment, exponent=0.5)
    adams = along(np.sqrt(moment) + 1e-8)
    np.testing.assert_allclose(found, adams, rtol=1e-9, atol=1e-9 * np.abs(adams).max())
    assert np.corrcoef(adams, along(np.sqrt(moment + 1e-8)))[0, 1] == pytest.approx(0.69, abs=0.005)


@pytest.mark.equation("optimizer-preconditioning")
def test_at_an_exponent_of_one_both_sides_are_divided_by_adams_divisor():
    moment, g_z, g_j = np.array([1.0, 16.0]), np.array([[1.0, 1.0]]), np.array([[-1.0, 8.0]])
    traces = [lai.Trace([lai.LayerTrace(np.ones((1, 1)), g)]) for g in (g_z, g_j)]
    found = lai.preconditioned_lai_scores(*traces, moment, exponent=1.0, epsilon=0.5)
    assert found[0] == pytest.approx(-1 / 1.5**2 + 8 / 4.5**2)


def factors(backend, seed, n_val=2, n_train=3, d_in=4, d_out=2):
    """Return activations and output gradients of both sides, and a preconditioner."""
    generator = np.random.default_rng(seed)
    shapes = (n_val, d_in), (n_val, d_out), (n_train, d_in), (n_train, d_out)
    numbers = [generator.normal(size=shape) for shape in shapes]
    return [*numbers, generator.uniform(0.1, 2.0, (d_out, d_in))]


@pytest.mark.equation("preconditioned-ghost")
@given(sizes=st.tuples(*[st.integers(1, 4)] * 4), seed=GENERATORS)
def test_preconditioned_ghost_is_the_scaled_product_of_built_gradients(backend, sizes, seed):
    a_z, g_z, a_j, g_j, scale = numbers = factors(backend, seed, *sizes)
    arrays = [backend.array(number) for number in numbers]
    built = [
        np.stack([np.outer(g, a).ravel() for g, a in zip(*side, strict=True)])
        for side in ((g_z, a_z), (g_j, a_j))
    ]
    expected = built[0] @ (scale.ravel() * built[1]).T
    kernel = backend.numpy(optimizers.preconditioned_ghost_kernel(*arrays))
    np.testing.assert_allclose(kernel, expected, rtol=1e-7, atol=1e-9)
    scores = backend.numpy(optimizers.preconditioned_ghost_scores(*arrays))
    np.testing.assert_allclose(scores, expected.sum(0), rtol=1e-7, atol=1e-9)


@pytest.mark.equation("preconditioned-ghost")
@given(seed=GENERATORS)
def test_rank_one_preconditioners_scale_both_factors(backend, seed):
    a_z, g_z, a_j, g_j, scale = factors(backend, seed)
    rows, columns = scale[:, 0], scale[0, :]
    arrays = [backend.array(number) for number in (a_z, g_z, a_j, g_j, np.outer(rows, columns))]
    expected = ((a_z * columns) @ a_j.T) * ((g_z * rows) @ g_j.T)
    found = backend.numpy(optimizers.preconditioned_ghost_kernel(*arrays))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("preconditioned-ghost", "optimizer-preconditioning")
def test_counterexample_no_scaling_of_the_factors_gives_a_preconditioner_of_rank_two(backend):
    """P = I on unit vectors: the four products are 1, 0, 0, 1, and of alpha times beta they cannot be."""
    unit = np.eye(2)
    arrays = [backend.array(unit[:, [index]].T) for index in (0, 1)]
    found = [
        float(
            backend.numpy(
                optimizers.preconditioned_ghost_kernel(
                    arrays[a], arrays[g], arrays[a], arrays[g], backend.array(unit)
                )
            )[0, 0]
        )
        for a in (0, 1)
        for g in (0, 1)
    ]
    assert found == [1.0, 0.0, 0.0, 1.0]
    assert found[0] * found[3] != found[1] * found[2]  # a product alpha(a) beta(g) would have them equal


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("beta1", 1.0),
        ("beta2", -0.1),
        ("epsilon", 0.0),
        ("weight_decay", -1.0),
        ("max_norm", 0.0),
        ("norm_epsilon", -1.0),
    ],
)
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a finite number"):
        Adam(**{name: value})


def test_wrong_shapes_are_named(backend):
    two, three = backend.array(np.ones(2)), backend.array(np.ones(3))
    with pytest.raises(ValueError, match=r"first_moment: expected shape \(p=2,\), got \(3,\)"):
        optimizers.adam_step(two, two, three, two, adam=Adam(), step=1)
    with pytest.raises(ValueError, match="step: expected a finite number >= 1"):
        optimizers.adam_step(two, two, two, two, adam=Adam(), step=0)
    with pytest.raises(ValueError, match="epsilon: expected a finite number > 0"):
        optimizers.adam_direction_scores(two[None, :], two[None, :], two, epsilon=0.0)


@pytest.mark.equation("adam-derivative")
@given(depth=st.integers(1, 3), adam=settings, seed=GENERATORS)
def test_derivative_on_a_random_relu_network(depth, adam, seed):
    """Two Adam steps by torch on a network; the second one's derivative in each sample's weight."""
    generator = np.random.default_rng(seed)
    sizes = [3] * depth + [2]
    batches = [(torch.from_numpy(generator.normal(size=(n, 3))), n) for n in (4, 3)]
    targets = [torch.from_numpy(generator.normal(size=(n, 2))) for _, n in batches]
    start = torch.from_numpy(generator.normal(size=sum(a * b for a, b in itertools.pairwise([3, *sizes]))))

    def losses(flat, side):
        hidden, used = batches[side][0], 0
        for layer, (below, width) in enumerate(itertools.pairwise([3, *sizes])):
            matrix = flat[used : used + below * width].reshape(width, below)
            used += below * width
            hidden = (torch.relu(hidden) if layer else hidden) @ matrix.T
        return ((hidden - targets[side]) ** 2).sum(-1) / 2

    training = Training((3, len(start)), seed, 2)
    training.theta, training.gradients = start.numpy(), torch.func.jacrev(losses)(start, 1).numpy()
    weights = np.full(3, 1 / 3)

    def after(chosen):
        return torch.from_numpy(training.stepped(adam, chosen)[0])

    slope = torch.func.grad(lambda flat: losses(flat, 0).sum())(after(weights)).numpy()
    scores = optimizers.adam_derivative_scores(
        slope, training.gradients, *training.arrays(NUMPY, weights), adam=adam, step=2
    )
    tiny, rounding = 1e-6, 1e-6 * (1 + np.abs(slope).sum())  # of differences over 2 tiny learning rates
    for sample, score in enumerate(scores):
        nudge = tiny * np.eye(3)[sample]
        along = (after(weights + nudge) - after(weights - nudge)).numpy() / (2 * tiny)
        assert -slope @ along / adam.learning_rate == pytest.approx(score, rel=1e-4, abs=rounding)
