"""The noise and variance bounds on generated networks, for the thorough run.

Jacobians are the networks' own: ``Diag(gates) W'`` of every sample. Their mean over a batch is the
systematic part; where a bound is about independent noise, layers and both samples draw their own
independently from the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lai_core import propagation, variance
from tests.support.networks import Batch, Networks

Claim = tuple[str, np.ndarray, np.ndarray, np.ndarray]


def jacobians(networks: Networks, batch: Batch) -> list[np.ndarray]:
    """Return every sample's Jacobians ``(nets, n, d_{l-1}, d_l)``, from the layer above the first up."""
    slopes = networks.gates(batch.activations[0])
    pairs = zip(slopes, networks.weights[1:], strict=True)
    return [slope[..., None] * np.swapaxes(weight, -1, -2)[:, None] for slope, weight in pairs]


def product(matrices: list[np.ndarray]) -> np.ndarray:
    """Multiply in order."""
    result = matrices[0]
    for matrix in matrices[1:]:
        result = result @ matrix
    return result


def spectral(matrices: np.ndarray) -> np.ndarray:
    """Return the largest singular values."""
    return np.linalg.svd(matrices, compute_uv=False)[..., 0]


def claims_of_noise(facts: Any) -> Iterator[Claim]:
    """Yield the claims; `facts` are those of `tests.thorough`."""
    case = facts.case
    if facts.depth > 1:
        sides = [jacobians(case.networks, batch) for batch in (case.validation, case.training)]
        yield _perturbation(sides[1])
        yield _noise(facts, sides)
    yield _order(facts)


def _perturbation(samples: list[np.ndarray]) -> Claim:
    means = [matrix.mean(axis=1, keepdims=True) for matrix in samples]
    change = spectral(product(samples) - product(means))
    gains = np.stack([spectral(mean) for mean in means], axis=-1)
    rests = [spectral(matrix - mean) for matrix, mean in zip(samples, means, strict=True)]
    perturbations = np.stack(rests, axis=-1)
    bound = np.asarray(propagation.perturbation_norm_bound(gains, perturbations))
    return "perturbation-norm", change, bound, np.prod(gains + perturbations, axis=-1)


def _noise(facts: Any, sides: list[list[np.ndarray]]) -> Claim:
    networks = len(facts.ghost)
    laws = [
        [(matrix, np.full((networks, matrix.shape[1]), 1 / matrix.shape[1])) for matrix in side]
        for side in sides
    ]
    last = [batch.gradients[-1][:, 0] for batch in (facts.case.validation, facts.case.training)]

    def variance_and_bound(laws_z, laws_j, g, h):
        moments = [propagation.propagated_moments(*side) for side in ((laws_z, g), (laws_j, h))]
        exact = propagation.jacobian_noise_variance(*moments[0], *moments[1])
        gains = [propagation.measured_gains(laws) for laws in (laws_z, laws_j)]
        rho, sigma = (abs(one + two) / 2 + abs(one - two) / 2 for one, two in zip(*gains, strict=True))
        lengths = ((g * g).sum() ** 0.5, (h * h).sum() ** 0.5)
        return exact, propagation.jacobian_noise_bound(rho, sigma, *lengths)

    exact, bound = facts.vmap(variance_and_bound, *laws, *last)
    return "jacobian-noise-bound", exact, bound, np.abs(bound)


def _order(facts: Any) -> Claim:
    """Take the validation samples for outcomes, and alphas at their means."""
    alpha = facts.alpha.mean(axis=2)
    spreads = facts.beta.std(axis=2)
    exact = np.einsum("blj,blzj->bzj", alpha, facts.beta).var(axis=1)

    def bound(alpha, spreads):
        return variance.variance_order(alpha, spreads)[0]

    columns = [facts.vmap(bound, alpha[..., j], spreads[..., j])[:, None] for j in range(alpha.shape[-1])]
    found = np.concatenate(columns, axis=1)
    return "variance-order", exact, found, np.abs(found)
