r"""What the ledger's words mean in each proof, expression by expression: ``proofs/hypotheses.toml``.

A statement's ``given`` carries the ledger's words beside each relation. That something stands under the
right words says nothing of what it is: ``0 <= alpha < 0`` could stand there. So the file has, for each slug,
what its words mean, without indices, to be read; and a digest of all relations and of all signs that symbols
carry, at every depth that is asked, which a change of either alters. ``python -m proofs._words`` writes it,
for review beside the ledger.
"""

import hashlib
import importlib
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import sympy as sp

from proofs._meaning import carried, spelled
from proofs._relations import MEANING
from proofs._statement import Statement

FILE = Path(__file__).with_name("hypotheses.toml")
Record = Mapping[str, Any]


def describe(statement: Statement) -> dict[str, Any]:
    """Give what a statement's hypotheses are, by the ledger's words, and the digest of all of them."""
    words: dict[str, list[str]] = {}
    exact: list[str] = []
    for depth in statement.depths:
        given = statement.given(depth)
        for relation in given:
            listed = words.setdefault(relation.of, [])
            if (text := spelled(relation)) not in listed:
                listed.append(text)
            sides = [sp.srepr(sp.sympify(side)) for side in (relation.lhs, relation.rhs)]
            strict = getattr(relation, "strict", "=")
            exact.append(f"{depth} {relation.of} {strict} {' '.join(sides)}")
        exact += sorted(f"{depth} {sign}" for sign in carried(statement.relations(depth), given))
    return {"digest": hashlib.sha256("\n".join(exact).encode()).hexdigest()[:16], "words": words}


def strangers(statement: Statement) -> list[str]:
    """List what a statement of the ledger assumes that is not what the file has under its words."""
    found, known = describe(statement), recorded().get(statement.slug)
    if known is None:  # no statement of the ledger: what its symbols stand for is nowhere said
        return [text for words, texts in found["words"].items() if MEANING in words for text in texts]
    if any(found["digest"] == record["digest"] for record in known):
        return []
    listed = {(words, text) for record in known for words, texts in record["words"].items() for text in texts}
    said = [(words, text) for words, texts in found["words"].items() for text in texts]
    new = [f"{words}: {text}" for words, text in said if (words, text) not in listed]
    return new or ["other relations under the same words, or other signs of symbols"]


@cache
def recorded() -> dict[str, list[Record]]:
    """Read the file."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def statements() -> Iterator[Statement]:
    """Give every statement of the proofs' files, in their order."""
    for path in sorted(FILE.parent.glob("prove_*.py")):
        for value in vars(importlib.import_module(f"proofs.{path.stem}")).values():
            if isinstance(value, Statement):
                yield value


def write() -> str:
    """Spell the file out."""
    lines = [
        "# Written by `python -m proofs._words`, for review: what the ledger's words mean in the proofs."
    ]
    for statement in sorted(statements(), key=lambda each: each.slug):
        found = describe(statement)
        lines += ["", f"[[{statement.slug}]]", f'digest = "{found["digest"]}"', f"[{statement.slug}.words]"]
        lines += [f"'{words}' = {texts!r}" for words, texts in found["words"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(write(), encoding="utf-8")
