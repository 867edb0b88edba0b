"""Names of tests are short, and those of functions begin with a verb."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("lai_core", "adapters", "benchmarks", "examples", "proofs", "tests")

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


def tests(path: Path, text: str) -> list[str]:
    return [f"{path}: {at.group()}" for at in LONG.finditer(text)]


def test_names_of_tests_are_short():
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    assert not [line for path in files for line in tests(path.relative_to(ROOT), path.read_text())]
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
