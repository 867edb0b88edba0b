"""Ghost from its top layers: the certificate is never wrong."""

import numpy as np
import pytest
from hypothesis import given

from lai_core import bounds
from tests.support.draws import GENERATORS, SHAPES
from tests.support.inequalities import at_most, hunt
from tests.support.networks import FAMILIES


def certificate(case, networks, kept):
    """Bound what lies below the `kept` top layers, from weights, slopes and the lowest kept gradients."""
    below = case.depth - kept
    factors = []
    for batch in (case.validation, case.training):
        slopes = networks.gates(batch.activations[0])
        rows = [bounds.layer_factors(networks.weights[t + 1][0], slopes[t][0]) for t in range(below)]
        factors.append(np.stack(rows))
    norms = [n[0, below] for n in (case.validation_norms, case.training_norms)]
    return bounds.top_layers_bound(case.alpha[0, :below], *factors, *norms)


@pytest.mark.equation("top-layer-certificate")
@pytest.mark.parametrize("family", FAMILIES)
@given(GENERATORS, SHAPES)
def test_what_the_lower_layers_add_is_at_most_the_certificate(family, seed, shape):
    case = FAMILIES[family](np.random.default_rng(seed), shape)
    for kept in range(1, case.depth):
        bound = certificate(case, case.networks, kept)
        products = case.alpha[0] * case.beta[0]
        missing = np.abs(products[: case.depth - kept].sum((0, 1)))
        hunt(missing, bound, f"{kept} kept")
        assert at_most(missing, bound, np.abs(products).sum())
        top = products[case.depth - kept :].sum((0, 1))
        certain = np.abs(top) > bound * (1 + 1e-9) + 1e-9
        assert (np.sign(top) == np.sign(case.ghost[0]))[certain].all()


@pytest.mark.equation("top-layer-certificate")
@given(GENERATORS)
def test_a_factor_bounds_one_step_of_backpropagation(seed):
    rng = np.random.default_rng(seed)
    weight, slopes = rng.standard_normal((3, 4)), rng.uniform(-0.5, 1, (6, 4)) * rng.integers(0, 2, (6, 4))
    slopes = slopes * rng.choice([1.0, 3.0], (6, 1))  # beyond 1 too: GELU's reach 1.13
    factors = bounds.layer_factors(weight, slopes)
    steps = [np.linalg.norm(np.diag(s) @ weight.T, 2) for s in slopes]
    hunt(steps, factors)
    assert at_most(steps, factors)
    wide = bounds.layer_factors(weight, np.full((1, 4), 3.0))
    assert at_most(wide, 3.0 * np.linalg.norm(weight, 2))


@pytest.mark.equation("top-layer-certificate")
def test_by_how_much_each_bound_is_rounded_up():
    """Of ones, which are exact: a unit of rounding for each operation that may round, and the next number."""
    eps, ones = np.finfo(float).eps, np.ones
    found = {
        8 + 8 * 4: bounds.layer_factors(np.eye(2), ones((1, 2)))[0],
        8 + 8 * 6: bounds.layer_factors(np.eye(2, 3), ones((1, 3)))[0],
    }
    for operations, bound in found.items():
        assert bound == pytest.approx(1 + (operations + 1) * eps, abs=eps / 2), operations
    # both norms of each layer, each of two factors, and a sum of 2 * 4 products
    sides = ones((2, 4)), ones((2, 1)), ones(4), ones(1)
    assert bounds.top_layers_bound(ones((2, 4, 1)), *sides)[0] / 8 == pytest.approx(
        1 + (2 * (2 + 1) + (2 + 2 * 4) + 1) * eps, abs=eps / 2
    )
