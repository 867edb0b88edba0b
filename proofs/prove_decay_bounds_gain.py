r"""Gradient decay bounds the gains of the noise model: rho near 0 and gains near 1 exclude each other.

The backward operator from the last layer to one k layers below is ``A = B + D`` with a mean B and
noise D of mean zero, independent of the gradients g. A1 says ``|A g|^2 <= rho^(2k) |g|^2`` for all
of them. Then ``E |A g|^2 = |B g|^2 + E |D g|^2`` bounds ``|B g|^2``, and summed over gradients of
second moment S that is ``tr(B'B S) <= rho^(2k) tr S``; for S proportional to the identity the gain
``tr(B'B)/d`` is at most ``rho^(2k)``.

In numbers, the noise is D or -D with equal chances, and gradients are the axes: S is the identity.
"""

import sympy as sp

from proofs._harness import AtMost, Statement, settled, under, width
from proofs._rewrites import given, times, without
from proofs._symbols import matrix

SCOPE = "any depth, any widths, any noise of mean zero, any second moment of the gradients"
WIDTH = 2
RHO = sp.symbols("rho", nonnegative=True)


def parts() -> tuple[sp.Matrix, sp.Matrix]:
    return matrix("B", width(WIDTH), width(WIDTH)), matrix("D", width(WIDTH), width(WIDTH))


def statement(depth: int) -> AtMost:
    """State that the gain is at most rho^(2k)."""
    mean, _ = parts()
    return AtMost((mean.T * mean).trace() / width(WIDTH), RHO ** (2 * depth))


def lengths(sign: int) -> list:
    """Give the squared lengths of the axes' images, for noise of either sign."""
    mean, noise = parts()
    operator = mean + sign * noise
    return [(operator.T * operator)[i, i] for i in range(width(WIDTH))]


def decay(depth: int) -> tuple[AtMost, ...]:
    """State A1 for the axes."""
    lengths_of_both = (length for sign in (1, -1) for length in lengths(sign))
    return under("A1 for every gradient", (AtMost(length, RHO ** (2 * depth)) for length in lengths_of_both))


STATEMENT = Statement(
    "decay-bounds-gain",
    SCOPE,
    statement,
    given=decay,
    depths=(1, 2, 3),
    arguments=lambda depth: (RHO, *parts()),
)
MUTANTS = {
    "one power more": times(RHO),
    "noise that is not centred": given(lambda r, depth: r if r.lhs in lengths(1) else None),
    "norms that do not decay": without("A1 for every gradient"),
    "twice the gain": times(2, of="lhs"),
}


@settled("decay-bounds-gain", STATEMENT, MUTANTS)
def prove_decay_bounds_gain() -> None:
    """Expand ``|(B + D) g|^2``; the mixed part has mean zero; then sum over gradients."""
