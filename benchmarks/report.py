"""How every benchmark ends: a table, its figures as JSON with machine and bound, and the exit code."""

import json
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BUILD = Path("build")
MOST_COLUMNS = 1000


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print figures."""
    found = Table(title=title)
    for place, column in enumerate(columns):
        found.add_column(column, justify="right" if place else "left")
    for row in rows:
        found.add_row(*row)
    console = Console()
    whole = console.measure(found, options=console.options.update(max_width=MOST_COLUMNS)).maximum
    Console(width=max(console.width, whole)).print(found)  # a narrow terminal or a pipe cuts no figure


def close(
    name: str,
    figures: Any,
    bound: Any,
    failed: Iterable[str],
    *,
    packages: Iterable[str],
    contract: Any = None,
    **setting: Any,
) -> None:
    """Write what was measured, and fail where a bound does not hold: `failed` says which, in words.

    Figures, bound, setting and machine go to `build/bench/NAME.json`, with the versions of `packages`, on
    which the figures depend; `contract` goes to `build/NAME.json`, where a reader relies on that file.
    """
    machine: dict[str, str | int] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "system": platform.system(),
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }
    said = {"figures": figures, "bound": bound, **setting, "machine": machine}
    _write(BUILD / "bench" / f"{name}.json", said)
    if contract is not None:
        _write(BUILD / f"{name}.json", contract)
    if broken := list(failed):
        raise SystemExit(f"{name}: {'; '.join(broken)}")


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
