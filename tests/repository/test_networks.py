"""The networks that other tests lean on: what each family promises; test_chain has their gradients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import GENERATORS
from tests.support.networks import ALIGNED, ASSUMING, Shape

SHAPES = st.sampled_from([Shape(2, 1, 3), Shape(2, 2, 2), Shape(2, 3, 4), Shape(1, 5, 3)])


@pytest.mark.parametrize("family", ASSUMING)
@given(GENERATORS, SHAPES)
def test_a_family_satisfies_what_it_promises(family, seed, shape):
    case = ASSUMING[family](np.random.default_rng(seed), shape)
    beta, slack = case.beta, 1e-12
    powers = case.rho[:, None, None] ** np.arange(shape.depth - 1, -1, -1)[None, :, None]
    for norms in (case.validation_norms, case.training_norms):
        assert (norms <= powers * norms[:, -1:] * (1 + 1e-9) + slack).all()
    lengths = case.validation_norms[..., :, None] * case.training_norms[..., None, :]
    cosines = beta / np.where(lengths > 0, lengths, 1)
    assert (cosines >= -slack).all()
    assert (cosines <= cosines[:, -1:] + 1e-9).all()
    assert family not in ALIGNED or (case.alpha >= -slack).all()
    assert (np.abs(case.alpha) <= case.activation_bound[:, None, None, None] ** 2 * (1 + 1e-9)).all()
