"""Every bound of `lai_core` against exact fractions: what it assumes is drawn, what it bounds is computed.

The test finds the bounds by their names, so that a new one fails until somebody says here how to attack it.
Entries are dyadic, with zeros, ties and ends among them; directions are integer vectors of length 5. So each
value is exact both as a fraction, in which the truth is computed, and as the float that the bound is given.
"""

import importlib
import math
import pkgutil
import random
import re
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

import lai_core
from lai_core import bounds, propagation, shapley, variance
from lai_core.assumptions import activation_bound

LEVELS = [Fraction(n, 4) for n in range(5)]
"""Of what is allowed, the part that is taken."""
RATES = [Fraction(n, 4) for n in (1, 2, 3, 4, 5)]
QUADRANT = [(5, 0), (0, 5), (3, 4), (4, 3)]
CIRCLE = [(s * x, t * y) for x, y in QUADRANT for s in (1, -1) for t in (1, -1)]


def dot(first, second):
    return sum((x * y for x, y in zip(first, second, strict=True)), Fraction(0))


def scaled(factor, vector):
    return tuple(factor * x for x in vector)


class Case:
    """A training sample and some validation samples whose traces obey A1 and A2 and what else is asked.

    `aligned`: no two gradients of a layer oppose each other. `narrow`: no cosine's size exceeds that of the
    last layer's. `positive`: embedding similarities are not negative.
    """

    def __init__(self, rng, *, aligned=False, narrow=False, positive=False):
        self.depth, self.count = rng.randint(1, 4), rng.randint(1, 3)
        self.rho, self.C_a = rng.choice(RATES), 5 * rng.choice(RATES)
        inputs, outputs = (QUADRANT if positive else CIRCLE), (QUADRANT if aligned else CIRCLE)
        levels, rests = LEVELS, LEVELS
        if rng.random() < 0.3:  # as large as it may be, and along one line, where bounds are attained
            inputs = outputs = [rng.choice(QUADRANT)]
            levels, rests = LEVELS[-1:], [rng.choice(LEVELS)]
        samples = range(self.count + 1)  # the last one is the training sample
        act = [
            [scaled(self.C_a / 5 * rng.choice(levels), rng.choice(inputs)) for _ in samples]
            for _ in range(self.depth)
        ]
        self.norms = [5 * rng.choice(RATES) for _ in samples]
        last = [rng.choice(outputs) for _ in samples]
        self.alpha = [[dot(a[z], a[-1]) for z in range(self.count)] for a in act]
        self.act_norms = [[Fraction(math.isqrt(int(dot(a, a) * 256))) / 16 for a in layer] for layer in act]
        self.beta = []
        for layer in range(self.depth):
            rate = self.rho ** (self.depth - 1 - layer)
            own = rng.choice(outputs) if layer < self.depth - 1 else last[-1]
            top = layer == self.depth - 1
            sizes = [rate * n / 5 * (1 if top else rng.choice(rests)) for n in self.norms]
            row = []
            for z in range(self.count):
                limit = abs(dot(last[z], last[-1])) if narrow else 25
                allowed = [v for v in outputs if abs(dot(v, own)) <= limit]
                vector = last[z] if top else rng.choice(allowed) if allowed else (0, 0)
                row.append(dot(scaled(sizes[z], vector), scaled(sizes[-1], own)))
            self.beta.append(row)
        terms = [
            [a * b for a, b in zip(*rows, strict=True)] for rows in zip(self.alpha, self.beta, strict=True)
        ]
        self.ghost, self.lli = sum(map(sum, terms)), sum(terms[-1])
        self.lai = sum(sum(a) * b for a, b in zip(zip(*self.alpha, strict=True), self.beta[-1], strict=True))

    @property
    def constants(self):
        return {"rho": float(self.rho), "C_a": float(self.C_a), "depth": self.depth}

    @property
    def last(self):
        """The last layer's similarities, and the norms of both sides' last gradients."""
        norms = np.asarray(self.norms, dtype=float)
        return np.asarray([[float(b)] for b in self.beta[-1]]), norms[:-1], norms[-1:]


def kernels(rows):
    return np.asarray(rows, dtype=float)[..., None]


# Each attack gives triples (low, truth, high), with None for an end that is not bounded.


def pair_gap(rng):
    case = Case(rng)
    bound = bounds.pair_gap_bound(kernels(case.beta), C_a=float(case.C_a))
    for z in range(case.count):
        gaps = [
            case.alpha[layer][z] * (case.beta[layer][z] - case.beta[-1][z]) for layer in range(case.depth)
        ]
        yield None, abs(sum(gaps)), bound[z, 0]


def norm_product(rng):
    case = Case(rng)
    _, norms, own = case.last
    bound = bounds.norm_product_bound(norms, own, rho=float(case.rho), depth=case.depth)
    for layer, z in product(range(case.depth), range(case.count)):
        yield None, abs(case.beta[layer][z]), bound[layer, z, 0]


def conservative(rng):
    case = Case(rng, aligned=True)
    gap = abs(case.ghost - case.lai)
    sharp = bounds.sharp_conservative_bound(*case.last, **case.constants)[0]
    yield None, gap, sharp
    yield None, Fraction(float(sharp)), bounds.conservative_bound(*case.last, **case.constants)[0]


def relative_conservative(rng):
    case = Case(rng, aligned=True, positive=True)
    least = min(case.alpha[-1])
    if least > 0 and sum(case.beta[-1]) > 0:
        bound = bounds.relative_conservative_bound(*case.last, **case.constants, alpha_bar=float(least))
        yield None, abs(case.ghost - case.lai) / abs(case.lai), bound[0]


def lai_lower(rng):
    case = Case(rng, aligned=True, positive=True)
    low = bounds.lai_lower_bound(case.last[0], alpha_bar=float(min(case.alpha[-1])))
    yield low[0], abs(case.lai), None


def lli_gap(rng):
    case = Case(rng, narrow=True)
    yield None, abs(case.ghost - case.lli), bounds.lli_gap_bound(case.last[0], **case.constants)[0]


def as_printed(rng):
    """Hold it to the gap of LLI, under the assumptions printed for LAI."""
    case = Case(rng, narrow=True, aligned=True)
    bound = bounds.geometric_bound_as_printed(case.last[0], **case.constants)
    yield None, abs(case.ghost - case.lli), bound[0]


def lli_relative(rng):
    case = Case(rng, narrow=True, aligned=True, positive=True)
    least = min(case.alpha[-1])
    if least > 0 and sum(case.beta[-1]) > 0:
        bound = bounds.lli_relative_bound(**case.constants, alpha_bar=float(least))
        yield None, abs(case.ghost - case.lli) / abs(case.lli), bound


def aligned_similarity(rng):
    case = Case(rng, narrow=True)
    bound = bounds.aligned_similarity_bound(case.last[0], rho=float(case.rho), depth=case.depth)
    for layer, z in product(range(case.depth), range(case.count)):
        yield None, abs(case.beta[layer][z]), bound[layer, z, 0]


def without_alignment(rng):
    case = Case(rng)
    bound = bounds.lai_gap_bound_without_alignment(*case.last, **case.constants)
    yield None, abs(case.ghost - case.lai), bound[0]
    nothing = np.zeros_like(case.last[0])
    bound = bounds.lai_gap_bound_without_alignment(nothing, *case.last[1:], **case.constants)
    yield None, abs(case.ghost - case.lli), bound[0]


def activations(rng):
    case = Case(rng)
    bound = activation_bound(np.asarray(case.act_norms, dtype=float))
    for row in case.alpha:
        for value in row:
            yield None, abs(value), float(bound) ** 2


def two_sided(rng):
    """Draw ratios of any sign between bounds for each layer, or for each layer and pair."""
    depth, count = rng.randint(1, 4), rng.randint(1, 3)
    alpha = [[rng.choice(LEVELS) for _ in range(count)] for _ in range(depth)]
    last = [rng.choice(LEVELS) for _ in range(count)]
    ends = [sorted(Fraction(rng.randint(-6, 6), 4) for _ in range(2)) for _ in range(depth)]
    if rng.random() < 0.5:
        ends = [[sorted(Fraction(rng.randint(-6, 6), 4) for _ in range(2)) for _ in last] for _ in alpha]
    low, high = (np.asarray(ends, dtype=float)[..., end] for end in (0, 1))
    if low.ndim > 1:
        low, high = low[..., None], high[..., None]
    ghost = lai = Fraction(0)
    for layer, z in product(range(depth), range(count)):
        m, M = ends[layer][z] if isinstance(ends[0][0], list) else ends[layer]
        ratio = 1 if layer == depth - 1 else m + (M - m) * rng.choice(LEVELS)
        ghost += alpha[layer][z] * ratio * last[z]
        lai += alpha[layer][z] * last[z]
    lower, upper = bounds.lai_gap_range(kernels(alpha), kernels(last), low, high)
    yield lower[0], lai - ghost, upper[0]


def relative_error(rng):
    case = Case(rng, aligned=True, narrow=True, positive=True)
    if case.rho <= 1:
        bound = bounds.relative_error_bound(kernels(case.alpha))
        yield None, abs(case.ghost - case.lai), float(bound[0]) * float(abs(case.lai))


def perturbation(rng):
    """Draw a chain of diagonal matrices, whose norms are their largest entries."""
    count, width = rng.randint(1, 4), rng.randint(1, 3)
    gains, steps = ([rng.choice(RATES) * rng.choice(LEVELS) for _ in range(count)] for _ in range(2))
    means, rests = (
        [[rng.choice((1, -1)) * n * rng.choice(LEVELS) for _ in range(width)] for n in norms]
        for norms in (gains, steps)
    )
    whole = first = Fraction(0)
    for i in range(width):
        b, d = [row[i] for row in means], [row[i] for row in rests]
        whole = max(whole, abs(math.prod(x + y for x, y in zip(b, d, strict=True)) - math.prod(b)))
        one = [math.prod([*b[:t], d[t], *b[t + 1 :]]) for t in range(count)]
        first = max(first, abs(sum(one)))
    given = np.asarray(gains, float), np.asarray(steps, float)
    yield None, whole, propagation.perturbation_norm_bound(*given)
    yield None, first, propagation.first_order_norm_bound(*given)


def jacobian_noise(rng):
    """Draw diagonal layers whose rests have a fair sign, drawn for each layer and sample."""
    count, width = rng.randint(1, 3), rng.randint(1, 2)
    sizes = [level * rate for level in LEVELS for rate in RATES]
    means, rests = ([rng.choices(sizes, k=width) for _ in range(count)] for _ in "bd")
    gz, gj = ([rng.choice((1, -1)) * 5 * rng.choice(RATES) for _ in range(width)] for _ in "zj")
    if width == 2:
        gz, gj = (list(scaled(rng.choice(RATES), rng.choice(CIRCLE))) for _ in "zj")
    signs = list(product((1, -1), repeat=count))

    def passed(g, sign, i):
        return g[i] * math.prod(b[i] + s * d[i] for b, d, s in zip(means, rests, sign, strict=True))

    values = [sum(passed(gz, s, i) * passed(gj, t, i) for i in range(width)) for s in signs for t in signs]
    mean = sum(values) / len(values)
    truth = sum((value - mean) ** 2 for value in values) / len(values)
    norms = [float(math.isqrt(int(16 * sum(x * x for x in g)))) / 4 for g in (gz, gj)]
    given = (np.asarray([float(max(row)) for row in rows]) for rows in (means, rests))
    yield None, truth, propagation.jacobian_noise_bound(*given, *map(np.asarray, norms))


def moments(rng):
    """Compute Ghost's variance over four outcomes, equally likely."""
    depth = rng.randint(1, 3)
    values = [[Fraction(rng.randint(-4, 4), 2) for _ in range(4)] for _ in range(depth)]
    alpha, gains = ([Fraction(rng.randint(-4, 4), 2) for _ in range(depth)] for _ in range(2))

    def cov(x, y):
        return sum(a * b for a, b in zip(x, y, strict=True)) / 4 - sum(x) * sum(y) / 16

    signal = values[-1]
    rests = [
        [b - c * s for b, s in zip(row, signal, strict=True)] for row, c in zip(values, gains, strict=True)
    ]
    noise = [sum(a * row[k] for a, row in zip(alpha, rests, strict=True)) for k in range(4)]
    ghost = [sum(a * row[k] for a, row in zip(alpha, values, strict=True)) for k in range(4)]
    truth, floats = cov(ghost, ghost), [np.asarray(x, float) for x in (alpha, gains)]
    spread, rest = (np.asarray(float(cov(x, x))) for x in (signal, noise))
    yield variance.ghost_variance_lower_bound(*floats, spread, rest), truth, None
    with_signal = np.asarray([float(cov(signal, row)) for row in rests])
    among = np.asarray([[float(cov(x, y)) for y in rests] for x in rests])
    for low in variance.signed_covariance_bound(*floats, spread, with_signal, among):
        yield low, truth, None
    both = [a + b for a, b in zip(signal, noise, strict=True)]
    yield variance.minkowski_lower_bound(spread, rest), cov(both, both), None


def shapley_steps(rng):
    """Draw a quadratic validation loss in each coordinate, and take all orders of the samples."""
    count, width = rng.randint(1, 4), rng.randint(1, 2)
    eta, steep = rng.choice(RATES), rng.choice(RATES)
    vectors = CIRCLE if width == 2 else [(5,), (-5,)]
    g = [scaled(rng.choice(LEVELS), rng.choice(vectors)) for _ in range(count)]
    slope = [Fraction(rng.randint(-4, 4)) for _ in range(width)]
    turns = [rng.choice((1, -1)) * steep * rng.choice(LEVELS) for _ in range(width)]

    def loss(x):
        return sum(turn * y**2 / 2 for turn, y in zip(turns, x, strict=True)) + dot(slope, x)

    found, orders = [Fraction(0)] * count, list(permutations(range(count)))
    for order in orders:
        at = [Fraction(0)] * width
        for j in order:
            then = [x - eta * y for x, y in zip(at, g[j], strict=True)]
            found[j] += (loss(at) - loss(then)) / eta / len(orders)
            at = then
    bound = shapley.shapley_first_order_bound(
        np.asarray(g, float), learning_rate=float(eta), smoothness=float(steep)
    )
    for j, exact in enumerate(found):
        yield None, abs(exact - dot(g[j], slope)), bound[j]


ATTACKS = {
    pair_gap: {"pair_gap_bound"},
    norm_product: {"norm_product_bound"},
    conservative: {"conservative_bound", "sharp_conservative_bound"},
    relative_conservative: {"relative_conservative_bound"},
    lai_lower: {"lai_lower_bound"},
    lli_gap: {"lli_gap_bound"},
    as_printed: {"geometric_bound_as_printed"},
    lli_relative: {"lli_relative_bound"},
    aligned_similarity: {"aligned_similarity_bound"},
    without_alignment: {"lai_gap_bound_without_alignment"},
    activations: {"activation_bound"},
    two_sided: {"lai_gap_range"},
    relative_error: {"relative_error_bound"},
    perturbation: {"perturbation_norm_bound", "first_order_norm_bound"},
    jacobian_noise: {"jacobian_noise_bound"},
    moments: {"minkowski_lower_bound", "ghost_variance_lower_bound", "signed_covariance_bound"},
    shapley_steps: {"shapley_first_order_bound"},
}
LOOSE = {lai_lower, moments, relative_conservative}  # bounded from below alone, or attained by nothing
BOUND = re.compile(r"_(bound|range)(_|$)")


def public_bounds():
    """Name the public functions of `lai_core` that are called bounds or ranges."""
    found = set()
    for module in pkgutil.walk_packages(lai_core.__path__, "lai_core."):
        if "._" not in module.name:
            names = vars(importlib.import_module(module.name))
            found |= {n for n, f in names.items() if BOUND.search(n) and callable(f) and n[0] != "_"}
    return found


def test_every_bound_is_attacked():
    attacked = set().union(*ATTACKS.values())
    assert public_bounds() == attacked


def hold(attack, draws):
    """Hold what an attack draws to its bounds; return how much of an upper one it reaches."""
    rng, tight, tried = random.Random(0), 0.0, 0
    for _ in range(draws):
        for low, truth, high in attack(rng):
            tried += 1
            size = 1e-12 * (1 + abs(float(truth)) + abs(float(low or 0)) + abs(float(high or 0)))
            assert low is None or float(low) <= float(truth) + size
            assert high is None or float(truth) <= float(high) + size
            if high is not None and high > 0:
                tight = max(tight, float(truth) / float(high))
    assert tried > draws / 10
    return tight


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_bounds_hold_in_fractions(attack):
    assert hold(attack, 300) > 0.999 or attack in LOOSE


@pytest.mark.weekly
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_bounds_hold_in_many_fractions(attack):
    hold(attack, 20_000)
