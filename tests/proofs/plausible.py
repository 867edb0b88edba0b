"""False statements that look true, of a referee and others.

A constant tightened where nobody looks, a hypothesis dropped, norms swapped, a depth off by one, a strict
sign at equality, a sign convention, dependence overlooked.
"""

import sympy as sp

from proofs import (
    prove_decay_bounds_gain,
    prove_gap,
    prove_gates,
    prove_geometric,
    prove_jacobian_noise,
    prove_rank,
    prove_ratios,
    prove_selection,
    prove_variance_comparison,
)
from proofs._harness import AtMost, Equal, width
from proofs._symbols import covariance, product, total, vector
from tests.proofs.claims import altered, claims, half, numbers, u, v, x, y

a, b, m, k = sp.symbols("a b m k", nonnegative=True)
r = sp.Symbol("r", positive=True)


def gains_of_dependent_operators(depth):
    """Center the noise on average alone, not given the gradient: each operator meets one gradient."""
    first, second = (sp.Matrix(2, 2, numbers(4, name, real=True)) for name in "PQ")
    mean = (first + second) / 2
    return AtMost((mean.T * mean).trace() / 2, prove_decay_bounds_gain.RHO ** (2 * depth))


def lengths_of_dependent_operators(depth):
    first, second = (sp.Matrix(2, 2, numbers(4, name, real=True)) for name in "PQ")
    lengths = sum(s**2 for s in first[:, 0]), sum(s**2 for s in second[:, 1])
    return tuple(AtMost(length, prove_decay_bounds_gain.RHO ** (2 * depth)) for length in lengths)


def limit_without_bars(depth):
    alpha = numbers(depth, "alpha", real=True)
    last = alpha[0] / sp.Add(*alpha)
    return Equal(abs(1 - last), 1 - last)


def two_terms_of_the_sum(depth):
    relation, rho = prove_geometric.LLI.relations(depth)[0], prove_geometric.RHO
    powers, short = (sp.Add(*(rho ** (2 * i) for i in range(1, end))) for end in (depth, min(depth, 3)))
    rhs = sp.expand(relation.rhs).coeff(rho, 2) * short if powers else relation.rhs
    return AtMost(relation.lhs, rhs)


def twice_the_largest_sample(depth):
    """Let twice the largest sample's part stand for the sum: true for two validation samples."""
    alpha, last, ratios, low, _ = prove_ratios.names(depth)
    parts = [
        prove_ratios.weighted([row], [beta], [[1 - i for i in low]], 1)
        for row, beta in zip(alpha, last, strict=True)
    ]
    difference = prove_ratios.weighted(alpha, last, [[1 - i for i in row] for row in ratios], 1)
    return AtMost(difference, 2 * sp.Max(*parts))


def whole_less_gains(gains, rests):
    return product([g + s for g, s in zip(gains, rests, strict=True)]) - product(gains)


def noise_to_first_order(depth, start=0):
    """Bound a product's variance by what is of first order in the layers' variances, from some layer on."""
    gains, rests = numbers(depth, "g"), numbers(depth, "n")
    late = [sp.Mul(*gains[:i], rests[i], *gains[i + 1 :]) for i in range(start, depth)]
    early = whole_less_gains(gains[:start], rests[:start]) * sp.Mul(*gains[start:]) if start else 0
    return AtMost(whole_less_gains(gains, rests), early + sp.Add(*late))


def excess_of_first_order(depth):
    gains, rests = numbers(depth, "g"), numbers(depth, "n")
    most = total(rests) * product([sp.Max(g, 1) for g in gains])
    return AtMost(whole_less_gains(gains, rests), most)


def frobenius_norm_over_root_two(depth):
    """Bound a symmetric traceless form by its Frobenius norm over the root of two: true in the plane."""
    rows = width(2)
    free = list(numbers(rows - 1, "e", real=True))
    rest = sp.diag(*free, -sp.Add(*free))
    g, h = vector("g", rows), vector("h", rows)
    return AtMost((g.T * rest * h)[0] ** 2, sum(s**2 for s in rest) / 2 * g.dot(g) * h.dot(h))


def criterion_of_noise_that_knows_the_signal(depth):
    """Take two equally likely outcomes: the noise may follow the signal, gains and alpha are one number."""
    gain, whole, first, second = sp.symbols("m A b c", real=True)
    chances = [half] * 2
    signal, rest = [first, second], [x, y]
    ghost = [gain * first + x, gain * second + y]
    spread, noise, found = (covariance(of, of, chances) for of in (signal, rest, ghost))
    return Equal(found - whole**2 * spread, noise - (whole**2 - gain**2) * spread)


def gates_of_layers_that_know_each_other(depth):
    """Let the lower layer read the unit whose column is the first axis: its mean is that entry alone."""
    g, h = vector("g", 2), vector("h", 2)
    return Equal(g[0] * h[0], g.dot(h) / 2)  # whichever of the two units has the first axis


def both_orders(depth):
    """Telescope with the rests above: the same for one and two commuting layers."""
    first, rests = (
        [sp.Matrix(2, 2, sp.symbols(f"{name}{i}_:4", real=True)) for i in range(depth)] for name in "BD"
    )
    whole = [p + s for p, s in zip(first, rests, strict=True)]
    terms = [product([*whole[:i], rests[i], *whole[i + 1 :]]) for i in range(depth)]
    return Equal(product(whole) - product(first), sum(terms[1:], terms[0]))


def one_layer_less(depth):
    relations = prove_geometric.LLI.relations
    return AtMost(relations(depth)[0].lhs, relations(max(depth - 1, 1))[0].rhs)


def one_size_of_all(depth):
    relation = prove_gap.BOUND.relations(depth)[0]
    return AtMost(relation.lhs, relation.rhs / depth)


def noise_of_the_same_sample(depth):
    relation = prove_jacobian_noise.BOUND.relations(depth)[0]
    return Equal(2 * relation.lhs, relation.rhs)


def one_end_alone(depth):
    return tuple(c for c in prove_selection.AGREEMENT.given(depth) if c.lhs == prove_rank.LOW)


def strictly_below_one(depth):
    return AtMost(prove_ratios.BELOW_ONE.relations(depth)[1].lhs, 1, strict=True)


def nothing(depth):
    return ()


SUBTLE = {
    "a cosine from the mean of the ends": claims(
        AtMost(((1 + r) / 2) ** 2, 4 * r / (1 + r) ** 2), AtMost(r, 1)
    ),
    "a sign strictly agreed where both ends meet": claims(
        AtMost(m * a - k * b, x * (a - b), strict=True), AtMost(m, x), AtMost(x, k)
    ),
    "the middle weight without ordered ends": claims(AtMost((u + v) / 2 - x, (v - u) / 2), AtMost(x, v)),
    "a regret that forgets what helps and is dropped": claims(
        AtMost(
            sp.Max(x, 0) - sp.Piecewise((x, y > 0), (0, True)), sp.Piecewise((abs(x - y), y > 0), (0, True))
        )
    ),
    "an excess without its positive part": claims(
        AtMost(sp.Max(x, 0) - sp.Piecewise((x, y > 0), (0, True)), a - abs(y)),
        AtMost(x - y, a),
        AtMost(y - x, a),
    ),
    "a telescoping sum with whole layers on both sides": claims(both_orders),
    "an excess of first order": claims(excess_of_first_order, depths=(1, 2)),
    "a residual block by Pythagoras": claims(
        AtMost(k**2 + 2 * x * k * m + m**2, (1 + a**2) * k**2), AtMost(x, 1), AtMost(-x, 1), AtMost(m, a * k)
    ),
    "the largest column for the spectral norm": claims(
        AtMost((x * u + y * v) ** 2, (u**2 + v**2) * sp.Max(x**2, y**2))
    ),
    "Kantorovich without the square": claims(
        AtMost(2 * sp.sqrt(r) / (1 + r), 4 * r / (1 + r) ** 2), AtMost(r, 1)
    ),
    "the Bernstein constant one": claims(
        AtMost(x, m * a + k * b**2),
        AtMost(x, y * a + k * a**2 / 6),
        AtMost(y, m + k * b),
        AtMost(a, b),
    ),
    "the geometric bound a layer short": altered(prove_geometric.LLI, one_layer_less),
    "a pair's bound without the last similarity's size": altered(prove_gap.BOUND, one_size_of_all),
    "signs agree though only one end is known": altered(
        prove_selection.AGREEMENT, lambda depth: prove_selection.AGREEMENT.relations(depth)[0], one_end_alone
    ),
    "noise of one and the same sample": claims(noise_of_the_same_sample),
}
REFEREE = {
    "twice the largest sample for the sum": altered(
        prove_ratios.STATEMENT, twice_the_largest_sample, prove_ratios.between
    ),
    "first order from the third layer on": altered(
        prove_jacobian_noise.BOUND, lambda depth: noise_to_first_order(depth, min(depth, 2)), nothing
    ),
    "noise to first order alone": altered(prove_jacobian_noise.BOUND, noise_to_first_order, nothing),
    "the Frobenius norm over the root of two": altered(
        prove_gates.STEP, frobenius_norm_over_root_two, nothing
    ),
    "the criterion for any law": altered(
        prove_variance_comparison.CRITERION, criterion_of_noise_that_knows_the_signal, nothing
    ),
    "gate factors however dependent between layers": altered(
        prove_gates.MEAN, gates_of_layers_that_know_each_other, nothing
    ),
    "gains of operators that depend on the gradient": altered(
        prove_decay_bounds_gain.STATEMENT, gains_of_dependent_operators, lengths_of_dependent_operators
    ),
    "an error below one, strictly": altered(prove_ratios.BELOW_ONE, strictly_below_one),
    "the relative limit without bars": altered(
        prove_geometric.LIMIT,
        limit_without_bars,
        lambda depth: (AtMost(0, sp.Add(*numbers(depth, "alpha", real=True)) ** 2, strict=True),),
    ),
    "two terms of the sum at any depth": altered(prove_geometric.LLI, two_terms_of_the_sum),
}
