"""Approximate scores, and the quotients of exact and approximate ones, which lie between two bounds."""

import sympy as sp

from proofs._harness import AtMost, under
from proofs._symbols import numbers

LOW, HIGH = sp.symbols("m M", positive=True)


def names(n: int) -> tuple[list, list]:
    """Name the approximate scores and the quotients."""
    return numbers("S b", n)


RATIOS = r"$m \le \Ghost_j / \LAI_j \le M$ for every sample"


def between(n: int, words: str = RATIOS) -> tuple[AtMost, ...]:
    """State that every quotient lies between m and M."""
    return under(words, (relation for b in names(n)[1] for relation in (AtMost(LOW, b), AtMost(b, HIGH))))
