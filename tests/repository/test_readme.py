"""The code of README and of the site's first page runs as it stands, and its commands exist."""

import json
import re
from pathlib import Path

import pytest

import lai_core
from experiments.demo import readme_table
from tests.support import ledger

ROOT = Path(__file__).parents[2]
DEMO = json.loads((ROOT / "experiments" / "results" / "demo" / "results.json").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text()
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README + INDEX, re.DOTALL)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_each_block_of_code_runs(index):
    names: dict = {}
    exec(compile(BLOCKS[index], f"block {index}", "exec"), names)  # the pages' own text
    if "weights" in names:
        assert names["weights"].shape == (64,)
    if "report" in names:
        report = names["report"]
        assert report.kept == int((report.weights > 0).sum()) == int((report.scores > 0).sum())


def test_table_matches_the_committed_demo():
    assert readme_table(DEMO["methods"]) in README
    only = DEMO["references"]["validation_only"]
    reached = f"{100 * only['accuracy_mean']:.1f} ± {100 * only['accuracy_std']:.1f} %"
    assert f"alone\nreaches {reached}" in README


def test_the_site_gives_the_demos_numbers():
    text = " ".join(INDEX.split())
    plain, only = DEMO["methods"]["plain"], DEMO["references"]["validation_only"]
    assert f"plain training ends at {100 * plain['accuracy_mean']:.1f}%" in text
    assert f"plain training reaches {100 * plain['early_stopped_mean']:.1f}%" in text
    assert f"validation images alone {100 * only['accuracy_mean']:.1f}%" in text


def test_commands_are_makefile_targets():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = set(re.findall(r"`?make ([a-z]+)`?", README))
    assert {"demo", "test"} <= commands <= targets


def test_release_notes_quote_pinned_counts():
    notes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(notes.splitlines()) <= 60
    assert f"## {lai_core.__version__}\n" in notes
    pinned = json.loads((ROOT / "benchmarks/compatibility/counts.json").read_text(encoding="utf-8")).values()

    def count(estimator, verdict):
        return sum(suite["counts"][estimator].get(verdict, 0) for suite in pinned)

    text = " ".join(notes.split())
    assert f"{sum(suite['cases'] for suite in pinned):,} cases" in text
    assert f"Ghost is exact in {count('ghost', 'exact'):,} and refuses {count('ghost', 'refused')}," in text
    assert f"LAI is its formula in {count('lai', 'exact'):,} and refuses {count('lai', 'refused')}," in text
    assert not any(count(name, bad) for name in ("ghost", "exact", "lai") for bad in ("wrong", "crash"))
    verdicts = [entry.verdict for entry in ledger.read().values()]
    assert f"{len(verdicts)} statements" in text
    assert f"{verdicts.count('false as printed')} are false as printed" in text
