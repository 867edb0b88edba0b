"""Which cases run when: `make test` takes a few seconds of each test, CI more, `make weekly` what is left.

`tests/tiers.txt` has a line for each test whose cases take long together: how many of them `make test` runs,
and how many CI runs. They are taken in an order that looks random and stays the same, so a new case finds
its place without a new measurement. The rest is marked slow, and weekly where CI leaves it out, too. Marks in
the code stay as they are; a case marked `quick`, and every proof, runs always.
`python -m pytest --write-tiers` measures the tests that it runs and writes their lines anew.
"""

from __future__ import annotations

import resource
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "tiers.txt"
QUICK, CHECKED = 0.7, 2.0
"""Seconds of CPU, children included, that a test may take in `make test` and in CI.

CI runs one case of each test at least, and so does `make test` where a verdict of the ledger hangs on it.
"""


def read_tiers() -> dict[str, tuple[int, int]]:
    """Return how many cases of each long test run in `make test`, and in CI."""
    lines = (line.rsplit(" ", 2) for line in LIST.read_text().splitlines())
    return {test: (int(quick), int(checked)) for test, quick, checked in lines}


def order_cases(cases: Iterable[str]) -> list[str]:
    """Return the cases of a test in the order in which they are taken."""
    return sorted(cases, key=lambda case: zlib.crc32(case.encode()))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option that measures."""
    parser.addoption("--write-tiers", action="store_true", help="write tests/tiers.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    """Measure if asked to."""
    if config.getoption("--write-tiers"):
        config.pluginmanager.register(Clock(), "tiers-clock")


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
        for place, case in enumerate(order_cases(tests[test])):
            if place >= quick:
                tests[test][case].add_marker("slow")
            if place >= checked:
                tests[test][case].add_marker("weekly")


class Clock:
    """What each case takes, by test, in whichever process it runs."""

    def __init__(self) -> None:
        """Start with nothing measured."""
        self.taken: dict[str, dict[str, float]] = defaultdict(dict)
        self.verdicts: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note when a case begins, with what it sets up."""
        self.start = _cpu()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Let the last report of a case say what it took."""
        if call.when == "teardown":
            item.user_properties.append(("cpu", _cpu() - self.start))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read what a case took, where all reports arrive."""
        test, said = report.nodeid.partition("[")[0], dict(report.user_properties)
        if "cpu" in said:
            self.taken[test][report.nodeid] = float(str(said["cpu"]))
        if "equation" in said:
            self.verdicts.add(test)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write a line for each test whose cases take long together."""
        if hasattr(session.config, "workerinput"):
            return
        tiers = {test: counts for test, counts in read_tiers().items() if test not in self.taken}
        for test, cases in self.taken.items():
            taken = list(accumulate(cases[case] for case in order_cases(cases)))
            quick, checked = (sum(total <= limit for total in taken) for limit in (QUICK, CHECKED))
            quick, checked = max(quick, int(test in self.verdicts)), max(checked, 1)
            if quick < len(taken) and not test.startswith("proofs/"):
                tiers[test] = quick, checked
        lines = (f"{test} {quick} {checked}\n" for test, (quick, checked) in sorted(tiers.items()))
        LIST.write_text("".join(lines))


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
