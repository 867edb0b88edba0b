r"""What a proof file is made of, and how it is judged.

A file ``proofs/prove_<topic>.py`` imports sympy and modules of this folder, nothing
else: a proof does not lean on the code it judges. It holds

``SCOPE``
    one sentence: what is symbolic and what is fixed ("any depth, any widths").
``claim(depth)``
    a function that gives the statement as we claim it, and beside it what is assumed.
``STATEMENT`` and ``MUTANTS``
    the `Statement` of them, and a dictionary of named mutants, at least three in a file. A
    mutant is a rewrite of the claim or of what is assumed (a sign, an exponent, an index, a
    hypothesis; see `_rewrites`), which the harness applies, so that nothing else of the
    statement or of its proof knows of it. A file with several statements has several pairs
    (``GAP``, ``GAP_MUTANTS``, ...).
``prove_<topic>(statement, steps)``
    the procedure, as a test that is marked with its slug. It is run on the statement and on
    each mutant; it may look only at the statement it is given, and every conclusion goes
    through ``steps``::

        @settled("virtual-readout", STATEMENT, MUTANTS)
        def prove_virtual_readout(statement, steps):
            steps.identity("induction step", left, right)     # left = right
            steps.nonnegative("slack", expression, terms)     # expression = sum(terms), each >= 0

    Each of them gives a lemma. The proof ends by handing over what its lemmas add up to, with the
    statement's own expressions in the place of their symbols, and that must be the claim::

        steps.conclude(statement, lambda depth: total(slack.at({u: b - m}) for m, b in layers(depth)))

    An identity must have the claim's two sides, an inequality its difference of sides; a lemma's symbols
    ask of what is put in that it has their signs, under ``given``. Induction takes the claim at a smaller
    depth (``steps.hypothesis``), or shows the first depths in full (``steps.base``). A procedure for
    several statements has a decorator for each. A statement of ours that Coq's kernel has a theorem of
    needs no derivation here: its function has no parameters, and all else is demanded.

What ``settled`` demands, so that nothing passes by accident:

* an SMT solver decides ``given => claim`` for all reals at every depth in ``depths`` and at the next one,
  with every `width` as it is and one more (see `_solver`); neither the solver nor points refute a short claim
  three and twelve sizes beyond;
* every sign that a symbol carries is listed in `_meaning`, and what stands under the ledger's words, or
  `under` `MEANING`, is what ``hypotheses.toml`` has there, expression by expression (see `_words`);
* where it gives up, and has little effort for larger sizes, the claim is an identity of rational functions,
  or holds at points that satisfy ``given``: the solver's, with each inequality tight and each symbol zero in
  turn, and random ones;
* something satisfies ``given``, and the claim is about symbols;
* ``proof`` ends without complaint;
* ``proof`` uses the claim: where one relation of it has another right side, and nothing else is changed,
  a step is refuted;
* there is a mutant; every mutant is **false**: a random point (or the mutant's own ``witness``) satisfies
  what it assumes and violates what it claims;
* on every mutant ``proof`` raises `RefutedError`, which only a failed step can raise, and a
  step fails only with numbers in hand at which it is wrong. Any other exception, and a
  step that can be neither shown nor refuted (`UndecidedError`), is an error for the
  statement and for the mutant alike: a typo rejects nothing.

Depth and width. sympy has no product of symbolic length of matrices. A statement for
every depth is therefore proved by induction: the claim at ``depth`` numbers instantiates
it, ``steps.identity`` shows the base case and the step, the latter with `MatrixSymbol`
(of symbolic size) or scalar symbols for "the sum or the product so far". Sums of
inequalities reduce to one term the same way.

Numbers. ``STATEMENT.numbers("lhs", depth=3)`` is a numpy-callable of
``STATEMENT.arguments(3)``; a test in ``tests/`` feeds random numbers to it and to the
function in ``lai_core``, so that the proof is about the formula that the code computes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest
import sympy as sp

from proofs._meaning import unstated
from proofs._relations import (
    MEANING,
    AtMost,
    Equal,
    RefutedError,
    Relation,
    UndecidedError,
    symbols_of,
    under,
    within,
)
from proofs._rewrites import Rewrite
from proofs._search import asked, search
from proofs._statement import Statement, width
from proofs._steps import Steps
from proofs._words import strangers

__all__ = [
    "MEANING",
    "STEP",
    "AtMost",
    "Equal",
    "RefutedError",
    "Statement",
    "Steps",
    "UndecidedError",
    "judge",
    "search",
    "settled",
    "under",
    "width",
    "within",
]
Proof = Callable[[Statement, Steps], None]
STEP = "the depths asked, the step to one more layer shown"
"""The scope of a proof that shows an induction's step and does not compare it with the claim."""


def settled(
    slug: str, statement: Statement, mutants: Mapping[str, Rewrite]
) -> Callable[[Any], Callable[..., None]]:
    """Make a procedure a test, marked with its slug, that settles a statement; each decorator adds a case."""
    case = pytest.param(statement, mutants, marks=pytest.mark.equation(slug), id=slug)

    def test_of(proof: Any) -> Callable[..., None]:
        procedure: Proof = getattr(proof, "procedure", proof)
        cases = [case, *getattr(proof, "cases", ())]

        @pytest.mark.parametrize(("statement", "mutants"), cases)
        def prove(settle: Any, statement: Statement, mutants: Mapping[str, Rewrite]) -> None:
            settle(statement, procedure if signature(procedure).parameters else None, mutants)

        prove.__name__, prove.__doc__ = procedure.__name__, procedure.__doc__
        vars(prove).update(procedure=procedure, cases=cases)
        return prove

    return test_of


def judge(statement: Statement, proof: Proof | None, mutants: Mapping[str, Rewrite]) -> dict[str, Any]:
    """Hold a statement true and proved, and its mutants false and rejected; by numbers alone without a proof.

    Returns
    -------
    dict
        The numbers of ``statements``, ``mutants`` and ``mutants_rejected``; of sizes at which the
        claim was ``decided`` for all reals, and of those at which points alone were tried, ``at_points``;
        and ``sizes``, which says so for each.

    Raises
    ------
    AssertionError
        If the statement fails anywhere, or a mutant survives.
    """
    if not symbols_of(statement.relations(statement.depths[-1]), ()):
        raise AssertionError(f"{statement.slug}: the claim says nothing of any symbol")
    counterexample, at_points = search(statement)
    sizes = list(statement.sizes())
    if counterexample is not None:
        raise AssertionError(f"{statement.slug}: the statement is false at {counterexample}")
    for depth in statement.depths:
        if hidden := unstated(statement.slug, statement.relations(depth), statement.given(depth)):
            raise AssertionError(f"{statement.slug}: no hypothesis says {hidden}; see proofs/_meaning.py")
    if strange := strangers(statement):
        raise AssertionError(
            f"{statement.slug}: not what the words mean in proofs/hypotheses.toml: {strange}"
        )
    if proof is not None:
        _check_proof(statement, proof)
    if not mutants:
        raise AssertionError(f"{statement.slug}: no mutant shows that the claim can be false")
    for name, rewrite in mutants.items():
        mutant = rewrite(statement)
        if search(mutant)[0] is None:
            raise AssertionError(f"{statement.slug}: mutant {name!r} was not seen to be false")
        if proof is not None and not _refutes(proof, mutant):
            raise AssertionError(f"{statement.slug}: mutant {name!r} survives the proof")
    counts = {"statements": 1, "mutants": len(mutants), "mutants_rejected": len(mutants)}
    found = {asked(*size): "points" if asked(*size) in at_points else "decided" for size in sizes}
    return counts | {"decided": len(sizes) - len(at_points), "at_points": len(at_points), "sizes": found}


def _check_proof(statement: Statement, proof: Proof) -> None:
    proof(statement, Steps())
    for name, altered in _altered(statement):
        if not _refutes(proof, altered):
            raise AssertionError(f"{statement.slug}: the proof does not notice another claim: {name}")


def _refutes(proof: Proof, statement: Statement) -> bool:
    try:
        proof(statement, Steps())
    except RefutedError:
        return True
    return False


def _altered(statement: Statement) -> Iterator[tuple[str, Statement]]:
    """Change one relation of the claim at a time, and nothing else of the statement."""
    last = statement.depths[-1]
    for index in range(len(statement.relations(last))):

        def claim(depth: int, index: int = index) -> tuple[Relation, ...]:
            relations = list(statement.relations(depth))
            if index < len(relations):
                rhs, seventh = sp.sympify(relations[index].rhs), sp.Rational(1, 7)
                if isinstance(rhs, (sp.MatrixBase, sp.MatrixExpr)):
                    seventh = sp.ones(*rhs.shape) / 7
                relations[index] = replace(relations[index], rhs=3 * rhs + seventh)
            return tuple(relations)

        yield f"relation {index}, three times the right side and a seventh", replace(statement, claim=claim)
