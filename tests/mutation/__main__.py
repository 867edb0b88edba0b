"""Change `lai_core` and `lai_storage` in every small way, and count what the tests see: `make mutation`.

The well-kept tools start an interpreter for each mutant, and know neither axes nor swapped arguments.

1. `places` lists every mutant: an operator, a comparison, a constant, an axis, a sign, a dropped ``abs``,
   ``conj``, ``sqrt`` or transposition, ``min`` for ``max``, two arguments swapped. Texts of errors,
   annotations and docstrings are left alone, and what runs at import: defaults and a module's constants.
2. One traced run of the tests notes which test reaches which line, and how long it takes. Tests on jax are
   left out: its threads outlive no fork. Those on torch and the strict namespace judge what numpy does not
   reach.
3. Each mutant lives in a process forked from one that has imported and collected everything: the code of the
   changed function is put in place of the old one; the tests that reach it are run until one fails: first
   those that saw its neighbours, then the quickest and nearest.

A mutant that nothing kills is equivalent, for the reason that ``equivalent.toml`` gives, or it survives.
``build/mutation.json`` has every mutant with what became of it.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import math
import os
import random
import signal
import sys
import time
import tomllib
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import Phase, settings
from jax._src import compiler

from tests.mutation.places import PACKAGES, Place, places, sources
from tests.mutation.replacing import caches, functions, replace, unchanged

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = tuple(str(ROOT / package) for package in PACKAGES)
PROOFS = ("bounds", "estimators", "influence", "noise")
TESTS = [
    "tests/core/**/test_*.py",
    "tests/lai_storage/test_*.py",
    "tests/lai_torch/test_dataset.py",
    "tests/lai_torch/test_old_names.py",
    "tests/lai_torch/test_score[_r]*.py",
    "tests/repository/test_docstrings.py",
    *(f"tests/proofs/test_{name}.py" for name in PROOFS),
]
BACKENDS = "not jax and not compile"
OTHERS = ("torch", "strict")
"""What the name of a test has that runs on another namespace than numpy."""
FATES = {0: "survived", 2: "absent", 3: "broken", -signal.SIGALRM: "stuck"}
"""By how the mutant's process ended; any other way, it was killed."""
SECONDS, WAITS = 10, 60
"""What a test may take of a mutant: one that turns a loop endless is seen, and one that waits for ever."""
ENOUGH = 0.05
"""The share of all tests' time that one mutant may take."""


class Reach:
    """A plugin of pytest: which test reaches which line of the packages, and how long it takes."""

    def __init__(self) -> None:
        self.coverage = Coverage(data_file=None, config_file=False, include=[f"{one}/*" for one in FOLDERS])
        self.seconds: dict[str, float] = {}

    def pytest_runtestloop(self) -> None:
        self.caches = caches(tuple(Path(package).name for package in PACKAGES))
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Watch a test from its set-up on."""
        for clear in self.caches:
            clear()
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.seconds[report.nodeid] = report.duration

    def found(self) -> dict[str, dict]:
        """Return each test's time and the lines that it reaches."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines: dict[str, list] = {test: [] for test in self.seconds}
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                for test in lines.keys() & {*tests}:
                    lines[test].append([str(Path(file).relative_to(ROOT)), line])
        return {test: {"seconds": self.seconds[test], "lines": lines[test]} for test in lines}


class Mutation:
    """A plugin of pytest: once all tests are collected, try the mutants instead of running them."""

    def __init__(
        self, chosen: list[Place], reach: dict[str, dict], equivalent: dict[str, str], minutes: float
    ) -> None:
        """Turn the reach around: from lines to tests."""
        self.minutes = minutes
        self.chosen, self.equivalent = chosen, equivalent
        self.seconds = {test: found["seconds"] for test, found in reach.items()}
        self.reach: dict[tuple[str, int], set[str]] = {}
        for test, found in reach.items():
            for file, line in found["lines"]:
                self.reach.setdefault((file, line), set()).add(test)
        self.fates: dict[str, str] = {}
        self.killers: dict[str, list[str]] = {}
        self.alive: dict[tuple[str, str], list[types.FunctionType]] = {}
        self.pipe = -1

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try each mutant."""
        items = {item.nodeid: item for item in session.items}
        self.alive = functions(FOLDERS)
        end = time.monotonic() + 60.0 * self.minutes
        for number, place in enumerate(self.chosen):
            if time.monotonic() > end:
                break
            tests = [items[test] for test in self.tests(place) if test in items]
            if (
                tests
                and not number % 50
                and (failed := self.fate(unchanged(place, ROOT), tests)).startswith("killed")
            ):
                raise RuntimeError(f"the tests fail on unchanged code: {failed}")
            fate = "unreached"
            if place.name in self.equivalent:
                fate = "equivalent"
            elif tests:
                fate = self.fate(place, tests)
            self.fates[place.name] = fate
            if not fate.startswith(("killed", "equivalent")):
                sys.__stderr__.write(f"{fate:9}  {place.lines[0]:4}  {place.name}\n")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """End the mutant with its first failure, before anybody writes about it."""
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of its own time, however busy the machine is
        signal.alarm(WAITS)
        try:
            return (yield)
        except Exception:  # what skips a test is none
            self._die(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._die(report.nodeid)

    def _die(self, test: str) -> None:
        os.write(self.pipe, test.encode())
        os._exit(1)

    def tests(self, place: Place) -> list[str]:
        """List tests that reach a mutant while time allows: those that saw its neighbours, then the quick."""
        first, last = place.lines
        reached = set().union(*(self.reach.get((place.file, n), set()) for n in range(first, last + 1)))
        reached = {test for test in reached if not any(other in test for other in OTHERS)} or reached
        room = Path(place.file.removeprefix("adapters/")).parts[1].removesuffix(".py").strip("_")
        seen = [*self.killers.get(f"{place.file}::{place.scope}", []), *self.killers.get(place.file, [])]
        rank = {test: number for number, test in reversed(list(enumerate(seen)))}
        chosen, left = [], ENOUGH * sum(self.seconds.values())

        def turn(test: str) -> tuple[int, float]:
            return rank.get(test, len(rank)), self.seconds[test] * (1 if room in test else 10)

        for test in sorted(reached, key=turn):
            left -= self.seconds[test]
            if chosen and left < 0:
                break
            chosen.append(test)
        return chosen

    def fate(self, place: Place, tests: list[pytest.Item]) -> str:
        """Say what becomes of a mutant: ``killed`` and by which test, ``survived``, or another of `FATES`."""
        reader, self.pipe = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jax warns of forks; no test that is run uses it
            child = os.fork()
        if not child:
            self._live(place, tests)
        os.close(self.pipe)
        with os.fdopen(reader) as pipe:
            killer = pipe.read()  # what the mutant says before it ends
        _, status = os.waitpid(child, 0)
        for key in (f"{place.file}::{place.scope}", place.file) if killer else ():
            others = [test for test in self.killers.get(key, []) if test != killer]
            self.killers[key] = [killer, *others]
        fate = FATES.get(os.waitstatus_to_exitcode(status), "killed")
        return f"{fate} {killer}".strip()

    def _live(self, place: Place, tests: list[pytest.Item]) -> None:
        """Be the mutant; never return."""
        try:
            compiler.backend_compile_and_load = _skip  # jax's threads did not outlive the fork
            if not replace(place, ROOT, self.alive):
                os._exit(2)
            gc.collect = lambda *generation: 0  # of what a short life leaves nothing is collected
            for item, following in zip(tests, [*tests[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except SyntaxError:  # no mutant: what `places` made of it does not compile
            os._exit(3)
        except BaseException:  # whatever a mutant does, it must not come back
            os._exit(1)
        os._exit(0)


def _skip(*arguments: object, **options: object) -> None:
    pytest.skip("compiles")


def reach() -> dict[str, dict]:
    """Trace the tests of each file once for each state of it and of the packages."""
    core = _state(sources(ROOT))
    files = [file for test in TESTS for file in sorted(ROOT.glob(test))]
    states = {str(file.relative_to(ROOT)): core + _state([file]) for file in files}
    path = ROOT / "build/mutation-reach.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = {file: found for file, found in kept.items() if found["state"] == states.get(file)}
    if missing := [file for file in states if file not in kept]:
        plugin = Reach()
        if not os.fork():
            _pytest(plugin, missing)  # tests of memory fail while watched, and reach what they reach
            reached = plugin.found()
            for file in missing:
                tests = {test: found for test, found in reached.items() if test.startswith(f"{file}::")}
                kept[file] = {"state": states[file], "tests": tests}
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(kept), encoding="utf-8")
            os._exit(0)
        os.wait()
        kept = json.loads(path.read_text(encoding="utf-8"))
    return {test: found for file in kept.values() for test, found in file["tests"].items()}


def _state(files: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _pytest(plugin: object, files: list[str]) -> int:
    os.environ["HYPOTHESIS_PROFILE"] = type(plugin).__name__.lower()
    options = (
        "-o addopts= --import-mode=importlib -p no:terminal -p no:cacheprovider -p no:xdist --capture=no"
    )
    ignored = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is imported before, for its profile
    return int(pytest.main([*options.split(), "-W", ignored, "-k", BACKENDS, *files], plugins=[plugin]))


def main() -> int:
    """Try the mutants asked for; fail where fewer than 98% of those not equivalent are killed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many: a random sample")
    parser.add_argument("--only", nargs="*", default=[""], help="names that contain one of these texts")
    options = parser.parse_args()
    phases = (Phase.explicit, Phase.generate)  # nothing is made smaller: a failure is enough
    for name, examples in (("reach", 8), ("mutation", 25)):
        settings.register_profile(name, max_examples=examples, deadline=None, database=None, phases=phases)
    listed = [p for file in sources(ROOT) for p in places(file, ROOT)]
    chosen = [p for p in listed if any(text in p.name for text in options.only)]
    random.Random(0).shuffle(chosen)  # so that what was tried when it stops is a fair sample
    equivalent = tomllib.loads((Path(__file__).parent / "equivalent.toml").read_text(encoding="utf-8"))
    reached = reach()
    mutation = Mutation(chosen, reached, equivalent, options.minutes)
    _pytest(mutation, sorted({test.partition("::")[0] for test in reached}))
    fates = mutation.fates
    if not fates:
        sys.exit("no mutant was tried")
    counts = dict(Counter(fate.partition(" ")[0] for fate in fates.values()))
    killed = counts.get("killed", 0)
    judged = len(fates) - counts.get("equivalent", 0) - counts.get("absent", 0)
    print(f"{len(listed)} mutants, {len(fates)} tried, {counts}: {killed / judged:.1%} killed")
    report = {"mutants": len(listed), "score": killed / judged, "fates": fates}
    (ROOT / "build/mutation.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if killed >= 0.98 * judged else 1


if __name__ == "__main__":
    sys.exit(main())
