"""What proves each statement, and how: read from the proofs, the kernel's statements and the last full run.

``proofs()`` reads ``proofs/`` without running it: which statement each proof settles, by which procedure,
whether that procedure compares what its lemmas add up to with the claim (`Steps.conclude`), and whether the
scope says that a part is cited. ``kernel()``
reads ``proofs/coq/Statements``, where that folder exists. ``evidence()`` says both in words, with what a full
run found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import ledger
from tests.support.kernel import claims, recorded_uses

LAWS = ", laws with finitely many outcomes"
EVERY_SIZE = re.compile(r"any depth|any number of layers")
_FINITE = re.compile(r"\(W : finType\) \(P : law R W\)")
"""A statement over any `law` of `Statements/Laws.v`, which has finitely many outcomes."""


@dataclass(frozen=True)
class Proof:
    """A statement that a proof settles: the file's name for it, and how it is proved."""

    node: str
    statement: str
    slugs: tuple[str, ...]
    derived: bool  # else a theorem under the kernel stands for the derivation
    compared: bool
    inductive: bool
    cites: bool


def proofs(root: Path = ledger.ROOT) -> list[Proof]:
    """List what the proofs settle, in the order of the files."""
    found = []
    for path in sorted((root / "proofs").glob("prove_*.py")):
        tree, scopes = ast.parse(path.read_text(encoding="utf-8")), _scopes(path)
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for name, function in functions.items():
            for call in function.decorator_list:
                if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "settled":
                    continue
                nodes = (node for other in _reached(name, functions) for node in ast.walk(functions[other]))
                called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
                statement = ast.unparse(call.args[1])
                proof = Proof(
                    node=f"{path.relative_to(root).as_posix()}::{name}",
                    statement=f"{path.stem}.{statement}",
                    slugs=tuple(ledger.slugs_of(call)),
                    derived=bool(function.args.args),
                    compared="conclude" in called,
                    inductive="hypothesis" in called,
                    cites="cited" in scopes.get(statement, ""),
                )
                found.append(proof)
    return found


def kernel(root: Path = ledger.ROOT) -> dict[str, list[str]]:
    """Name, for each slug, the theorems that a proof assistant checked: ``Implements Gap.v, lli_gap``.

    A theorem about random variables adds ``, laws with finitely many outcomes``.
    """
    found: dict[str, list[str]] = {}
    finite = finite_laws(root)
    for claim in claims(root):
        laws = LAWS if claim.key in finite else ""
        for relation, slugs in (("Implements", claim.implements), ("Refutes", claim.refutes)):
            for slug in slugs:
                found.setdefault(slug, []).append(f"{relation} {claim.chapter}.v, {claim.name}{laws}")
    return found


def finite_laws(root: Path = ledger.ROOT) -> set[str]:
    """Name the statements under a proof assistant that are about laws with finitely many outcomes."""
    texts = {
        path.stem: path.read_text(encoding="utf-8") for path in (root / "proofs/coq/Statements").glob("*.v")
    }
    return {
        claim.key
        for claim in claims(root)
        if _FINITE.search(re.split(rf"Definition {claim.name}\b", texts[claim.chapter])[1].split(".\n")[0])
    }


def rests_on() -> dict[str, set[str]]:
    """Give the slugs whose theorems each statement's theorems use: read from the kernel's proof terms."""
    about = {claim.key: {*claim.implements, *claim.refutes} for claim in claims()}
    found: dict[str, set[str]] = {}
    for key, used in recorded_uses().items():
        slugs = set().union(*(about.get(other, set()) for other in used))
        for slug in about.get(key, ()):
            found.setdefault(slug, set()).update(slugs - {slug})
    return {slug: used for slug, used in found.items() if used}


def evidence(
    slug: str,
    proved: list[Proof],
    theorems: Mapping[str, list[str]],
    run: Mapping,
    *,
    refuted: bool = False,
    defined: Sequence[str] = (),
    open_because: str = "",
) -> list[str]:
    """Say how a statement is proved and tested, from the strongest kind to the weakest.

    `refuted`: what is printed is false, and a test pins a counterexample. `defined`: definitions under the
    proof assistant that write it down. `open_because`: why nothing is proved, where nothing is.
    """
    lines = []
    for theorem in theorems.get(slug, ()):
        size = "every size" if theorem.startswith("Implements") else "false at every size"
        name, laws = theorem.partition(" ")[2].removesuffix(LAWS), LAWS if theorem.endswith(LAWS) else ""
        lines.append(f"{size}{laws}: proof assistant ({name})")
    lines += [f"written down: proof assistant ({name.replace('.', '.v, ')})" for name in defined]
    lines += ["refuted: counterexample with exact numbers"] if refuted else []
    lines += _sizes(run.get("sizes", {}))
    settled = [proof for proof in proved if slug in proof.slugs and proof.derived]
    if settled:
        compared = [proof.compared for proof in settled]
        words = "compared" if all(compared) else "compared in part" if any(compared) else "not compared"
        step = "induction step shown and " if any(proof.inductive for proof in settled) else ""
        lines.append(f"sympy, derivation: {step}{words} with the claim")
    floats = [node for node, outcome in run.get("tests", {}).items() if outcome == "passed"]
    lines += [f"floating point: {len(floats)} tests passed"] if floats else []
    if not (settled or slug in theorems or defined or refuted):
        lines.append(f"nothing is proved: {open_because or 'the text leaves its claim open'}")
    return lines


def decided(entry: ledger.Entry, lines: Sequence[str]) -> str:
    """Say by which of the ways in `evidence` the verdict on what the paper prints is decided."""
    theorem = any(line.startswith("every size") for line in lines)
    numbers = any(line.startswith("refuted") for line in lines)
    if entry.verdict == "assumption":
        return "it is an assumption: neither true nor false"
    if entry.verdict == "schematic":
        return "reading: what the text leaves open has more than one meaning"
    if entry.verdict == "false as printed":
        general = any(line.startswith("false at every size") for line in lines)
        ways = ["a counterexample in exact numbers"] * numbers + ["a refutation under the kernel"] * general
        return " and ".join(ways)
    if entry.kind == "definition" and not theorem:
        return "it is a definition: there is nothing to prove"
    if theorem:
        return "a theorem for every size"
    if any(line.startswith("sympy, derivation") for line in lines):
        return "a derivation, and a solver or points at the sizes that are named"
    return "reading: it is about measurements" if entry.reason else "tests"


def _sizes(sizes: Mapping[str, str]) -> list[str]:
    names = {"decided": "solver or rational identity, for all reals", "points": "sympy, at points alone"}
    return [
        f"{words}: " + "; ".join(sorted(size for size, how in sizes.items() if how == kind))
        for kind, words in names.items()
        if kind in sizes.values()
    ]


def _scopes(path: Path) -> dict[str, str]:
    """Give the source text of each scope: the second argument of ``NAME = Statement(slug, scope, ...)``."""
    return {
        node.targets[0].id: ast.unparse(node.value.args[1])
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "Statement"
        and len(node.value.args) > 1
    }


def _reached(name: str, functions: Mapping[str, ast.FunctionDef]) -> set[str]:
    """List a procedure and the functions of its file that it calls, directly or not."""
    found: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current in functions and current not in found:
            found.add(current)
            nodes = ast.walk(functions[current])
            pending += [getattr(node.func, "id", "") for node in nodes if isinstance(node, ast.Call)]
    return found
