r"""Scores with error bars: their variance from parts, a bound without a law, and a false discovery rate.

The variance is unbiased for parts of any sizes.

Of the empirical Bernstein interval (Maurer and Pontil, "Empirical Bernstein bounds and sample variance
penalization", COLT 2009, Theorem 4) two inequalities in probability are cited, which fail with probability
delta / 2 each: Bennett's with the true variance (their Theorem 3), and that of the sample's standard
deviation (their Theorem 10). That the interval follows from them is proved.

Of the false discovery rate (Benjamini and Yekutieli, "The control of the false discovery rate in multiple
testing under dependency", Annals of Statistics 29, 2001, Theorem 1.3) everything is proved. There p_ik is the
probability that the p-value of one sample that does no harm lies between the limits i - 1 and i while k
samples are dropped.
"""

from __future__ import annotations

import random

import pytest
import sympy as sp

from proofs._harness import AtMost, Equal, Statement, Steps, under
from proofs._symbols import total


def spread(*, freedom: int = 1, power: int = 1, by_size: bool = True) -> Statement:
    """State that the variance from parts is unbiased, and deviations uncorrelated with the sum."""

    def names(depth: int) -> tuple:
        sizes = list(sp.symbols(f"n:{depth}", positive=True))
        return sizes, list(sp.symbols(f"e:{depth}", real=True)), sp.Symbol("s", positive=True)

    def centre(size: sp.Expr, samples: sp.Expr, parts: sp.Expr) -> sp.Expr:
        return size / samples if by_size else 1 / sp.sympify(parts)

    def claim(depth: int) -> tuple[Equal, ...]:
        sizes, errors, s = names(depth)
        samples, sum_of_errors = total(sizes), total(errors)

        def expected(expression: sp.Expr) -> sp.Expr:
            # parts are independent, and the error of one of size n_i has mean 0 and variance n_i s
            squares = (sp.diff(expression, error, 2) / 2 for error in errors)
            return total(square * n * s for square, n in zip(squares, sizes, strict=True))

        rests = [e - centre(n, samples, depth) * sum_of_errors for n, e in zip(sizes, errors, strict=True)]
        estimate = total(rest**2 / n**power for n, rest in zip(sizes, rests, strict=True)) / (depth - freedom)
        unrelated = (Equal(expected(sum_of_errors * rest), 0) for rest in rests)
        return (Equal(expected(estimate), s), *unrelated)

    return Statement(
        slug="part-variance",
        scope="any number of parts, any sizes, any law with a variance",
        claim=claim,
        depths=(2, 3),
        parts={"freedom": freedom, "power": power, "centre": centre},
    )


def spread_proof(statement: Statement, steps: Steps) -> None:
    """Expand one part's square, add all parts up, and take the mean."""
    part = statement.part
    n, c, m, s = sp.symbols("n c m s", positive=True)
    e, T, A = sp.symbols("e T A", real=True)
    square = (e - part.centre(c, n, m) * T) ** 2 / c**part.power
    steps.identity("one part", square, e**2 / c - 2 * e * T / n + c * T**2 / n**2)
    steps.identity("all parts", A - 2 * T * T / n + n * T**2 / n**2, A - T**2 / n)
    means = (m * s - n * s / n) / (m - part.freedom)
    mean = steps.identity("means: s of each part, n s of T^2", means, s)
    alone = steps.identity("covariance of T and one deviation", c * s - c / n * (n * s), 0)

    def parts(depth: int) -> list:
        sizes = sp.symbols(f"n:{depth}", positive=True)
        unrelated = [alone.at({c: size, n: total(sizes)}) for size in sizes]
        return [mean.at({m: depth, n: total(sizes)}), *unrelated]

    steps.conclude(statement, parts)


def bernstein(*, sixths: int = 7, ordered: bool = True, root: bool = True) -> Statement:
    """State the bound, given the two cited ones; u = sqrt(2 L / n) and v = sqrt(2 L / (n - 1))."""
    names = sp.symbols("D sigma sd R u v", nonnegative=True)

    def claim(depth: int) -> AtMost:
        D, _, sd, R, u, v = names
        return AtMost(D, (sd * u if root else 0) + sp.Rational(sixths, 6) * R * v**2)

    def given(depth: int) -> tuple[AtMost, ...]:
        D, sigma, sd, R, u, v = names
        cited = AtMost(D, sigma * u + R * u**2 / 6), AtMost(sigma, sd + R * v)
        law = "the $m$ parts are independent and of one law"  # of which two cited inequalities are made
        return under(law, (*cited, AtMost(u, v)) if ordered else cited)

    def sample(draw: random.Random, depth: int) -> dict:
        D, sigma, sd, R, u, v = names
        values = {x: sp.Rational(draw.randint(0, 6), 2) for x in (sd, R, u, v)}
        if ordered:
            values[v] = values[u] + draw.choice((0, 0, 1))
        values[sigma] = values[sd] + values[R] * values[v]
        values[D] = values[sigma] * values[u] + values[R] * values[u] ** 2 / 6
        return values

    return Statement(
        slug="empirical-bernstein",
        scope="any number of parts; the two inequalities in probability are cited",
        claim=claim,
        given=given,
        sample=sample,
        parts={"constant": sp.Rational(sixths, 6), "ordered": ordered, "root": root},
    )


def bernstein_proof(statement: Statement, steps: Steps) -> None:
    """Put one inequality into the other; what is missing of the bound is a sum of products of slacks."""
    part = statement.part
    sd, R, u, first, second = sp.symbols("sd R u f g", nonnegative=True)
    w = sp.Symbol("w", **{"nonnegative" if part.ordered else "real": True})
    v = u + w
    sigma = sd + R * v - first
    D = sigma * u + R * u**2 / 6 - second
    bound = (sd * u if part.root else 0) + part.constant * R * v**2
    # v (v - u) and v^2 - u^2 in products of u and w = v - u
    rest = [first * u, second, R * u * w, R * w**2, R * u * w / 3, R * w**2 / 6]
    missing = steps.nonnegative("what is missing", bound - D, rest)

    def slacks(depth: int):
        D, sigma, sd, R, u, v = sp.symbols("D sigma sd R u v", nonnegative=True)
        return missing.at({first: sd + R * v - sigma, second: sigma * u + R * u**2 / 6 - D, w: v - u})

    steps.conclude(statement, slacks, depths=(1,))


def discoveries(*, harmonic: bool = True, claimed: int = 1, power: int = 1) -> Statement:
    """State that one sample that does no harm adds at most q / n to the false discovery rate."""

    def names(depth: int) -> tuple:
        pairs = [(i, k) for i in range(1, depth + 1) for k in range(i, depth + 1)]
        return {p: sp.Symbol(f"p{p[0]}_{p[1]}", nonnegative=True) for p in pairs}, sp.Symbol(
            "q", positive=True
        )

    def limit(index: int, depth: int) -> sp.Expr:
        """Give the p-value that the sample may have to be among `index` that are dropped."""
        over = depth * (sp.harmonic(depth) if harmonic else 1)
        return sp.Symbol("q", positive=True) * sp.Integer(index) ** power / over

    def claim(depth: int) -> AtMost:
        chances, q = names(depth)
        return AtMost(total(p / k for (_, k), p in chances.items()), q / (claimed * depth))

    def given(depth: int) -> tuple[AtMost, ...]:
        chances, _ = names(depth)
        uniform = (
            "the probability that $p_j \\le x$ is at most $x$ for each of the $n_0$ samples that do no harm"
        )
        below = (
            AtMost(total(p for (i, _), p in chances.items() if i <= at_most), limit(at_most, depth))
            for at_most in range(1, depth + 1)
        )
        return under(uniform, below)

    def sample(draw: random.Random, depth: int) -> dict:
        chances, q = names(depth)
        values = {symbol: sp.Integer(0) for symbol in chances.values()}
        values[q] = sp.Rational(draw.randint(1, 8), 8)
        for i in range(1, depth + 1):
            room = (limit(i, depth) - (limit(i - 1, depth) if i > 1 else 0)).subs(q, values[q])
            k = draw.choice((i, draw.randint(i, depth)))
            values[chances[i, k]] = room * draw.choice((1, 1, sp.Rational(1, 2)))
        return values

    return Statement(
        slug="false-discovery-rate",
        scope="any number of samples, any dependence",
        claim=claim,
        given=given,
        depths=(1, 2, 3),
        sample=sample,
        parts={"harmonic": harmonic, "claimed": claimed, "power": power, "names": names, "limit": limit},
    )


def discoveries_proof(statement: Statement, steps: Steps) -> None:
    """Count fewer drops than there are, sum by parts, and use that p-values are not too small."""
    part = statement.part
    i, n, H, q = sp.symbols("i n H q", positive=True)
    p, slack, d = sp.symbols("p u d", nonnegative=True)
    fewer = steps.nonnegative("k samples dropped, k >= i", p / i - p / (i + d), [p * d / (i * (i + d))])
    Y, A, B = sp.symbols("Y A B", real=True)
    summed = Y + A / i + (B - A) / (i + 1)
    steps.identity("sum by parts", summed, Y + A / (i * (i + 1)) + B / (i + 1))
    c = q / (n * (H if part.harmonic else 1))
    reached = c * i**part.power - slack
    limits = c / (i + 1) - reached / (i * (i + 1))
    limited = steps.nonnegative("limits", limits, [slack / (i * (i + 1))])
    steps.identity("all together", c * (H - 1) + c * n / n, q / (part.claimed * n))

    def added_up(depth: int):
        chances, _ = part.names(depth)
        dropped = total(fewer.at({i: a, d: b - a, p: chance}) for (a, b), chance in chances.items())
        for at_most in range(1, depth + 1):
            reached = total(chance for (a, _), chance in chances.items() if a <= at_most)
            room = part.limit(at_most, depth) - reached
            one = limited.at({i: at_most, n: depth, H: sp.harmonic(depth), slack: room})
            dropped += one * (depth + 1 if at_most == depth else 1)
        return dropped

    steps.conclude(statement, added_up)


STATEMENT = spread()
MUTANTS = {
    "as many degrees of freedom as parts": spread(freedom=0),
    "parts of different sizes weighed alike": spread(power=0),
    "each part takes the same share of the sum": spread(by_size=False),
}
BERNSTEIN = bernstein()
BERNSTEIN_MUTANTS = {
    "a smaller constant": bernstein(sixths=6),
    "v that may be less than u": bernstein(ordered=False),
    "no standard deviation": bernstein(root=False),
}
DISCOVERIES = discoveries()
DISCOVERIES_MUTANTS = {
    "without the harmonic number": discoveries(harmonic=False),
    "half the rate": discoveries(claimed=2),
    "limits that grow as squares": discoveries(power=2),
}


@pytest.mark.equation("part-variance")
def prove_part_variance(settle):
    settle(STATEMENT, spread_proof, MUTANTS)


@pytest.mark.equation("empirical-bernstein")
def prove_empirical_bernstein(settle):
    settle(BERNSTEIN, bernstein_proof, BERNSTEIN_MUTANTS)


@pytest.mark.equation("false-discovery-rate")
def prove_false_discovery_rate(settle):
    settle(DISCOVERIES, discoveries_proof, DISCOVERIES_MUTANTS)
