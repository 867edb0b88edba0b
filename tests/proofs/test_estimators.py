"""What is proved of sketches and of whose row is whose is what `lai_core` computes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs, sketch_variance
from lai_core.influence import ownership_residuals
from proofs import prove_ownership, prove_sketches
from tests.support.draws import GENERATORS
from tests.support.statements import numbers


@pytest.mark.equation("sketch-unbiased", "sketch-variance", "sketch-permutation")
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@given(seed=GENERATORS)
@settings(max_examples=5)
def test_proved_formulas_match_the_computation(depth, seed):
    """P as a validation sample of two positions, Q as a training sample of two."""
    generator = np.random.default_rng(seed)
    P, Q = generator.normal(size=(2, depth, 2))
    sides = [lai.Trace([lai.LayerTrace(np.eye(2)[None], side.T[None])]) for side in (P, Q)]
    width = prove_sketches.width(depth)
    sketched = [
        [sketch_outputs(side, np.array(signs), np.arange(depth), width=width) for side in sides]
        for signs in itertools.product((-1.0, 1.0), repeat=depth)
    ]
    scores = [lai.lai_scores(*pair)[0] for pair in sketched]
    for side in ("lhs", "rhs"):
        proved = numbers(prove_sketches.UNBIASED, side, depth=depth)(P.tolist(), Q.tolist())
        assert np.mean(scores) == pytest.approx(proved, rel=1e-9, abs=1e-9)
        proved = numbers(prove_sketches.VARIANCE, side, depth=depth)(P.tolist(), Q.tolist())
        assert np.var(scores) == pytest.approx(proved, rel=1e-9, abs=1e-9)
        proved = numbers(prove_sketches.PERMUTED, side, depth=depth)(P.tolist(), Q.tolist())
        assert sketch_variance(*sides, width=width)[0] == pytest.approx(proved, rel=1e-9, abs=1e-9)
    most = numbers(prove_sketches.PERMUTED, depth=depth, index=1)(P.tolist(), Q.tolist())
    assert sketch_variance(*sides, width=width)[0] <= most * (1 + 1e-9)


@pytest.mark.equation("sample-ownership")
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@given(seed=GENERATORS)
@settings(max_examples=5)
def test_proved_residuals_match_the_computation(depth, seed):
    """Losses that reach row 0 alone."""
    generator = np.random.default_rng(seed)
    gradients, weights = np.zeros((depth, depth, 2)), generator.normal(size=depth)
    gradients[:, 0] = generator.normal(size=(depth, 2))
    sums = gradients.sum(0), np.einsum("k,kid->id", weights, gradients)
    found = ownership_residuals(*sums, weights)
    for side in ("lhs", "rhs"):
        proved = numbers(prove_ownership.OWNERSHIP, side, depth=depth)(
            gradients[:, 0].tolist(), list(weights)
        )
        assert found[0] == pytest.approx(np.abs(proved).max(), rel=1e-9, abs=1e-12)
