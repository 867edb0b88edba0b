"""What a run of the tests found, statement by statement and proof file by proof file.

A full run writes ``build/equations.json``; a full run or ``pytest proofs`` writes
``build/proofs.json``. A partial run writes nothing: what it did not run it cannot judge.
Leaving the slow cases out, or the weekly ones alone, does not make a run partial. A full run in which a
statement's tests, or its proofs, have no case that passes fails: no verdict hangs on a slow case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import ledger

COUNTS = ("statements", "mutants", "mutants_rejected")


def pytest_configure(config: pytest.Config) -> None:
    """Keep a record where the reports arrive: in the only process, or in xdist's controller."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Record(config), "ledger-record")


@pytest.hookimpl(tryfirst=True)  # before any are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a report carry its test's slugs, also from another process."""
    for item in items:
        for mark in item.iter_markers("equation"):
            item.user_properties.extend(("equation", slug) for slug in mark.args)


class Record:
    """The outcomes of one run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.outcomes: dict[str, str] = {}
        self.properties: dict[str, list[tuple[str, object]]] = {}
        self.whole = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the worst outcome of a test's phases, and what it said of itself."""
        known = self.outcomes.get(report.nodeid, "passed")
        self.outcomes[report.nodeid] = known if known != "passed" else report.outcome
        if report.when == "call" or report.nodeid not in self.properties:
            self.properties[report.nodeid] = list(report.user_properties)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.whole = self.whole and not report.failed

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.whole = self.whole and all(item.get_closest_marker("slow") for item in items)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write what was found, if the run was whole, and fail it if a verdict hangs in the air."""
        option = self.config.option
        some = option.keyword or option.markexpr not in {"", "not slow", "not weekly"}
        narrowed = some or option.collectonly or getattr(option, "lf", False) or not self.whole
        if exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED} or narrowed:
            return
        build = self.config.rootpath / "build"
        chosen = {Path(argument).resolve() for argument in self.config.args}
        everything = {(self.config.rootpath / name).resolve() for name in ("tests", "proofs")}
        if everything <= chosen or self.config.rootpath.resolve() in chosen:
            found = equations(self.config.rootpath, self.outcomes, self.properties)
            _write(build / "equations.json", found)
            if untested(found, ledger.find(self.config.rootpath)) and exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif chosen != {(self.config.rootpath / "proofs").resolve()}:
            return
        _write(build / "proofs.json", proofs(self.properties))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many mutants the proofs rejected."""
        counts = proofs(self.properties).values()
        if counts:
            total = {name: sum(count[name] for count in counts) for name in COUNTS}
            terminalreporter.write_line(
                f"proofs: {len(counts)} files, {total['statements']} statements, "
                f"{total['mutants_rejected']} of {total['mutants']} mutants rejected"
            )


def equations(
    root: Path,
    outcomes: Mapping[str, str],
    properties: Mapping[str, list[tuple[str, object]]],
) -> dict[str, dict]:
    """Gather each statement's function, tests, proofs, their scope and what decided the sizes asked."""
    entries, functions = ledger.read(root), ledger.find(root).functions
    found: dict[str, dict] = {
        slug: {
            "verdict": entry.verdict,
            "function": ", ".join(functions.get(slug, [])) or None,
            "tests": {},
            "proofs": {},
            "scope": None,
            "sizes": {},
        }
        for slug, entry in entries.items()
    }
    for node, said in properties.items():
        for slug in {value for name, value in said if name == "equation"} & set(found):
            kind = "proofs" if node.startswith("proofs/") else "tests"
            found[slug][kind][node] = outcomes[node]
            scopes = [value for name, value in said if name == "scope"]
            if scopes:
                found[slug]["scope"] = scopes[0]
            for size, how in (pair for name, value in said if name == "sizes" for pair in value.items()):
                known = found[slug]["sizes"].get(size)
                found[slug]["sizes"][size] = known if known == "points" else how
    return found


def proofs(properties: Mapping[str, list[tuple[str, object]]]) -> dict[str, dict[str, int]]:
    """Count statements and mutants in each proof file."""
    files: dict[str, dict[str, int]] = {}
    for node, said in properties.items():
        file = node.partition("::")[0]
        for name, value in said:
            if name in COUNTS:
                files.setdefault(file, dict.fromkeys(COUNTS, 0))[name] += int(str(value))
    return files


def untested(found: Mapping[str, dict], links: ledger.Links) -> list[str]:
    """Name the statements that have tests or proofs of which none passed in this run."""
    linked = {"tests": links.tests, "proofs": links.proofs}
    return [
        slug
        for slug, entry in found.items()
        if any(of.get(slug) and "passed" not in entry[kind].values() for kind, of in linked.items())
    ]


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
