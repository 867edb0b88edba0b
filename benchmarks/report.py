"""How every benchmark ends: a table, its figures as JSON with machine and bound, and the exit code."""

import json
import os
import platform
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BUILD = Path("build")
MOST_COLUMNS = 1000


def machine(packages: Iterable[str]) -> dict[str, str | int]:
    """Return the processor, its cores, the Python and the versions of `packages`."""
    found: dict[str, str | int] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "system": platform.system(),
        "python": platform.python_version(),
    }
    return found | {package: version(package) for package in packages}


def table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[str]], remarks: Iterable[str] = ()
) -> None:
    """Print figures, and below them what a table cannot hold."""
    found = Table(title=title, caption="\n".join(remarks), caption_justify="left")
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
    """Write what was measured, and fail where a bound does not hold.

    Parameters
    ----------
    name
        The figures, the bound, the setting and the machine go to `build/bench/NAME.json`.
    figures, bound, setting
        What was measured, what it may be, and under what conditions.
    failed
        What does not hold, in words.
    packages
        Whose versions the figures depend on.
    contract
        What goes to `build/NAME.json`, where a reader relies on that file.

    Raises
    ------
    SystemExit
        If something does not hold.
    """
    said = {"figures": figures, "bound": bound, **setting, "machine": machine(packages)}
    _write(BUILD / "bench" / f"{name}.json", said)
    if contract is not None:
        _write(BUILD / f"{name}.json", contract)
    if broken := list(failed):
        raise SystemExit(f"{name}: {'; '.join(broken)}")


def over(figures: dict[str, float], bounds: dict[str, float]) -> list[str]:
    """Say which figures are above their bounds, or no numbers."""
    broken = {name: bound for name, bound in bounds.items() if not figures[name] <= bound}
    return [f"{name} {figures[name]:.3f} > {bound}" for name, bound in broken.items()]


def exactness(
    name: str,
    title: str,
    found: dict[str, dict[str, Any]],
    bound: Callable[[str], float],
    packages: Iterable[str],
) -> None:
    """Report relative errors and coverage, model by model; `bound(NAME)` is the error that one may have."""
    columns = ("model", "relative error", "coverage", "parameters")
    figures = [
        (model, f"{row['relative_error']:.1e}", f"{row['coverage']:.4f}", f"{row['parameters']:,}")
        for model, row in found.items()
    ]
    table(title, columns, figures)
    bounds = {model: bound(model) for model in found}
    failed = [
        f"{model}: not exact at full coverage"
        for model, row in found.items()
        if not (row["relative_error"] <= bounds[model] and row["coverage"] == 1.0)
    ]
    close(name, found, bounds, failed, packages=packages, contract={"models": found})


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
