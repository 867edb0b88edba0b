"""One word for a thing: what the glossary replaced does not come back."""

import ast
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
LONG = re.compile(r"(?:(?<=def )|^)test(_[a-z0-9]+){7,}", re.MULTILINE)
"""A test is called what it promises, in at most six words."""

PACKAGES = ("lai_core", "adapters/lai_torch", "adapters/lai_jax", "adapters/lai_storage")
NO_VERB = re.compile(
    r"_*(?!(need|feed|seed|speed|exceed|embed|open|listen|broaden|string|bring)(_|$)|\w*[a-z]ten(_|$)(?<!written))"
    r"([a-z0-9]{2,}(ed|en|ing)|of|as|at|by|with|without|in|on|from|into|over|past|through|behind|beside|along|up"
    r"|against|outside|inside|after|before|until|unless|one|each|other|another|own|all|same|most|apart|alone|alike"
    r"|again|once|now|later|too|why|where|together|anywhere|elsewhere|nothing|not|no|never|told|held|kept|made|found"
    r"|laid|built|drawn|spent|shown|undone|weakly)(_|$)"
)
"""How a name of a function that is no verb begins: by a participle, pronoun, preposition or adverb."""
AT_MOST = 17
"""So many are left; the number only falls."""


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


def tests(path: Path, text: str) -> list[str]:
    return [f"{path}: {at.group()}" for at in LONG.finditer(text)]


@pytest.mark.parametrize("check", [names, retired, stock, tests])
def test_replaced_words_do_not_return(check):
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    assert not [line for path in files for line in check(path.relative_to(ROOT), path.read_text())]


def test_what_comes_back_is_named():
    assert names(Path("leak.py"), '"""Not theirs."""\nmine, other = sides\n') == ["leak.py:2: mine"]
    assert retired(Path("adapters/leak.py"), "\n# in other company\n") == ["adapters/leak.py:2: company"]
    assert stock(Path("leak.py"), "Raises\n\n        If an argument does not fit.\n") == ["leak.py:3"]
    long, short = "test" + 7 * "_word", "test" + 6 * "_word"
    assert tests(Path("leak.py"), f"def {short}():\ndef {long}():") == [f"leak.py: {long}"]


def without_verb(tree: ast.AST) -> list[str]:
    """Name functions without a verb, but properties and `on_...`, as trainers call their hooks."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and NO_VERB.match(node.name)
        and not any("property" in ast.unparse(each) for each in node.decorator_list)
        and not re.match("on_.*(begin|end|start|save|step)$", node.name)
    ]


def test_functions_begin_with_a_verb():
    assert without_verb(ast.parse("def _as_it_is(): 0\ndef embed(): 0")) == ["_as_it_is"]
    trees = [ast.parse(path.read_text()) for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    public = {
        node.value
        for tree in trees
        for statement in tree.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
        for node in ast.walk(statement.value)
        if isinstance(node, ast.Constant)
    }
    left = [name for tree in trees for name in without_verb(tree) if name not in public]
    assert len(left) <= AT_MOST, sorted(left)
