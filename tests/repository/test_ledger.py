"""The ledger is a closed world: each way of breaking it is tried on a small repository."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest

from tests.support import ledger

EQUATIONS = """
[half]
title = "Half of a sum"
source = ["equation"]
place = "Eq. 1"
kind = "identity"
verdict = "exact"
given = "none"

[wrong]
title = "Half of a sum, printed with a minus"
source = ["display"]
place = "below Eq. 1"
kind = "identity"
verdict = "false as printed"
given = "$x$ is real"
corrected = ["half"]
"""

CODE = '''
def half(x, y):
    """Halve a sum.

    Implements :eq:`half` and :eq:`wrong`.
    """
    return (x + y) / 2
'''

TEST = """
import pytest
from lai_core.sums import half
from proofs.prove_half import STATEMENT

@pytest.mark.equation("half")
def test_half_is_the_formula_proved():
    assert half(3, 5) == STATEMENT.numbers("lhs")(3, 5)

@pytest.mark.equation("wrong")
def test_counterexample_to_the_minus():
    assert half(0, 2) == 1 != (0 - 2) / 2
"""

PROOF = '''
"""Half of a sum is the mean of both orders."""
import pytest
import sympy as sp
from proofs._harness import Equal, Statement
from proofs._rewrites import each, side, times

SCOPE = "any reals"
x, y = sp.symbols("x y", real=True)

def claim(depth):
    return Equal((x + y) / 2, (x + y) / 4 + (y + x) / 4)

def proof(statement, steps):
    relation = statement.relations(1)[0]
    steps.identity("expansion", relation.lhs, relation.rhs)

STATEMENT = Statement("half", SCOPE, claim, arguments=lambda depth: (x, y))
MUTANTS = {"sign": each("y", -y, of="lhs"), "factor": times(2), "power": side(lambda old, depth: old**2)}

@pytest.mark.equation("half", "wrong")
def prove_half(settle):
    settle(STATEMENT, proof, MUTANTS)
'''

PAGE = """
$$
h = (x + y) / 2
$$ (half)

$$
h = (x - y) / 2
$$ (wrong)
"""

CONFIGURATION = """
[tool.pytest.ini_options]
testpaths = ["tests", "proofs"]
python_files = ["test_*.py", "prove_*.py"]
python_functions = ["test_*", "prove_*"]
addopts = ["--strict-markers", "--import-mode=importlib", "-p", "no:cacheprovider"]
pythonpath = ["."]
markers = ["equation(*slugs): what it is about", "slow: left out"]
"""

FILES = {
    "pyproject.toml": CONFIGURATION,
    "docs/equations.toml": EQUATIONS,
    "docs/theory/sums.md": PAGE,
    "lai_core/__init__.py": "",  # a folder without this file gives way to an installed lai_core
    "lai_core/sums.py": CODE,
    "tests/test_sums.py": TEST,
    "proofs/prove_half.py": PROOF,
}
MACHINERY = [
    *("tests/__init__.py", "tests/tiers.txt", "proofs/conftest.py", "proofs/hypotheses.toml"),
    *(f"tests/support/{name}.py" for name in ("__init__", "ledger", "ledger_plugin", "tiers")),
    *(path.relative_to(ledger.ROOT).as_posix() for path in sorted((ledger.ROOT / "proofs").glob("_*.py"))),
]


@pytest.fixture
def small(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    for name in MACHINERY:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ledger.ROOT / name, tmp_path / name)
    return tmp_path


def change(root, name, old, new):
    text = (root / name).read_text(encoding="utf-8")
    assert old in text
    (root / name).write_text(text.replace(old, new), encoding="utf-8")


def missing(root):
    return ledger.problems(ledger.read(root), ledger.find(root))


def run(root, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # not what is installed beside pytest
    return subprocess.run(command, cwd=root, env=alone, capture_output=True, check=False).returncode


def test_whole_small_repository_has_no_problem(small):
    assert missing(small) == []


BREAKS = {
    "proof removed": ("proofs/prove_half.py", '@pytest.mark.equation("half", "wrong")', "", "half: no proof"),
    "test removed": ("tests/test_sums.py", '@pytest.mark.equation("half")', "", "half: no test"),
    "function unlinked": ("lai_core/sums.py", "Implements", "See", "half: no function"),
    "test's slug misspelt": ("tests/test_sums.py", '("half")', '("hlaf")', "hlaf: unknown slug"),
    "label misspelt": ("docs/theory/sums.md", "(half)", "(hlaf)", "hlaf: unknown slug"),
    "label missing": ("docs/theory/sums.md", "(half)", "", "half: no page"),
    "label twice": ("docs/theory/sums.md", "(wrong)", "(half)", "half: labelled twice"),
    "counterexample renamed": (
        "tests/test_sums.py",
        "test_counterexample_to",
        "test_of",
        "wrong: false as printed, and no test with 'counterexample' in its name",
    ),
    "hypotheses left out": (
        "docs/equations.toml",
        'verdict = "exact"\ngiven = "none"',
        'verdict = "exact"\ngiven = ""',
        "half: does not say what is assumed",
    ),
    "what the paper states given apart for nothing": (
        "docs/equations.toml",
        'verdict = "exact"\ngiven = "none"',
        'verdict = "exact"\ngiven = "none"\nprinted = "$x$ is real"',
        "half: only a statement that needs assumptions",
    ),
    "an assumption without an example": (
        "docs/equations.toml",
        'verdict = "exact"',
        'verdict = "assumption"',
        "half: an assumption, and nothing else, says what satisfies it",
    ),
    "an example of what is no assumption": (
        "docs/equations.toml",
        'verdict = "exact"\ngiven = "none"',
        'verdict = "exact"\ngiven = "none"\nviolated = "$x$ is odd"',
        "half: an assumption, and nothing else, says what satisfies it",
    ),
    "verdict mistyped": ("docs/equations.toml", '"exact"', '"true"', "half: verdict 'true' is none of"),
    "kind mistyped": ("docs/equations.toml", '"identity"', '"lemma"', "half: kind 'lemma' is none of"),
    "source mistyped": ("docs/equations.toml", '"display"', '"figure"', "wrong: source"),
    "correction missing": ("docs/equations.toml", 'corrected = ["half"]', "", "no corrected statement"),
    "correction unknown": ("docs/equations.toml", '["half"]', '["hlaf"]', "'hlaf', which is not in"),
    "reason for an equation": (
        "docs/equations.toml",
        'place = "Eq. 1"',
        'place = "Eq. 1"\nreason = "hard"',
        "only a claim in running text",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_named(small, name):
    file, old, new, expected = BREAKS[name]
    change(small, file, old, new)
    assert any(expected in line for line in missing(small)), missing(small)


def test_full_run_writes_the_contracted_file(small):
    assert run(small) == 0
    found = json.loads((small / "build/equations.json").read_text())
    assert found["half"] == {
        "verdict": "exact",
        "function": "lai_core.sums.half",
        "tests": {"tests/test_sums.py::test_half_is_the_formula_proved": "passed"},
        "proofs": {"proofs/prove_half.py::prove_half": "passed"},
        "scope": "any reals",
        "sizes": {"depth 1": "decided", "depth 2": "decided"},
    }
    counts = {"statements": 1, "mutants": 3, "mutants_rejected": 3}
    assert json.loads((small / "build/proofs.json").read_text()) == {"proofs/prove_half.py": counts}


def test_verdicts_never_depend_on_slow_tests(small):
    change(small, "tests/test_sums.py", "def test_half", "@pytest.mark.slow\ndef test_half")
    assert run(small, "-m", "not slow") == pytest.ExitCode.TESTS_FAILED
    change(small, "tests/test_sums.py", '@pytest.mark.equation("half")\n', "")
    assert run(small, "-m", "not slow") == 0
    assert (small / "build/equations.json").exists()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("lai_core/sums.py", "(x + y)", "(x - y)"),
        ("tests/test_sums.py", "def test_half", "@pytest.mark.skipif(True, reason='-')\ndef test_half"),
    ],
    ids=["sign in the code", "tests all skipped"],
)
def test_failures_are_recorded_and_fail_runs(small, file, old, new):
    change(small, file, old, new)
    assert run(small) == 1
    found = json.loads((small / "build/equations.json").read_text())
    assert {*found["half"]["tests"].values(), *found["half"]["proofs"].values()} & {"failed", "skipped"}
