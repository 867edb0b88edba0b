"""One word for a thing: what the glossary replaced does not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("lai_core", "adapters", "workloads", "benchmarks", "examples", "proofs", "tests")

REPLACED = {
    "validation and training, or whatever the two sides are": re.compile(r"\b(theirs|ours|mine)\b", re.I),
    "once, in the package's own docstring": re.compile(
        r"\n +If an argument (is of a wrong kind|does not fit)\.\n"
    ),
}


def found(pattern: re.Pattern[str], path: Path, text: str) -> list[str]:
    return [f"{path}:{text.count(chr(10), 0, at.start()) + 1}: {at[0]}" for at in pattern.finditer(text)]


@pytest.mark.parametrize("instead", REPLACED)
def test_a_word_that_was_replaced_does_not_come_back(instead):
    files = (p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py") if p != Path(__file__))
    assert not [line for path in files for line in found(REPLACED[instead], path, path.read_text())]


def test_a_word_that_comes_back_is_named():
    sides, stock = REPLACED.values()
    assert found(sides, Path("leak.py"), "x = 1\nmine, other = sides\n") == ["leak.py:2: mine"]
    assert len(found(stock, Path("leak.py"), "    ValueError\n        If an argument does not fit.\n")) == 1
