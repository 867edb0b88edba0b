"""Bounds that the ledger calls attained: an optimiser over entries reaches each, and nothing beyond."""

import pytest

from tests.attained import BOUNDS, Bound, climb
from tests.support import ledger


@pytest.mark.parametrize("name", BOUNDS)
def test_an_optimiser_reaches_the_bound_and_no_more(name):
    assert 0.99 <= climb(BOUNDS[name], enough=0.99, starts=8) <= 1.0 + 1e-6


def test_each_attained_bound_of_the_ledger_is_climbed():
    attained = {slug for slug, entry in ledger.read().items() if entry.attained}
    assert attained == {bound.slug for bound in BOUNDS.values()}


def test_a_bound_that_is_too_large_is_not_reached():
    """The climb can fail: a tenth more than what is attained."""
    found = BOUNDS["norm-product-bound"]
    loose = Bound(found.slug, found.entries, lambda x: (found.sides(x)[0], 1.1 * found.sides(x)[1]))
    assert climb(loose, enough=0.99, starts=1) <= 1 / 1.1 + 1e-9
