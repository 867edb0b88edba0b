"""Backward operators of chains and of networks with skips, against automatic differentiation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lai_core import propagation
from tests.support.draws import GENERATORS

close = {"rtol": 1e-9, "atol": 1e-11}


class TanhNetwork:
    """A network with biases, and what torch says of its derivatives."""

    def __init__(self, widths, seed, skips=()):
        generator = np.random.default_rng(seed)
        self.weights = {
            edge: torch.from_numpy(generator.normal(size=(widths[edge[1]], widths[edge[0]])))
            for edge in [*((t, t + 1) for t in range(len(widths) - 1)), *skips]
        }
        self.biases = [torch.from_numpy(generator.normal(size=d)) for d in widths]
        self.first = torch.from_numpy(generator.normal(size=widths[0]))
        self.direction = torch.from_numpy(generator.normal(size=widths[-1]))

    def preactivations(self, first):
        """Return every layer's pre-activations, from the first's."""
        found = [first]
        for stop in range(1, len(self.biases)):
            total = self.biases[stop]
            for (start, end), weight in self.weights.items():
                if end == stop:
                    total = total + weight @ torch.tanh(found[start])
            found.append(total)
        return found

    def gradients(self):
        """Return the gradients, in every layer's pre-activations, of a loss that is curved in the last."""
        found = self.preactivations(self.first.clone().requires_grad_())
        loss = (torch.sin(found[-1]) * self.direction).sum() + (found[-1] ** 3).sum() / 3
        return [g.numpy() for g in torch.autograd.grad(loss, found)]

    def jacobians(self):
        slopes = [(1 - torch.tanh(s) ** 2).numpy() for s in self.preactivations(self.first)]
        return {
            (start, stop): propagation.layer_jacobian(weight.numpy(), slopes[start])
            for (start, stop), weight in self.weights.items()
        }


@pytest.mark.equation("vjp-recursion", "app-A-prod", "separating-operator")
@given(
    st.lists(st.integers(1, 4), min_size=4, max_size=5),
    GENERATORS,
    st.sampled_from(((), ((0, 2),), ((0, 3), (1, 3)), ((0, 2), (0, 3), (1, 3)))),
)
def test_operators_are_transposed_jacobians(widths, seed, skips):
    """Of chains layer by layer, of networks with skips path by path."""
    network, last = TanhNetwork(widths, seed, skips), len(widths) - 1
    whole = torch.func.jacrev(lambda s: network.preactivations(s)[-1])(network.first).numpy().T
    jacobians, gradients = network.jacobians(), network.gradients()
    operator = propagation.separating_operator(jacobians, layer=0, last=last)
    np.testing.assert_allclose(operator, whole, **close)
    np.testing.assert_allclose(operator @ gradients[-1], gradients[0], **close)
    if not skips:
        chain = list(jacobians.values())
        np.testing.assert_allclose(propagation.backward_operator(chain), whole, **close)
        found = propagation.vjp_recursion(chain, gradients[-1])
        for wanted, gradient in zip(gradients, found, strict=True):
            np.testing.assert_allclose(gradient, wanted, **close)
