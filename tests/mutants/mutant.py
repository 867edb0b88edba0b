"""One change of `lai_core`, and whether tests see it.

Each mutant is a copy of the project with one text replaced; the tests named beside it, run on that
copy, must fail, and on an unchanged copy pass.
"""

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from workloads.forks import FORKS

ROOT = Path(__file__).parents[2]
CORE = "tests/core"


@dataclass(frozen=True)
class Mutant:
    """One change: in `file`, `old` becomes `new`; `tests` must see it."""

    file: str
    old: str
    new: str
    tests: str

    def apply(self, project: Path) -> None:
        """Change the copy.

        Raises
        ------
        LookupError
            If the text to change is not there exactly once: the mutant is out of date.
        """
        path = project / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            msg = f"{self.file}: expected {self.old!r} once, found it {text.count(self.old)} times"
            raise LookupError(msg)
        path.write_text(text.replace(self.old, self.new))


def survives(mutant: Mutant | None, tests: str) -> bool:
    """Whether `tests`, on the numpy backend and on what names none, pass on a copy with the mutant."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__")
        for part in ("lai_core", "tests"):
            shutil.copytree(ROOT / part, project / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", project)
        if mutant is not None:
            mutant.apply(project)
        said = project / "said"
        process = FORKS.Process(target=_run, args=(project, tests, said))
        process.start()
        process.join()
        summary = said.read_text() if said.exists() else ""
        passed, failed = process.exitcode == 0, process.exitcode == 1 and " failed" in summary
        if not passed and not failed:  # what ends otherwise says nothing about the mutant
            msg = f"{tests}: pytest ended with {process.exitcode}:\n{summary[-4000:]}"
            raise RuntimeError(msg)
        return passed


def _run(project: Path, tests: str, said: Path) -> None:
    """Run tests of the copy, in a process of its own."""
    with said.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.chdir(project)
    phases = (Phase.explicit, Phase.generate)  # nothing is made smaller: a failure is enough
    settings.register_profile("mutants", max_examples=25, deadline=None, derandomize=True, phases=phases)
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    os.environ.pop("PYTEST_XDIST_WORKER", None)
    sys.path.insert(0, str(project))
    for name in [name for name in sys.modules if name.partition(".")[0] in {"lai_core", "tests"}]:
        del sys.modules[name]  # those of the copy are meant
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    arguments += [f"{CORE}/{tests}", "-k", "not torch and not jax and not strict"]
    sys.exit(int(pytest.main(arguments)))
