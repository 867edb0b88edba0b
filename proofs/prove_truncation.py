"""Ghost from its top layers: the certificate's factors multiply: one more layer, one more factor."""

import sympy as sp

from proofs._harness import MEANING, AtMost, Statement, settled, under, within
from proofs._rewrites import each, put, without
from proofs._symbols import dot, numbers

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
def prove_certificate() -> None:
    """One factor, the product of both samples', and one term; factors by Cauchy and Schwarz."""
