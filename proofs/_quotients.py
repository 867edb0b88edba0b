"""Approximate scores, and the quotients of exact and approximate ones, which lie between two bounds."""

import random

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


def draw_between(draw: random.Random, n: int) -> dict:
    """Draw bounds, quotients between them (often at an end) and scores of any sign."""
    S, b = names(n)
    low, high = sorted(sp.Rational(draw.randint(1, 12), 6) for _ in range(2))
    shares = [draw.choice((0, 1, sp.Rational(draw.randint(0, 4), 4))) for _ in b]
    scores = {s: sp.Rational(draw.choice((-1, 1)) * draw.randint(1, 9), draw.choice((1, 2, 5))) for s in S}
    quotients = {x: low + t * (high - low) for x, t in zip(b, shares, strict=True)}
    return {LOW: low, HIGH: high} | scores | quotients
