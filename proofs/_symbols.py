"""Symbols that several proofs name: vectors, matrices, and laws with finitely many outcomes."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import sympy as sp

from proofs._harness import width


def vector(name: str, width: int, **assumptions: bool) -> sp.Matrix:
    """Name the entries of a vector."""
    return sp.Matrix(sp.symbols(f"{name}_:{width}", **{"real": True, **assumptions}))


def numbers(names: str, count: int, **assumptions: bool) -> tuple[list, ...]:
    """Name so many numbers of each name."""
    assumptions = assumptions or {"real": True}
    return tuple(list(sp.symbols(f"{name}:{count}", **assumptions)) for name in names.split())


def matrix(name: str, rows: int, columns: int) -> sp.Matrix:
    """Name the entries of a matrix, or a vector for each of several samples or positions."""
    return sp.Matrix(rows, columns, sp.symbols(f"{name}_:{rows * columns}", real=True))


def layers(names: str, depth: int, size: int) -> list[list[sp.Matrix]]:
    """Name a vector for each layer, for each of several names."""
    return [[vector(f"{name}{layer}_", size) for layer in range(depth)] for name in names.split()]


def side_by_side(left: list[sp.Matrix], right: list[sp.Matrix]) -> sp.Expr:
    """Multiply what two samples have in all layers, the layers' vectors set side by side."""
    return total(map(sp.Matrix.dot, left, right))


def exchange(first: Sequence[Any], second: Sequence[Any]) -> dict:
    """Put the symbols of two lists in each other's place."""
    return dict(zip((*first, *second), (*second, *first), strict=True))


def transposed(square: sp.Matrix) -> dict:
    """Exchange the rows and the columns of a matrix."""
    return dict(zip(square, square.T, strict=True))


def matrices(name: str, count: int) -> list[sp.Matrix]:
    """Name several square matrices, two wide."""
    return [matrix(f"{name}{index}_", width(2), width(2)) for index in range(count)]


def inner_product(left: sp.Expr, right: sp.Expr, entries: Sequence[sp.Symbol]) -> sp.Expr:
    """Multiply two losses' derivatives over all entries of all parameters."""
    return total(left.diff(entry) * right.diff(entry) for entry in entries)


def product(factors: Sequence[Any]) -> Any:
    """Multiply in order; the empty product is 1."""
    result: Any = sp.Integer(1)
    for factor in factors:
        result = result * factor
    return result


def total(terms: Any) -> Any:
    """Add; the empty sum is 0."""
    return sum(terms, sp.Integer(0))


def product_of_sums(*rows: Any) -> Any:
    """Multiply in order what several rows add up to, entry by entry."""
    return product([left + right for left, right in zip(*rows, strict=True)])


def one_replaced(factors: Sequence[Any], others: Sequence[Any], after: Any = None) -> list:
    """Multiply in order, one factor replaced in turn; ``after`` gives those that come after it."""
    return [product([*factors[:t], others[t], *(after or factors)[t + 1 :]]) for t in range(len(factors))]


def dot(*rows: Any) -> Any:
    """Add up the products of the entries of several rows."""
    return total(product(entries) for entries in zip(*rows, strict=True))


def combined(weights: Any, rows: Any) -> list:
    """Add rows up with weights, entry by entry."""
    return [dot(weights, column) for column in zip(*rows, strict=True)]


def summed(lemmas: Sequence[Any], points: Sequence[Any]) -> list:
    """Add each lemma up over points, where values are put in."""
    return [total(map(lemma.at, points)) for lemma in lemmas]


def symbolic(names: str) -> list:
    """Name matrices and vectors of symbolic sizes: ``V:oi`` has o rows and i columns, ``g:o`` is a vector.

    Without sizes capitals are square matrices and other letters vectors, all of one size.
    """
    found = []
    for name, _, sizes in (word.partition(":") for word in names.split()):
        letters = sizes or ("dd" if name.isupper() else "d")
        rows, *columns = (sp.Symbol(letter, integer=True, positive=True) for letter in letters)
        found.append(sp.MatrixSymbol(name, rows, *(columns or [1])))
    return found


def signs(count: int) -> Iterator[tuple[int, ...]]:
    """List all choices of signs."""
    return itertools.product((1, -1), repeat=count)


def covariance(left: Sequence[Any], right: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Covariance of two variables by their values in each outcome."""
    centres = [dot(values, weights) for values in (left, right)]
    return dot([x - centres[0] for x in left], [y - centres[1] for y in right], weights)


def monomials(expression: Any) -> tuple[Any, ...]:
    """Take an expression apart into the terms of its expansion."""
    return sp.Add.make_args(sp.expand(expression))


def parts_of(x: Any) -> tuple[Any, Any]:
    """Give a number's positive and negative parts: x is their difference, its size their sum."""
    return (sp.Abs(x) + x) / 2, (sp.Abs(x) - x) / 2


def symmetric(name: str, size: int) -> sp.Matrix:
    """Name the entries of a symmetric matrix."""
    return sp.Matrix(size, size, lambda i, j: sp.Symbol(f"{name}_{min(i, j)}{max(i, j)}", real=True))
