"""The record of a study: one form for all.

``{"study", "config", "methods": {NAME: {METRIC: {"mean", "low", "high", "values"}}},
"claims": {TEXT: {"paper", "found", "interval", "verdict"}}}``; `low`, `high` and both ends of an interval are
null where there is a single seed.
"""

import json
import re
from pathlib import Path
from typing import Any

VERDICTS = ("holds", "refuted", "undecided")
RESULTS = Path(__file__).parents[1] / "results"
"""Where the committed records lie."""


def write(record: dict[str, Any], path: Path) -> None:
    """Write a record as strict JSON, lists of numbers on one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, allow_nan=False)
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
