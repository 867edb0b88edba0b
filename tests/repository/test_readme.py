"""README's code runs as it stands, and its commands exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_each_block_of_code_runs(index):
    names: dict = {}
    exec(compile(BLOCKS[index], f"README block {index}", "exec"), names)  # README's own text
    if "weights" in names:
        assert names["weights"].shape == (64,)
    if "report" in names:
        report = names["report"]
        assert report.kept == int((report.weights > 0).sum()) == int((report.scores > 0).sum())


def test_the_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = set(re.findall(r"`?make ([a-z]+)`?", README))
    assert {"demo", "test"} <= commands <= targets
