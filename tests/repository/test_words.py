"""One word for a thing: what the glossary replaced does not come back."""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("lai_core", "adapters", "benchmarks", "examples", "proofs", "tests")

SIDES = re.compile(r"\b(theirs|ours|mine)\b")
"""Names of the two sides: they are validation and training, or what each is."""
RETIRED = re.compile(
    r"\b(company|companies|doubts?|doubted|granted|leftovers|in disguise|standing|reindex(ed)?)\b",
    re.IGNORECASE,
)
"""Terms of the adapters for exchanged samples, deferred checks and parameters without a record."""
STOCK = re.compile(r"\n +If an argument (is of a wrong kind|does not fit)\.\n")
"""Said once, in the package's own docstring."""


def names(path: Path, text: str) -> list[str]:
    """Name where a variable is called so; in a sentence the word may stand."""
    if not SIDES.search(text):
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        f"{path}:{token.start[0]}: {token.string}"
        for token in tokens
        if token.type == tokenize.NAME and SIDES.fullmatch(token.string)
    ]


def retired(path: Path, text: str) -> list[str]:
    if "adapters" not in path.parts:
        return []
    return [f"{path}:{text.count(chr(10), 0, at.start()) + 1}: {at.group()}" for at in RETIRED.finditer(text)]


def stock(path: Path, text: str) -> list[str]:
    return [f"{path}:{text.count(chr(10), 0, at.start()) + 2}" for at in STOCK.finditer(text)]


@pytest.mark.parametrize("check", [names, retired, stock])
def test_what_was_replaced_does_not_come_back(check):
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    assert not [line for path in files for line in check(path.relative_to(ROOT), path.read_text())]


def test_what_comes_back_is_named():
    assert names(Path("leak.py"), '"""Not theirs."""\nmine, other = sides\n') == ["leak.py:2: mine"]
    assert retired(Path("adapters/leak.py"), "\n# in other company\n") == ["adapters/leak.py:2: company"]
    assert stock(Path("leak.py"), "Raises\n\n        If an argument does not fit.\n") == ["leak.py:3"]
