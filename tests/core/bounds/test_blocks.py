"""Certificates for residual and LayerNorm blocks, rounded up, and the least regret that they promise."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from lai_core import bounds
from tests.support.draws import GENERATORS
from tests.support.inequalities import at_most

floats = st.floats(2**-10, 2**10, width=32)


@pytest.mark.equation("block-factors")
@given(GENERATORS, st.integers(1, 5), st.sampled_from((0.0, 1e-5, 1.0)))
def test_a_layer_norms_backward_step_is_within_its_factor(seed, width, epsilon):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((4, width)) if width > 1 else np.ones((4, 1))
    gain, gradients = random.standard_normal(width), torch.tensor(random.standard_normal((4, width)))
    inputs = torch.tensor(rows, requires_grad=True)
    deviation = np.sqrt(rows.var(1) + epsilon)
    if (deviation == 0).any():
        return
    shift = torch.zeros(width, dtype=torch.float64)
    outputs = functional.layer_norm(inputs, (width,), torch.tensor(gain), shift, epsilon)
    (pulled,) = torch.autograd.grad(outputs, inputs, gradients)
    factor = bounds.layer_norm_factor(gain, deviation)
    assert (pulled.norm(dim=1).numpy() <= factor * gradients.norm(dim=1).numpy() * (1 + 1e-9)).all()


@pytest.mark.equation("block-factors")
@given(GENERATORS)
def test_what_the_blocks_of_a_residual_network_miss_is_within_the_bound(seed):
    """Two blocks h + W2 gelu(W1 LN(h)) and a readout: LLI is certain within the bound of the other layers."""
    random = np.random.default_rng(seed)
    matrices = [
        torch.tensor(random.standard_normal(size)) for size in ((6, 4), (4, 6), (6, 4), (4, 6), (3, 4))
    ]
    gains, shifts = torch.tensor(random.standard_normal((2, 2, 4)))

    def loss(matrices, hidden, label):
        seen = []
        for block, (first, second) in enumerate((matrices[:2], matrices[2:4])):
            normal = functional.layer_norm(hidden, (4,), gains[block], shifts[block])
            seen.append((normal, (hidden.var(correction=0) + 1e-5).sqrt(), first @ normal))
            hidden = hidden + second @ functional.gelu(first @ normal)
        logits = matrices[-1] @ hidden
        return functional.cross_entropy(logits, label), (seen, logits)

    sides = []
    for count in (2, 3):
        given = torch.tensor(random.standard_normal((count, 4))), torch.tensor(random.integers(3, size=count))
        each = torch.vmap(torch.func.grad(loss, has_aux=True), in_dims=(None, 0, 0))
        gradients, (seen, logits) = each(matrices, *given)
        last, ones = logits.softmax(1) - functional.one_hot(given[1], 3), np.ones((count, 4))
        size = last.norm(dim=1).numpy() * bounds.layer_factors(matrices[-1].numpy(), ones)
        sizes, inputs = [], []
        for block in (1, 0):
            normal, deviation, inner = seen[block]
            first, second = matrices[2 * block : 2 * block + 2]
            slopes = torch.vmap(torch.vmap(torch.func.grad(functional.gelu)))(inner)
            through = bounds.layer_factors(second.numpy(), slopes.numpy())
            sizes = [size * through, size, *sizes]
            inputs = [normal, functional.gelu(inner), *inputs]
            norm = bounds.layer_norm_factor(gains[block].numpy(), deviation.numpy())
            branch = through * bounds.layer_factors(first.numpy(), ones) * norm
            size = size * bounds.residual_factor(branch)
        sides.append((gradients[:-1], inputs, np.array(sizes)))
    (validation, z, of_z), (training, j, of_j) = sides
    missing = sum(torch.einsum("zoi,joi->j", *pair) for pair in zip(validation, training, strict=True))
    alpha = np.array([(a @ b.T).numpy() for a, b in zip(z, j, strict=True)])
    assert at_most(abs(missing.numpy()), bounds.missing_layers_bound(alpha, of_z, of_j))


@pytest.mark.equation("block-factors")
@given(st.lists(floats, min_size=18, max_size=18))
def test_bounds_are_not_below_their_exact_value(backend, numbers):
    """In single precision, where every operation rounds; the exact value in fractions."""
    values = np.array(numbers, np.float32)
    alpha, z, j = values[:8].reshape(4, 2, 1), values[8:16].reshape(4, 2), values[14:18].reshape(4, 1)
    found = backend.numpy(bounds.missing_layers_bound(*map(backend.array, (alpha, z, j))))
    exact = sum(
        Fraction(float(alpha[l, k, 0])) * Fraction(float(z[l, k])) * Fraction(float(j[l, 0]))
        for l in range(4)
        for k in range(2)
    )
    assert Fraction(float(found[0])) >= exact
    branch = backend.numpy(bounds.residual_factor(backend.array(values[:3])))
    assert all(Fraction(float(b)) >= 1 + Fraction(float(a)) for a, b in zip(values[:3], branch, strict=True))
    factor = backend.numpy(bounds.layer_norm_factor(backend.array(values[:3]), backend.array(values[3:5])))
    largest = max(Fraction(float(a)) for a in values[:3])
    assert all(
        Fraction(float(b)) >= largest / Fraction(float(s)) for s, b in zip(values[3:5], factor, strict=True)
    )


entries = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(0, 6), st.integers(-2, 2)), min_size=1, max_size=6
)


@pytest.mark.equation("certified-regret")
@given(entries)
def test_the_regret_is_within_the_certified_one_and_attains_it(backend, rows):
    approximation, errors, shares = (np.array(column, float) for column in zip(*rows, strict=True))
    bound = bounds.certified_regret_bound(backend.array(approximation), backend.array(errors))
    worst = approximation - np.where(approximation > 0, 1, -1) * errors
    for scores, attained in ((approximation + errors * shares / 2, False), (worst, True)):
        best = np.maximum(scores, 0).sum()
        regret = best - scores[approximation > 0].sum()
        assert regret <= backend.numpy(bound) + 1e-12
        assert not attained or regret == pytest.approx(float(backend.numpy(bound)))


@pytest.mark.equation("block-factors", "top-layer-certificate")
def test_by_how_much_each_bound_is_rounded_up():
    """Of ones, which are exact: a unit of rounding for each operation that may round, and the next number."""
    eps = np.finfo(float).eps
    ones = np.ones
    found = {
        1: bounds.layer_norm_factor(ones(3), ones(1))[0],
        2: bounds.residual_factor(np.zeros(1))[0] + eps,
        2 + 2 * 3: bounds.missing_layers_bound(ones((2, 3, 1)), ones((2, 3)), ones((2, 1)))[0] / 6,
        8 + 8 * 4: bounds.layer_factors(np.eye(2), ones((1, 2)))[0],
        8 + 8 * 6: bounds.layer_factors(np.eye(2, 3), ones((1, 3)))[0],
    }
    for operations, bound in found.items():
        assert bound == pytest.approx(1 + (operations + 1) * eps, abs=eps / 2), operations
