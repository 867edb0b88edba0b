"""Backward operators of chains and of networks with skips, against automatic differentiation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lai_core import propagation
from tests.support.draws import GENERATORS
from tests.support.networks import Shape, unconstrained

WIDTHS = st.lists(st.integers(1, 4), min_size=3, max_size=5).map(tuple)
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

    def loss(self, s):
        """Return a loss that is curved in the last pre-activations."""
        return (torch.sin(s) * self.direction).sum() + (s**3).sum() / 3

    def gradients(self):
        """Return the loss's gradients in every layer's pre-activations."""
        found = self.preactivations(self.first.clone().requires_grad_())
        return [g.numpy() for g in torch.autograd.grad(self.loss(found[-1]), found)]

    def derivatives(self):
        """Return phi' of every layer."""
        return [(1 - torch.tanh(s) ** 2).numpy() for s in self.preactivations(self.first)]

    def jacobians(self, backend):
        """Return every edge's transposed Jacobian, from `layer_jacobian`."""
        slopes = self.derivatives()
        return {
            (start, stop): propagation.layer_jacobian(
                backend.array(weight.numpy()), backend.array(slopes[start])
            )
            for (start, stop), weight in self.weights.items()
        }


@pytest.mark.equation("vjp-recursion")
@given(widths=WIDTHS, seed=GENERATORS)
def test_recursion_gives_every_layers_gradient(backend, widths, seed):
    network = TanhNetwork(widths, seed)
    expected = network.gradients()
    found = propagation.vjp_recursion(list(network.jacobians(backend).values()), backend.array(expected[-1]))
    for wanted, gradient in zip(expected, found, strict=True):
        np.testing.assert_allclose(backend.numpy(gradient), wanted, **close)


@pytest.mark.equation("app-A-prod", "vjp-recursion")
@given(seed=GENERATORS)
def test_operator_carries_the_gradients_of_linear_and_relu_networks(backend, seed):
    case = unconstrained(np.random.default_rng(seed), Shape(nets=2, depth=4))
    inputs, gradients = case.training.activations[0], case.training.gradients
    jacobians = [
        propagation.layer_jacobian(backend.array(weight[0]), backend.array(gate[0]))
        for weight, gate in zip(case.networks.weights[1:], case.networks.gates(inputs), strict=True)
    ]
    for layer in range(3):
        operator = backend.numpy(propagation.backward_operator(jacobians[layer:]))
        carried = (operator @ gradients[-1][0][:, :, None])[:, :, 0]
        np.testing.assert_allclose(carried, gradients[layer][0], **close)


@pytest.mark.equation("app-A-prod")
@given(widths=WIDTHS, seed=GENERATORS)
def test_operator_of_a_chain_is_the_transposed_jacobian(backend, widths, seed):
    network = TanhNetwork(widths, seed)
    whole = torch.func.jacrev(lambda s: network.preactivations(s)[-1])(network.first)
    operator = propagation.backward_operator(list(network.jacobians(backend).values()))
    np.testing.assert_allclose(backend.numpy(operator), whole.numpy().T, **close)


@pytest.mark.equation("app-A-prod", "separating-operator")
def test_counterexample_a_skip_around_a_layer(backend):
    """s3 = w3 s2 + s1 and s2 = w2 s1 with w2 = w3 = 2: the operator is 5, the product 4."""
    two, one = backend.array([[2.0]]), backend.array([[1.0]])
    edges = {(1, 2): two, (2, 3): two, (1, 3): one}
    assert float(propagation.separating_operator(edges, layer=1, last=3)[0, 0]) == 5.0
    assert float(propagation.backward_operator([two, two])[0, 0]) == 4.0


@pytest.mark.equation("separating-operator")
@given(seed=GENERATORS, skips=st.sampled_from((((0, 2),), ((0, 3), (1, 3)), ((0, 2), (0, 3), (1, 3)))))
def test_paths_add_up_to_the_operator(backend, seed, skips):
    network = TanhNetwork((3, 2, 3, 2), seed, skips)
    whole = torch.func.jacrev(lambda s: network.preactivations(s)[-1])(network.first).numpy().T
    operator = propagation.separating_operator(network.jacobians(backend), layer=0, last=3)
    np.testing.assert_allclose(backend.numpy(operator), whole, **close)
    np.testing.assert_allclose(
        backend.numpy(operator) @ network.gradients()[-1], network.gradients()[0], **close
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda j: propagation.backward_operator([j, j]), r"jacobians\[1\]: expected 3 rows"),
        (lambda j: propagation.backward_operator([]), "jacobians: expected at least one array"),
        (
            lambda j: propagation.vjp_recursion([j], j[:, :2]),
            "output_gradient: expected a last axis of length 3",
        ),
        (lambda j: propagation.layer_jacobian(j, j[:, :2]), "derivatives: expected shape"),
        (lambda j: propagation.separating_operator({(2, 1): j}, layer=1, last=2), "keys .k, t. with k < t"),
        (
            lambda j: propagation.separating_operator({(2, 2): j[:, :2]}, layer=1, last=2),
            "keys .k, t. with k < t",
        ),
        (
            lambda j: propagation.separating_operator({(1, 2): j}, layer=0, last=2),
            "expected a path from layer 0",
        ),
        (
            lambda j: propagation.separating_operator({(0, 1): j, (1, 2): j}, layer=0, last=2),
            "expected shape",
        ),
        (lambda j: propagation.separating_operator({}, layer=0, last=2), "expected at least one"),
    ],
)
def test_wrong_shapes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 3)))


def test_what_is_no_list_of_arrays_is_refused():
    with pytest.raises(TypeError, match="jacobians: expected a sequence of arrays"):
        propagation.backward_operator(np.ones((2, 2)))
    with pytest.raises(TypeError, match=r"jacobians\[0\]: expected a real floating dtype"):
        propagation.backward_operator([np.ones((2, 2), dtype=int)])


def leading(seed, *shapes):
    """Draw matrices for two validation and three training samples whose leading axes broadcast."""
    rng = np.random.default_rng(seed)
    axes = ((), (3,), (2, 1), (2, 3))
    return [rng.standard_normal((*axes[(seed + k) % 4], *shape)) for k, shape in enumerate(shapes)]


def one(array, place, trailing):
    """Take what an array has for one pair of samples."""
    whole = np.broadcast_to(array, (2, 3, *array.shape[array.ndim - trailing :]))
    return whole[place]


CHAIN, TOP = ((2, 3), (3, 4)), (4,)
EACH = {
    "vjp_recursion": (lambda a, b, g: propagation.vjp_recursion([a, b], g)[0], (*CHAIN, TOP)),
    "backward_operator": (lambda a, b: propagation.backward_operator([a, b]), CHAIN),
    "separating_operator": (
        lambda a, b, c: propagation.separating_operator({(0, 1): a, (1, 2): b, (0, 2): c}, layer=0, last=2),
        (*CHAIN, (2, 4)),
    ),
    "first_order_perturbation": (
        lambda a, b, c, d: propagation.first_order_perturbation([a, b], [c, d]),
        CHAIN * 2,
    ),
    "telescoping_perturbation": (
        lambda a, b, c, d: propagation.telescoping_perturbation([a, b], [c, d]),
        CHAIN * 2,
    ),
    "gradient_decomposition": (
        lambda a, b, c, d, g, x: propagation.gradient_decomposition([a, b], [c, d], g, x)[3],
        (*CHAIN * 2, TOP, TOP),
    ),
    "similarity_operator": (
        lambda a, b, c, d: propagation.similarity_operator([a, b], [c, d]),
        CHAIN * 2,
    ),
    "trace_gain": (lambda a, b: propagation.trace_gain([a, b]), CHAIN),
    "isotropic_gain": (lambda a, b: propagation.isotropic_gain([a, b]), CHAIN),
    "layer_similarities": (lambda g, h: propagation.layer_similarities([g], [h])[0], (TOP, TOP)),
    "similarity_decomposition": (
        lambda m, c, g, h: propagation.similarity_decomposition(m, c, g, h)[1],
        ((4, 4), (), TOP, TOP),
    ),
    "remainder_terms": (
        lambda a, b, c, d, e, f, k, g, h: propagation.remainder_terms([a, b], [c, d], [e, f], k, g, h)[3],
        (*CHAIN * 3, (), TOP, TOP),
    ),
    "printed_remainder": (
        lambda a, b, c, d, e, f, k, g, h: propagation.printed_remainder(
            [a, b], [c, d], [e, f], k, (g, h), (h, g)
        ),
        (*CHAIN * 3, (), TOP, TOP),
    ),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", EACH)
def test_leading_axes_are_so_many_samples(name, seed):
    function, shapes = EACH[name]
    arrays = leading(seed, *shapes)
    found = np.asarray(function(*arrays))
    for place in np.ndindex(2, 3):
        alone = np.asarray(function(*(one(a, place, len(s)) for a, s in zip(arrays, shapes, strict=True))))
        np.testing.assert_allclose(one(found, place, alone.ndim), alone, rtol=1e-9, atol=1e-12)
