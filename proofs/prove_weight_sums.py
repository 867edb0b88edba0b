r"""The variance of a sum whose weights are random too: through second moments, term by term.

With the sum so far S and a term more x, ``Var(S + x) = Var S + 2 Cov(S, x) + Var x``, for any law of both.
"""

import itertools

import sympy as sp

from proofs._harness import Equal, Statement, settled, width
from proofs._rewrites import plus, put
from proofs._symbols import combined, covariance, dot, total

p, q = sp.symbols("p q", real=True)


def independent(depth: int) -> tuple:
    """Name the two values of each alpha and of each similarity, and the chances of the first ones."""
    return *([list(sp.symbols(f"{x}{i}_:2", real=True)) for i in range(depth)] for x in "ab"), p, q


def pairs_of(depth: int) -> tuple:
    """Give each term's outcomes, a pair of an alpha's and a similarity's, and the pairs' chances."""
    alphas, betas, *_ = independent(depth)
    pairs = list(itertools.product(range(2), repeat=2))
    terms = [[a[i] * b[k] for i, k in pairs] for a, b in zip(alphas, betas, strict=True)]
    return terms, [(p, 1 - p)[i] * (q, 1 - q)[k] for i, k in pairs]


def centre(values, chance):
    """Expect a variable with two values."""
    return dot(values, (chance, 1 - chance))


def product_of_means(depth: int) -> sp.Expr:
    """Add up the products of means."""
    alphas, betas, *_ = independent(depth)
    return total(centre(a, p) * centre(b, q) for a, b in zip(alphas, betas, strict=True))


def sums(depth: int) -> Equal:
    """State the variance of a sum with random alphas, independent of the similarities."""
    (alphas, betas, *_), (terms, chances) = independent(depth), pairs_of(depth)

    def moment(left, right, chance):
        return centre([x * y for x, y in zip(left, right, strict=True)], chance)

    rows = itertools.product(range(depth), repeat=2)
    second = total(moment(alphas[i], alphas[k], p) * moment(betas[i], betas[k], q) for i, k in rows)
    return Equal(variance_of_sum(terms, chances), second - product_of_means(depth) ** 2)


def law(depth: int) -> tuple:
    """Give each term's outcomes, and their chances, of any joint law."""
    alphas, betas = ([sp.symbols(f"{name}{i}_:{width(2)}", real=True) for i in range(depth)] for name in "ab")
    terms = [[a * b for a, b in zip(*rows, strict=True)] for rows in zip(alphas, betas, strict=True)]
    free = list(sp.symbols(f"p:{width(2) - 1}", real=True))
    return terms, [*free, 1 - total(free)]


def variance_of_sum(terms: list, chances: list) -> sp.Expr:
    """Subtract the square of the sum's mean from its mean square."""
    values = [total(column) for column in zip(*terms, strict=True)]
    return dot(values, values, chances) - dot(values, chances) ** 2


def mixed(depth: int) -> sp.Expr:
    """Add up the covariances of pairs of terms."""
    terms, chances = law(depth)
    return total(covariance(*rows, chances) for rows in itertools.combinations(terms, 2))


def not_squared(depth: int) -> sp.Expr:
    """Give what the mean has more than the mean square."""
    terms, chances = law(depth)
    values = combined([1] * depth, terms)
    return dot(values, chances) - dot(values, values, chances)


def joint(depth: int) -> Equal:
    """State the variance of a sum whose alphas and similarities have any joint law."""
    terms, chances = law(depth)
    alone = total(covariance(row, row, chances) for row in terms)
    return Equal(variance_of_sum(terms, chances), alone + 2 * mixed(depth))


JOINT = Statement(
    "random-weight-sum",
    "any number of terms (layers, validation samples); any joint law with second moments",
    joint,
    depths=(1, 2),
    parts={"law": law},
)
JOINT_MUTANTS = {
    "each pair once": plus(lambda depth: -mixed(depth)),
    "terms as if uncorrelated": plus(lambda depth: -2 * mixed(depth)),
    "not squared": plus(not_squared, of="lhs"),
}
SUMS = Statement(
    "random-weight-sum",
    "any number of terms (layers, validation samples); alphas independent of the similarities",
    sums,
    depths=(1, 2),
    arguments=independent,
    parts={"law": pairs_of},
)
SUMS_MUTANTS = {
    "alphas held at their means": put(
        lambda depth: {x: centre(alpha, p) for alpha in independent(depth)[0] for x in alpha}
    ),
    "mean not squared": plus(lambda depth: product_of_means(depth) ** 2 - product_of_means(depth)),
    "similarities by the alphas' law": put({q: p}),
}


@settled("random-weight-sum", JOINT, JOINT_MUTANTS)
@settled("random-weight-sum", SUMS, SUMS_MUTANTS)
def prove_random_weight_sum() -> None:
    """Take a term more: its own variance, and its covariance with the sum so far."""
