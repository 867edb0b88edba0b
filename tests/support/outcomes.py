"""Everything that can happen, one by one: finite laws and their exact moments, in numpy."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

Law = tuple[np.ndarray, np.ndarray]
"""Outcomes `(m, ...)` and their probabilities `(m,)`."""


def random_law(rng: np.random.Generator, outcomes: int, shape: tuple[int, ...]) -> Law:
    weights = rng.uniform(0.1, 1.0, outcomes)
    return rng.standard_normal((outcomes, *shape)), weights / weights.sum()


def jointly(laws: Sequence[Law]) -> Iterator[tuple[list[np.ndarray], float]]:
    """List the outcomes of independent laws together, with their probability."""
    for places in itertools.product(*(range(len(weights)) for _, weights in laws)):
        values = [outcomes[place] for (outcomes, _), place in zip(laws, places, strict=True)]
        yield values, float(np.prod([law[1][place] for law, place in zip(laws, places, strict=True)]))


def moments(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    values, weights = np.asarray(values), np.asarray(weights)
    mean = float(values @ weights)
    return mean, float((values - mean) ** 2 @ weights)


def product(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Multiply matrices in order; numbers count as matrices of one entry."""
    result = np.atleast_2d(matrices[0])
    for matrix in matrices[1:]:
        result = result @ np.atleast_2d(matrix)
    return result


NORMAL: Law = (np.array([-np.sqrt(3.0), 0.0, np.sqrt(3.0)]), np.array([1 / 6, 2 / 3, 1 / 6]))
"""Three outcomes with the moments of a standard normal number up to the fifth."""


def normal_matrices(rows: int, columns: int) -> Iterator[tuple[np.ndarray, float]]:
    """List matrices with entries drawn from `NORMAL`: exact for polynomials of degree 5 in each entry."""
    for values, weight in jointly([NORMAL] * (rows * columns)):
        yield np.array(values).reshape(rows, columns), weight
