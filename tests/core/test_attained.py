"""Bounds that the ledger calls attained: an optimiser over entries reaches each, and nothing beyond."""

import pytest

from tests.attained import BOUNDS, climb
from tests.support import ledger


@pytest.mark.parametrize("name", BOUNDS)
def test_optimiser_attains_but_never_exceeds_bounds(name):
    assert 0.99 <= climb(BOUNDS[name], enough=0.99, starts=8) <= 1.0 + 1e-6


def test_every_attained_bound_is_climbed():
    attained = {slug for slug, entry in ledger.read().items() if entry.attained}
    assert attained == {bound.slug for bound in BOUNDS.values()}
