"""Similarities of a chain's layers, numbered from the top, for each of several validation samples."""

from __future__ import annotations

from typing import Any

import sympy as sp

from proofs._harness import width

SAMPLES = 2
LAST = r"$\alpha^{(L)} \ge \bar\alpha > 0$"


def grid(name: str, depth: int, **kind: bool) -> list[list[sp.Symbol]]:
    """Name a number for every validation sample and layer."""
    return [list(sp.symbols(f"{name}{z}_:{depth}", **kind)) for z in range(width(SAMPLES))]


def similarities(depth: int, *, aligned: bool = False) -> tuple[list, list]:
    """Name alpha and beta; beta is non-negative under A3."""
    return grid("alpha", depth, real=True), grid(
        "beta", depth, **{"nonnegative" if aligned else "real": True}
    )


def scores(alpha: list, beta: list) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Write Ghost, LAI and LLI."""
    ghost = sp.Add(*(a * b for x, y in zip(alpha, beta, strict=True) for a, b in zip(x, y, strict=True)))
    lai = sp.Add(*(sp.Add(*x) * y[0] for x, y in zip(alpha, beta, strict=True)))
    return ghost, lai, sp.Add(*(x[0] * y[0] for x, y in zip(alpha, beta, strict=True)))


def share(draw: Any, low: int = 0) -> sp.Rational:
    """Draw a number from 0 to 1, or from -1; often an end."""
    ends = (sp.Integer(low), sp.Integer(0), sp.Integer(1))
    return draw.choice((*ends, sp.Rational(draw.randint(8 * low, 8), 8)))
