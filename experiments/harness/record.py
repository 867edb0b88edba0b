"""The record of a study: one JSON schema for all, checked before a record is written and when it is read.

``{"study", "config", "methods": {NAME: {METRIC: {"mean", "low", "high", "values"}}},
"claims": {TEXT: {"paper", "found", "interval", "verdict"}}}``; `low`, `high` and both ends of an interval are
null where there is a single seed.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

VERDICTS = ("holds", "refuted", "undecided")
RESULTS = Path(__file__).parents[1] / "results"
"""Where the committed records lie."""


def check(record: Any) -> None:
    """Raise unless a record fits the schema, naming the first place that does not."""
    _keys("record", record, ("study", "config", "methods", "claims"))
    for key, kind, expected in (("study", str, "a name"), ("config", dict, "an object")):
        _expect(key, record[key], isinstance(record[key], kind), expected)
    seeds = record["config"].get("seeds")
    _expect("config.seeds", seeds, isinstance(seeds, list) and len(seeds) > 0, "a list of seeds")
    _expect("methods", record["methods"], bool(record["methods"]), "at least one method")
    for name, metrics in record["methods"].items():
        for metric, of in metrics.items():
            place = f"methods[{name!r}][{metric!r}]"
            _keys(place, of, ("mean", "low", "high", "values"))
            values, ends = of["values"], {key: of[key] for key in ("mean", "low", "high")}
            _expect(f"{place}.values", values, len(values) == len(seeds), f"{len(seeds)} values, one a seed")
            for key, number in (*ends.items(), *enumerate(values)):
                _number(f"{place}.{key}", number, empty=key in ("low", "high"))
            ordered = of["low"] is None or of["low"] <= of["mean"] <= of["high"]
            _expect(place, tuple(ends.values()), ordered, "low <= mean <= high")
    for text, claim in record["claims"].items():
        place = f"claims[{text!r}]"
        _keys(place, claim, ("paper", "found", "interval", "verdict"))
        _number(f"{place}.found", claim["found"], empty=False)
        _expect(f"{place}.interval", claim["interval"], len(claim["interval"]) == 2, "two ends")
        for end in claim["interval"]:
            _number(f"{place}.interval", end, empty=True)
        _expect(f"{place}.verdict", claim["verdict"], claim["verdict"] in VERDICTS, f"one of {VERDICTS}")


def write(record: dict[str, Any], path: Path) -> None:
    """Check a record and write it as strict JSON, lists of numbers on one line each."""
    check(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, allow_nan=False)
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(text + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """Read a record and check it."""
    found = json.loads(path.read_text(encoding="utf-8"))
    check(found)
    return found


def committed() -> dict[str, dict[str, Any]]:
    """Return the committed records by study."""
    return {path.stem: read(path) for path in sorted(RESULTS.glob("*.json"))}


def _keys(place: str, found: Any, keys: tuple[str, ...]) -> None:
    came = sorted(found) if isinstance(found, dict) else type(found).__name__
    _expect(place, came, isinstance(found, dict) and set(found) == set(keys), f"an object with {keys}")


def _number(place: str, found: Any, *, empty: bool) -> None:
    fits = (empty and found is None) or (isinstance(found, int | float) and math.isfinite(found))
    _expect(place, found, fits, "a finite number" + (" or null" if empty else ""))


def _expect(place: str, found: Any, fits: bool, expected: str) -> None:
    if not fits:
        msg = f"{place}: expected {expected}, got {found!r}"
        raise ValueError(msg)
