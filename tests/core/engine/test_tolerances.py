"""The bounds under which checks accept two computations of one sum, against their formulas by hand."""

import math

import numpy as np
import pytest

from lai_core._adapters import relative_error
from lai_core._engine.rounding import Block, sums_agree, tolerance

EPS = 2.0**-23


@pytest.mark.parametrize(
    ("terms", "count", "magnitude", "expected"),
    [
        (2.0, 1, 0.0, EPS**0.625 * 2.0),  # lost digits
        (2.0, 0, 0.0, EPS**0.625 * 2.0),  # a sum of less than one term
        (2.0, 10**4, 0.0, 0.01 / 3 * 2.0 / 100),  # a third of 1% in one of many terms
        (2.0, 1, 1e6, 8 * EPS * 1e6),  # roundings of what the terms are sums of
        (2e6, 10**12, 1.0, 8 * EPS * 2e6),  # roundings of the terms
    ],
)
def test_tolerance_covers_rounding_and_lost_digits(terms, count, magnitude, expected):
    assert tolerance(EPS, terms, count, magnitude) == pytest.approx(expected, rel=1e-12)


def test_sums_agree_within_gradient_rounding():
    small = tolerance(EPS, 1e-6, 4, magnitude=math.sqrt(25 + 1e-12))
    blocks = [Block(0.99 * small, 1e-6, EPS), Block(0.0, 3.0, EPS), Block(0.1, 4.0, EPS)]
    assert sums_agree(blocks, 4) == [True, True, False]
    assert sums_agree([Block(1.01 * small, 1e-6, EPS), *blocks[1:]], 4) == [False, True, False]
    assert sums_agree([Block(math.nan, math.inf, EPS), Block(1.0, 1.0, EPS)], 4) == [True, True]
    assert sums_agree([Block(0.0, 0.0, EPS)], 4) == [True]
    assert tolerance(EPS, 1e-9, 1) < 1e-10


def test_errors_are_relative_to_expected_terms():
    found, expected = np.array([1.0, -2.0]), np.array([1.5, 4.0])
    assert relative_error(found, expected) == 1.5
    assert relative_error(-found / 8, -expected / 8) == 1.5
    assert relative_error(found, expected, 12.0) == 0.5
    assert relative_error(found, expected, terms=np.array([[1.0, 6.0], [0.0, 8.0]])) == 0.6
    assert relative_error(expected, expected) == 0.0
    assert relative_error(found, np.zeros(2)) == 2.0
