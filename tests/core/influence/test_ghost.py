"""Each condition under which Eq. 3 is the gradient inner product, and the example that breaks it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from lai_core import influence
from tests.support.draws import GENERATORS


def layer(activations, gradients, **flags):
    return lai.LayerTrace(np.asarray(activations), np.asarray(gradients), **flags)


def kernel(*layers):
    trace = lai.Trace(layers)
    return lai.ghost_kernel(trace, trace)


def gram(losses, parameters):
    """Return the inner products of the losses' gradients, by torch."""
    rows = torch.func.jacrev(losses)(parameters).reshape(-1, parameters.numel())
    return (rows @ rows.T).numpy()


def normal(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.equation("ghost-pre-activation", "gradient1")
@given(n=st.integers(1, 4), widths=st.tuples(st.integers(1, 3), st.integers(1, 3)), seed=GENERATORS)
def test_slopes_in_feedback_make_ghost_exact(n, widths, seed):
    d_in, d_out = widths
    x, y, weight = normal(seed, n, d_in), normal(seed + 1, n, d_out), normal(seed + 2, d_out, d_in)
    exact = gram(lambda w: ((torch.tanh(x @ w.T) - y) ** 2).sum(-1) / 2, weight)
    outputs = torch.tanh(x @ weight.T)
    feedback = influence.pre_activation_gradients((outputs - y).numpy(), (1 - outputs**2).numpy())
    record = lai.LayerTrace(x.numpy(), feedback)
    np.testing.assert_allclose(kernel(record), exact, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("neglecting-activations", "gradient1")
def test_counterexample_neglecting_tanh_slopes_overstates():
    """One unit, w = x = 1: after the activation the feedback is 1, and Eq. 3 gives 1."""
    slope = 1 - np.tanh(1.0) ** 2
    exact = gram(lambda w: torch.tanh(w), torch.ones(1, dtype=torch.float64))[0, 0]
    neglected = kernel(layer([[1.0]], [[1.0]]))[0, 0]
    one = np.ones((1, 1))
    kept = kernel(layer(one, influence.pre_activation_gradients(one, slope * one)))[0, 0]
    assert (neglected, round(float(exact), 3)) == (1.0, 0.176)
    assert kept == pytest.approx(exact, rel=1e-12)


@pytest.mark.equation("ghost-bias", "ghost-positions")
@given(n=st.integers(1, 4), positions=st.sampled_from((None, 1, 3)), seed=GENERATORS)
def test_positions_and_biases_need_every_pair(n, positions, seed):
    lead = (n,) if positions is None else (n, positions)
    x, weight, bias = normal(seed, *lead, 3), normal(seed + 1, 2, 3), normal(seed + 2, 2)
    y = normal(seed + 3, *lead, 2)

    def losses(parameters):
        outputs = x @ parameters[:6].reshape(2, 3).T + parameters[6:]
        return ((torch.tanh(outputs) - y) ** 2).flatten(1).sum(-1) / 2

    outputs = torch.tanh(x @ weight.T + bias)
    feedback = ((outputs - y) * (1 - outputs**2)).numpy()
    found = kernel(layer(x.numpy(), feedback, bias=True))
    exact = gram(losses, torch.cat([weight.flatten(), bias]))
    np.testing.assert_allclose(found, exact, rtol=1e-7, atol=1e-9)
    without = kernel(layer(x.numpy(), feedback))
    summed = feedback.reshape(n, -1, 2).sum(1)
    np.testing.assert_allclose(found - without, summed @ summed.T, rtol=1e-7, atol=1e-9)


@pytest.mark.equation("ghost-sharing")
@given(uses=st.integers(1, 4), n=st.integers(1, 3), seed=GENERATORS)
def test_shared_matrices_pair_all_uses(uses, n, seed):
    x, weight = normal(seed, n, 2), normal(seed + 1, 2, 2)

    def run(w):
        hidden, inputs, outputs = x, [], []
        for _ in range(uses):
            inputs.append(hidden)
            outputs.append(hidden @ w.T)
            hidden = torch.tanh(outputs[-1])
        return inputs, outputs, hidden

    exact = gram(lambda w: run(w)[2].sum(-1), weight)
    inputs, outputs, hidden = run(weight.clone().requires_grad_())
    gradients = torch.autograd.grad(hidden.sum(), outputs)
    records = [
        layer(a.detach().numpy(), g.numpy(), weight="shared") for a, g in zip(inputs, gradients, strict=True)
    ]
    np.testing.assert_allclose(kernel(*records), exact, rtol=1e-7, atol=1e-9)
