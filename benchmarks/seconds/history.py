"""Two runs side by side: what changed, and whether what does not depend on the clock got worse.

Operations, bytes, waits and launches are the same on every machine with the same packages, so they may be
judged; seconds are shown.
"""

import json
from collections.abc import Iterator
from pathlib import Path

Figures = dict[str, dict[str, dict[str, float | None]]]
COLUMNS = ("seconds_ratio", "cpu_ratio", "flops_ratio", "memory_ratio", "waits", "launches", "hand_ratio")
SLACK = {"flops_ratio": 0.01, "memory_ratio": 0.02, "launches": 0.02, "waits": 0.0}
"""By which share a figure may grow before it counts as worse: allocators and kernels differ a little."""
BASELINE = Path(__file__).with_name("baseline.json")
"""What a run may not be worse than."""


def read(path: Path) -> Figures:
    """Return the figures in a file that `python -m benchmarks seconds` wrote.

    Raises
    ------
    SystemExit
        If there are none.
    """
    try:
        found: Figures = json.loads(path.read_text(encoding="utf-8"))
        list(_paired(found, found))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        msg = f"{path}: expected the figures of `python -m benchmarks seconds`, got none ({error})"
        raise SystemExit(msg) from error
    return found


def changes(old: Figures, new: Figures) -> Iterator[tuple[tuple[str, str, str], float, float]]:
    """Yield where both runs have a number, and the two numbers, if they differ."""
    return ((where, a, b) for where, a, b in _paired(old, new) if a != b)


def worse(old: Figures, new: Figures) -> list[str]:
    """Say which figure of those that do not depend on the clock grew, or is gone."""
    found = [
        f"{' '.join(where)}: {before:.3f} before, {after:.3f} now"
        for where, before, after in _paired(old, new)
        if where[2] in SLACK and after > before * (1 + SLACK[where[2]])
    ]
    return found + [
        f"{model} {method}: not measured any more"
        for model, methods in old.items()
        if model in new
        for method in methods
        if method not in new[model]
    ]


def _paired(old: Figures, new: Figures) -> Iterator[tuple[tuple[str, str, str], float, float]]:
    for model, methods in old.items():
        for method, row in methods.items():
            for key, before in row.items():
                after = new.get(model, {}).get(method, {}).get(key)
                if before is not None and after is not None:
                    yield (model, method, key), float(before), float(after)
