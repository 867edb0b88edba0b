"""Which cases run when: `make test` takes a few seconds of each test, CI more, `make weekly` what is left.

`tests/tiers.txt` has a line for each test whose cases take long together: how many of them `make test` runs,
and how many CI runs. They are taken in an order that looks random and stays the same, so a new case finds
its place without a new measurement. The rest is marked slow, and weekly where CI leaves it out, too. Marks in
the code stay as they are; a case marked `quick`, and every proof, runs always.

A test of which `python -m pytest --durations=0` says that its cases take more than .7 seconds gets a line: as
many cases as take .7 seconds in `make test`, and 2 seconds in CI. CI runs one case of each test at least, and
so does `make test` where a verdict of the ledger hangs on it.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "tiers.txt"


def read_tiers() -> dict[str, tuple[int, int]]:
    """Return how many cases of each long test run in `make test`, and in CI."""
    lines = (line.rsplit(" ", 2) for line in LIST.read_text().splitlines())
    return {test: (int(quick), int(checked)) for test, quick, checked in lines}


@pytest.hookimpl(tryfirst=True)  # before any are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long."""
    tests: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("weekly"):
            item.add_marker("slow")
        elif not any(item.get_closest_marker(name) for name in ("quick", "slow")):
            tests[item.nodeid.partition("[")[0]][item.nodeid] = item
    for test, (quick, checked) in read_tiers().items():
        # an order that looks random
        for place, case in enumerate(sorted(tests[test], key=lambda case: zlib.crc32(case.encode()))):
            if place >= quick:
                tests[test][case].add_marker("slow")
            if place >= checked:
                tests[test][case].add_marker("weekly")
