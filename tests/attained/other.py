"""Bounds on ranks, regrets, steps, noise and variances."""

from itertools import permutations

import numpy as np

import lai_core as lai
from lai_core import bounds, influence, propagation, shapley, variance
from lai_core.estimators.sketches import sketch_variance
from tests.attained.climb import bound


@bound("descent-meaning", 4)
def descent(entries: np.ndarray) -> tuple[float, float]:
    theta, gradient = entries[:2], entries[2:]
    missed = np.sin(theta - gradient).sum() - np.sin(theta).sum() + gradient @ np.cos(theta)
    limit = influence.descent_remainder(gradient[None], learning_rate=1.0, smoothness=1.0)
    return abs(float(missed)), float(limit[0])


@bound("shapley-first-order", 4)
def one_step(entries: np.ndarray) -> tuple[float, float]:
    theta, gradients = entries[:1], entries[1:, None]
    orders = list(permutations(range(3)))
    before = [theta[0] - gradients[list(order[: order.index(0)])].sum() for order in orders]
    exact = np.mean([np.sin(at) - np.sin(at - gradients[0, 0]) for at in before])
    score = gradients @ np.cos(theta)
    limit = shapley.shapley_first_order_bound(gradients, learning_rate=1.0, smoothness=1.0)
    return abs(float(exact - score[0])), float(limit[0])


@bound("perturbation-norm", 16)
def perturbation(entries: np.ndarray) -> tuple[float, float]:
    means, rests = entries.reshape(2, 2, 2, 2)
    moved = (means[0] + rests[0]) @ (means[1] + rests[1]) - means[0] @ means[1]
    sizes = [np.array([np.linalg.norm(m, 2) for m in side]) for side in (means, rests)]
    return float(np.linalg.norm(moved, 2)), float(propagation.perturbation_norm_bound(*sizes))


@bound("jacobian-noise-bound", 20)
def jacobian_noise(entries: np.ndarray) -> tuple[float, float]:
    """Two layers of two units, each with two outcomes, for either sample: enumerated."""
    means, rests = entries[:16].reshape(2, 2, 2, 2)
    sides, half = entries[16:].reshape(2, 2), np.array([0.5, 0.5])
    ends = [
        [(means[0] + s * rests[0]) @ (means[1] + t * rests[1]) @ g for s in (1, -1) for t in (1, -1)]
        for g in sides
    ]
    products = np.array(ends[0]) @ np.array(ends[1]).T
    laws = [(np.stack([m + r, m - r]), half) for m, r in zip(means, rests, strict=True)]
    norms = [np.array(np.linalg.norm(g)) for g in sides]
    limit = propagation.jacobian_noise_bound(*propagation.measured_gains(laws), *norms)
    return float(products.var()), float(limit)


@bound("sketch-permutation", 8)
def sketch(entries: np.ndarray) -> tuple[float, float]:
    """Of four outputs in three groups; the bound of one product of two gradients."""
    g, h = np.split(entries, 2)
    sides = [lai.Trace([lai.LayerTrace(np.ones((1, 1)), side[None])]) for side in (g, h)]
    limit = ((g @ g) * (h @ h) + (g @ h) ** 2) / 3
    return float(sketch_variance(*sides, width=3)[0]), float(limit)


@bound("minkowski-lower-bound", 8)
def minkowski(entries: np.ndarray) -> tuple[float, float]:
    first, second = np.split(entries, 2)
    limit = variance.minkowski_lower_bound(np.array(first.var()), np.array(second.var()))
    return float(limit), float((first + second).var())


@bound("app-var-CS-lb", 11)
def ghost_variance(entries: np.ndarray) -> tuple[float, float]:
    """Two layers, four outcomes: the top similarity is the signal, the lower one its multiple and noise."""
    alpha, gains, signal, rest = entries[:2], np.array([entries[2], 1.0]), entries[3:7], entries[7:]
    noise = alpha[0] * rest
    exact = (alpha @ np.stack([gains[0] * signal + rest, signal])).var()
    limit = variance.ghost_variance_lower_bound(alpha, gains, np.array(signal.var()), np.array(noise.var()))
    return float(limit), float(exact)


@bound("variance-order", 10)
def variance_order(entries: np.ndarray) -> tuple[float, float]:
    alpha, values = entries[:2], entries[2:].reshape(2, 4)
    most, _ = variance.variance_order(alpha, values.std(axis=1))
    return float((alpha @ values).var()), float(most)


@bound("decay-bounds-gain", 8)
def gain(entries: np.ndarray) -> tuple[float, float]:
    """Take two Jacobians that shrink every gradient, by 0.8 at least."""
    jacobians = [j * min(1.0, 0.8 / np.linalg.norm(j, 2)) for j in entries.reshape(2, 2, 2)]
    gain = np.sum((jacobians[0] @ jacobians[1]) ** 2) / 2
    return float(gain), float(bounds.decay_powers(rho=0.8, depth=3)[0])
