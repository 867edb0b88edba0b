"""Bounds on the gaps between Ghost, LAI and LLI: a network is what its layers' vectors are."""

from collections.abc import Callable

import numpy as np

from lai_core import bounds
from tests.attained.climb import bound

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
        self.top = (self.beta[-1:, None],)
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


def of_pair(
    entries: np.ndarray, family: Callable[[np.ndarray], Pair], gap: str, limit: Callable, *read: str
) -> tuple[float, float]:
    """Compute the size of a gap and its bound, which reads some of a pair; of a bottom similarity its own."""
    pair = family(entries)
    arguments = [array for name in read for array in getattr(pair, name)]
    if gap == "bottom":
        return abs(float(pair.beta[0])), float(np.squeeze(limit(*arguments, **RATE)[0]))
    return abs(pair.ghost - getattr(pair, gap)), float(np.sum(limit(*arguments, **CONSTANTS)))


def without_last(*sides: np.ndarray, **constants: float) -> np.ndarray:
    """Bound LLI's gap: LAI's bound at last similarities of 0."""
    nothing = np.zeros((len(sides[0]), len(sides[1])))
    return bounds.lai_gap_bound_without_alignment(nothing, *sides, **constants)


WITHOUT = "gap-without-alignment"
for name, side, *about in (
    ("norm-product-bound", "", decaying, "bottom", bounds.norm_product_bound, "sides"),
    ("alignment-decay", "", aligned, "bottom", bounds.aligned_similarity_bound, "top"),
    ("app-conservative", "", opposed_nowhere, "lai", bounds.conservative_bound, "top", "sides"),
    ("conservative-sharp", "", opposed_nowhere, "lai", bounds.sharp_conservative_bound, "top", "sides"),
    (WITHOUT, "LAI", decaying, "lai", bounds.lai_gap_bound_without_alignment, "top", "sides"),
    (WITHOUT, "LLI", decaying, "lli", without_last, "sides"),
    ("lli-gap", "", aligned, "lli", bounds.lli_gap_bound, "top"),
):
    bound(name, 7 * LAYERS, side, *about)(of_pair)


@bound("zeta-bound", 7 * LAYERS)
def zeta(entries: np.ndarray) -> tuple[float, float]:
    """By the similarities of every layer."""
    pair = decaying(entries)
    limit = bounds.pair_gap_bound(pair.beta[:, None, None], C_a=C_A)
    return abs(pair.ghost - pair.lai), float(np.sum(limit))


@bound("lli-relative-gap", 7 * LAYERS)
def lli_relative(entries: np.ndarray) -> tuple[float, float]:
    """Where the last layer's similarities are not near zero."""
    pair = aligned(entries)
    if pair.alpha[-1] <= 0.01 or pair.beta[-1] <= 0.01:
        return 0.0, 1.0
    limit = bounds.lli_relative_bound(**CONSTANTS, alpha_bar=float(pair.alpha[-1]))
    return abs(pair.ghost - pair.lli) / abs(pair.lli), float(limit)


@bound("lai-lower-bound", 8)
def lai_lower(entries: np.ndarray) -> tuple[float, float]:
    """Of two validation samples."""
    alpha, last = np.abs(entries[:6]).reshape(3, 2) + 0.01, np.abs(entries[6:])[:, None]
    lower = bounds.lai_lower_bound(last, alpha_bar=float(alpha[-1].min()))
    return float(lower[0]), float(alpha.sum(0) @ last[:, 0])


@bound("lai-two-sided", 14, "above", high=True)
@bound("lai-two-sided", 14, "below", high=False)
def ranged(entries: np.ndarray, high: bool) -> tuple[float, float]:
    """Draw similarities of two validation samples whose ratios lie in a range."""
    alpha, shares = np.abs(entries[:6]).reshape(3, 2) + 0.01, np.clip(entries[6:12], 0, 1).reshape(3, 2)
    last = np.abs(entries[12:]) + 0.01
    beta = (LOW[:, None] + shares * (HIGH - LOW)[:, None]) * last
    ghost, lai = (alpha * beta).sum(), alpha.sum(0) @ last
    ends = bounds.lai_gap_range(alpha[:, :, None], last[:, None], LOW, HIGH)
    low, most = (float(np.squeeze(end)) for end in ends)
    return (float(lai - ghost), most) if high else (low, float(lai - ghost))


@bound("relative-below-one", 12)
def below_one(entries: np.ndarray) -> tuple[float, float]:
    """Of two validation samples whose ratios are at most one."""
    alpha, shares = np.abs(entries[:6]).reshape(3, 2) + 0.01, np.clip(entries[6:10], 0, 1).reshape(2, 2)
    last = np.abs(entries[10:]) + 0.01
    beta = np.concatenate([shares, np.ones((1, 2))]) * last
    error = abs(1.0 - (alpha * beta).sum() / (alpha.sum(0) @ last))
    return error, float(bounds.relative_error_bound(alpha[:, :, None])[0])
