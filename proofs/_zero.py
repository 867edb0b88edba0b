"""Whether an expression is zero, or has a sign, by rewriting."""

import functools
from typing import Any

import sympy as sp

from proofs._rational import vanishes
from proofs._relations import AtMost

SIMPLE = 400  # operations up to which an expression is expanded


def shown_equal(left: Any, right: Any) -> bool:
    return _is_zero(*(sp.ImmutableMatrix(x) if isinstance(x, sp.MatrixBase) else x for x in (left, right)))


def shown_to_vanish(entry: Any) -> bool:
    """Whether an expression is zero as a rational function, or by expansion where it is none and not long."""
    decided = vanishes(entry)
    return sp.count_ops(entry) <= SIMPLE and sp.expand(entry) == 0 if decided is None else decided


@functools.lru_cache(maxsize=512)  # a proof meets its mutants and altered claims with the same steps
def _is_zero(left: Any, right: Any) -> bool:
    difference = left - right
    if isinstance(difference, sp.MatrixBase):
        return all(_is_zero(entry, sp.S.Zero) for entry in difference)
    if (decided := vanishes(difference)) is not None:
        return decided
    difference = sp.expand(sp.expand(difference.doit()).doit())
    difference = difference.replace(lambda e: isinstance(e, sp.Trace), _trace)
    if isinstance(difference, sp.MatrixExpr):
        return isinstance(difference, sp.ZeroMatrix)
    return difference == 0 or sp.simplify(difference) == 0


def _trace(trace: sp.Trace) -> Any:
    """One spelling for ``tr(A B) = tr(B A) = tr(B' A')``, and sums and factors outside."""
    inside = sp.expand(trace.arg.doit()).doit()
    if isinstance(inside, sp.MatAdd):
        return sum((_trace(sp.Trace(term)) for term in inside.args), sp.Integer(0))
    factor, product = inside.as_coeff_mmul()
    spellings = []
    for word in (product, product.T.doit()):
        letters = word.args if isinstance(word, sp.MatMul) else (word,)
        turns = (letters[i:] + letters[:i] for i in range(len(letters)))
        spellings += [sp.MatMul(*turn, evaluate=False) for turn in turns]
    return factor * sp.Trace(min(spellings, key=str))


def shown_by_signs(condition: AtMost) -> bool:
    """Whether what is asked of a value, to be above 0, holds by the signs of its symbols."""
    slack = sp.sympify(condition.rhs - condition.lhs)
    return slack.is_positive is True if condition.strict else shown_nonnegative(slack)


@functools.lru_cache(maxsize=512)
def shown_nonnegative(term: Any) -> bool:
    term = sp.sympify(term)
    if term.is_nonnegative or sp.factor(term).is_nonnegative or sp.expand(term).is_nonnegative:
        return True
    return term.is_Mul and all(shown_nonnegative(factor) for factor in term.args)
