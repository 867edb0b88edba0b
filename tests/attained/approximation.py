"""Bounds on the gaps between Ghost, LAI and LLI: a network is what its layers' vectors are."""

from collections.abc import Callable

import numpy as np

from lai_core import bounds, calibration
from tests.attained.climb import Bound

LAYERS, RHO, C_A = 3, 0.8, 1.0
LOW, HIGH = np.array([0.1, 0.3, 1.0]), np.array([0.5, 0.8, 1.0])


class Pair:
    """A validation and a training sample of a network that satisfies A1 and A2."""

    def __init__(self, entries: np.ndarray, cosines: np.ndarray) -> None:
        """Read inputs off the first entries, norms off the next; cosines are given."""
        inputs = entries[: 4 * LAYERS].reshape(LAYERS, 2, 2)
        inputs = inputs / np.maximum(1.0, np.linalg.norm(inputs, axis=-1, keepdims=True)) * C_A
        shares = np.clip(np.abs(entries[4 * LAYERS : 6 * LAYERS].reshape(LAYERS, 2)), 0.0, 1.0)
        shares[-1] = 1.0  # the last layer's norms are those that the others are held against
        norms = shares * RHO ** np.arange(LAYERS - 1.0, -1.0, -1.0)[:, None] * [2.0, 3.0]
        self.norms = norms[-1]
        self.alpha = np.einsum("ld,ld->l", inputs[:, 0], inputs[:, 1])
        self.beta = norms[:, 0] * norms[:, 1] * cosines
        self.ghost = float(self.alpha @ self.beta)
        self.lai = float(self.alpha.sum() * self.beta[-1])
        self.lli = float(self.alpha[-1] * self.beta[-1])
        self.last = self.beta[-1:, None]
        self.sides = self.norms[:1], self.norms[1:]


def decaying(entries: np.ndarray) -> Pair:
    """Cosines of any sign."""
    return Pair(entries, np.clip(entries[-LAYERS:], -1.0, 1.0))


def opposed_nowhere(entries: np.ndarray) -> Pair:
    """A3: cosines that are not negative."""
    return Pair(entries, np.clip(entries[-LAYERS:], 0.0, 1.0))


def aligned(entries: np.ndarray) -> Pair:
    """No lower layer's cosine is larger than the last one's in size."""
    shares = np.clip(entries[-LAYERS:], -1.0, 1.0)
    return Pair(entries, np.append(shares[:-1], 1.0) * shares[-1])


RATE = {"rho": RHO, "depth": LAYERS}
CONSTANTS = RATE | {"C_a": C_A}


def _of_pair(
    slug: str, family: Callable, gap: Callable, bound: Callable, side: str = "", least: bool = False
) -> Bound:
    def sides(entries: np.ndarray) -> tuple[float, float]:
        pair = family(entries)
        value, limit = float(gap(pair)), float(np.sum(bound(pair)))
        return (limit, value) if least else (value, limit)

    return Bound(slug, 7 * LAYERS, sides, side)


def _lli_relative(entries: np.ndarray) -> tuple[float, float]:
    pair = aligned(entries)
    if pair.alpha[-1] <= 0.01 or pair.last <= 0.01:
        return 0.0, 1.0
    bound = bounds.lli_relative_bound(**CONSTANTS, alpha_bar=float(pair.alpha[-1]))
    return abs(pair.ghost - pair.lli) / abs(pair.lli), float(bound)


def _lai_lower(entries: np.ndarray) -> tuple[float, float]:
    alpha, last = np.abs(entries[:6]).reshape(3, 2) + 0.01, np.abs(entries[6:])[:, None]
    lower = bounds.lai_lower_bound(last, alpha_bar=float(alpha[-1].min()))
    return float(lower[0]), float(alpha.sum(0) @ last[:, 0])


def _ranged(of: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple]) -> Callable:
    """Draw similarities of two validation samples whose ratios lie in a range."""

    def sides(entries: np.ndarray) -> tuple[float, float]:
        alpha, shares = np.abs(entries[:6]).reshape(3, 2), np.clip(entries[6:12], 0, 1).reshape(3, 2)
        last = np.abs(entries[12:]) + 0.01
        beta = (LOW[:, None] + shares * (HIGH - LOW)[:, None]) * last
        value, limit = of(alpha[:, :, None] + 0.01, beta, last[:, None], (alpha + 0.01).sum(0) @ last)
        value, limit = np.squeeze(value), np.squeeze(limit)
        return float(value), float(limit)

    return sides


def _gap(alpha: np.ndarray, beta: np.ndarray, readout: bool) -> float:
    """LAI minus Ghost, or LLI's gap, Ghost minus LLI."""
    reference = beta[-1] if readout else 0.0 * beta[-1]
    return float(np.sum(alpha[:-1, :, 0] * (reference - beta[:-1]) * (1 if readout else -1)))


def _minimax(entries: np.ndarray) -> tuple[float, float]:
    alpha, shares, last = entries[:3], np.clip(entries[3:6], 0, 1), entries[6:7]
    beta = (LOW + shares * (HIGH - LOW)) * last
    weights = calibration.minimax_weights(LOW, HIGH)
    bound = calibration.minimax_bound(alpha[:, None, None], last[None], LOW, HIGH)
    return abs(float(alpha @ beta - (alpha * weights).sum() * last[0])), float(bound[0])


def _quotient(entries: np.ndarray, high: bool) -> tuple[float, float]:
    def of(alpha, beta, last, lai):
        low, most = bounds.ghost_over_lai_range(alpha, LOW, HIGH)
        ratio = (alpha[:, :, 0] * beta).sum() / lai
        return (ratio, most) if high else (low, ratio)

    return _ranged(of)(entries)


def _below_one(entries: np.ndarray) -> tuple[float, float]:
    alpha, shares = np.abs(entries[:6]).reshape(3, 2) + 0.01, np.clip(entries[6:10], 0, 1).reshape(2, 2)
    last = np.abs(entries[10:]) + 0.01
    beta = np.concatenate([shares, np.ones((1, 2))]) * last
    error = abs(1.0 - (alpha * beta).sum() / (alpha.sum(0) @ last))
    return error, float(bounds.relative_error_bound(alpha[:, :, None])[0])


def _lai_range(high: bool) -> Callable:
    def of(alpha, beta, last, lai):
        low, most = bounds.lai_gap_range(alpha, last, LOW, HIGH)
        gap = _gap(alpha, beta, readout=True)
        return (gap, most) if high else (low, gap)

    return _ranged(of)


def _lli_range(high: bool) -> Callable:
    def of(alpha, beta, last, lai):
        low, most = bounds.lli_gap_range(alpha, last, LOW, HIGH)
        gap = _gap(alpha, beta, readout=False)
        return (gap, most) if high else (low, gap)

    return _ranged(of)


BOUNDS = [
    _of_pair(
        "norm-product-bound", decaying,
        lambda p: abs(p.beta[0]), lambda p: bounds.norm_product_bound(*p.sides, **RATE)[0],
    ),
    _of_pair(
        "zeta-bound", decaying,
        lambda p: abs(p.ghost - p.lai), lambda p: bounds.pair_gap_bound(p.beta[:, None, None], C_a=C_A),
    ),
    _of_pair(
        "app-conservative", opposed_nowhere,
        lambda p: abs(p.ghost - p.lai), lambda p: bounds.conservative_bound(p.last, *p.sides, **CONSTANTS),
    ),
    _of_pair(
        "conservative-sharp", opposed_nowhere,
        lambda p: abs(p.ghost - p.lai),
        lambda p: bounds.sharp_conservative_bound(p.last, *p.sides, **CONSTANTS),
    ),
    _of_pair(
        "gap-without-alignment", decaying,
        lambda p: abs(p.ghost - p.lai),
        lambda p: bounds.lai_gap_bound_without_alignment(p.last, *p.sides, **CONSTANTS), "LAI",
    ),
    _of_pair(
        "gap-without-alignment", decaying,
        lambda p: abs(p.ghost - p.lli),
        lambda p: bounds.lli_gap_bound_without_alignment(*p.sides, **CONSTANTS), "LLI",
    ),
    _of_pair(
        "alignment-decay", aligned,
        lambda p: abs(p.beta[0]), lambda p: bounds.aligned_similarity_bound(p.last, **RATE)[0],
    ),
    _of_pair(
        "lli-gap", aligned,
        lambda p: abs(p.ghost - p.lli), lambda p: bounds.lli_gap_bound(p.last, **CONSTANTS),
    ),
    Bound("lli-relative-gap", 7 * LAYERS, _lli_relative),
    Bound("lai-lower-bound", 8, _lai_lower),
    Bound("lai-two-sided", 14, _lai_range(high=True), "above"),
    Bound("lai-two-sided", 14, _lai_range(high=False), "below"),
    Bound("lli-two-sided", 14, _lli_range(high=True), "above"),
    Bound("lli-two-sided", 14, _lli_range(high=False), "below"),
    Bound("ghost-lai-range", 14, lambda x: _quotient(x, high=True), "above"),
    Bound("ghost-lai-range", 14, lambda x: _quotient(x, high=False), "below"),
    Bound("relative-below-one", 12, _below_one),
    Bound("minimax-weights", 7, _minimax),
]  # fmt: skip
