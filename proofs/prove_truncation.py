"""Ghost from its top layers: the certificate's factors multiply: one more layer, one more factor."""

import sympy as sp

from proofs._chain import bounded_product, cauchy_schwarz
from proofs._harness import MEANING, AtMost, Statement, Steps, settled, under, within
from proofs._rewrites import each, put, without
from proofs._symbols import dot, numbers, summed

STRETCH = "$f_t(x)$ bounds the norm of layer $t$'s backward step at $x$"


def chain_names(depth: int) -> tuple:
    """Name both samples' factors and norms, cosines, embeddings, and the norms at the top."""
    lists = numbers("fz fj nz nj", depth, nonnegative=True)
    return *lists, *numbers("c alpha", depth), *sp.symbols("n m", nonnegative=True)


def certificate(depth: int) -> tuple[AtMost, AtMost]:
    """State the certificate for chains of any widths, in norms and cosines."""
    fz, fj, nz, nj, cosines, alpha, n, m = chain_names(depth)
    most, product = sp.Integer(0), n * m
    for k in range(depth):
        product = product * fz[k] * fj[k]
        most += abs(alpha[k]) * product
    return within(most, dot(alpha, cosines, nz, nj))


def bounded_steps(depth: int) -> tuple[AtMost, ...]:
    """State that cosines are cosines, and that factors bound the norms' growth."""
    fz, fj, nz, nj, cosines, _, n, m = chain_names(depth)
    chains = (fz, [n, *nz]), (fj, [m, *nj])
    grown = (AtMost(norms[k + 1], f[k] * norms[k]) for f, norms in chains for k in range(depth))
    return under(MEANING, within(1, *cosines)) + under(STRETCH, grown)


STATEMENT = Statement(
    "top-layer-certificate",
    "any number of layers below, any widths, any activation function with a slope",
    certificate,
    given=bounded_steps,
    depths=(1, 2, 3),
    arguments=chain_names,
)
MUTANTS = {
    "norms that are not bounded": without(STRETCH, about="nz"),
    "a factor squared": each("fz", lambda factor: factor**2),
    "embeddings without bars": put(lambda depth: {abs(a): a for a in chain_names(depth)[5]}),
}


@settled("top-layer-certificate", STATEMENT, MUTANTS)
def prove_certificate(statement: Statement, steps: Steps) -> None:
    """One factor, the product of both samples', and one term; factors by Cauchy and Schwarz."""
    factor, norm, v, slack = sp.symbols("F n v u", nonnegative=True)
    stretch = factor * (norm + v) - (factor * norm - slack)
    steps.nonnegative("one more step: F (n + v) - n'", stretch, [factor * v, slack])
    lemmas, values = bounded_product(steps)
    cauchy_schwarz(steps)
    n, m, u, w = sp.symbols("n m u w", nonnegative=True)
    both = steps.nonnegative("both samples' norms", (n + u) * (m + w) - n * m, [n * w, u * m, u * w])

    @steps.conclude(statement)
    def added_up(depth: int) -> list:
        fz, fj, nz, nj, cosines, alpha, *tops = statement.arguments(depth)
        behind, missing, points = sp.Integer(0), sp.Integer(0), []
        for k in range(depth):
            above = (nz[k - 1], nj[k - 1]) if k else tops
            rests = (fz[k] * above[0] - nz[k], fj[k] * above[1] - nj[k])
            # what the product of all factors is above that of the norms, a layer further down
            behind = behind * (fz[k] * fj[k]) + both.at({n: nz[k], m: nj[k], u: rests[0], w: rests[1]})
            missing += behind * abs(alpha[k])
            size = nz[k] * nj[k]
            points.append(values(alpha[k] * size, abs(alpha[k]) * size, cosines[k], 1))
        return [one + missing for one in summed(lemmas, points)]
