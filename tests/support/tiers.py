"""Cases that take long run in CI and not in `make test`: they are measured, and listed in `slow_cases.txt`.

A listed case is marked slow, and so is a weekly one, which CI leaves out, too (`make weekly`). Not listed
are cases that hold a statement's verdict, which a quick run has to judge, and those marked `quick`: samples
whose size was chosen for a quick run.
`python -m pytest --write-tiers` measures what it runs, in one process, and writes the list anew; what it
does not run stays as it is.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "slow_cases.txt"
SECONDS = 0.7
"""Of CPU, children's included: the share of cases above it takes nearly half of all time."""


def listed() -> set[str]:
    """Return the cases, and tests all of whose cases are meant."""
    return set(LIST.read_text().splitlines())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option that measures."""
    parser.addoption("--write-tiers", action="store_true", help="write tests/slow_cases.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    """Measure if asked to."""
    if config.getoption("--write-tiers"):
        config.pluginmanager.register(Clock(), "tiers-clock")


@pytest.hookimpl(tryfirst=True)  # before any are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is listed."""
    slow = listed()
    for item in items:
        long = slow & {item.nodeid, item.nodeid.partition("[")[0]} and not stays(item)
        if long or item.get_closest_marker("weekly"):
            item.add_marker("slow")


def stays(item: pytest.Item) -> bool:
    """Whether a case belongs to a quick run however long it takes."""
    return any(item.get_closest_marker(name) for name in ("quick", "equation"))


class Clock:
    """What each case takes, by test."""

    def __init__(self) -> None:
        """Start with nothing measured."""
        self.taken: dict[str, dict[str, float]] = defaultdict(dict)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure a case with what it sets up."""
        start = _cpu()
        result = yield
        self.taken[item.nodeid.partition("[")[0]][item.nodeid] = 0.0 if stays(item) else _cpu() - start
        return result

    def pytest_sessionfinish(self) -> None:
        """Write the list: a test by its name where all its cases take long."""
        lines = [case for case in listed() if case.partition("[")[0] not in self.taken]
        for test, cases in self.taken.items():
            slow = [case for case, seconds in cases.items() if seconds > SECONDS]
            lines += [test] if len(slow) == len(cases) else slow
        LIST.write_text("".join(f"{line}\n" for line in sorted(lines)))


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
