"""What a run comes to: counts by suite and estimator, refusals by reason, and what may not get worse."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ESTIMATORS = ("ghost", "exact", "lai")
FAILURES = ("wrong", "crash")
PINNED = Path(__file__).parent / "counts.json"
Rows = dict[str, dict[str, dict[str, Any]]]
"""`{SUITE: {CASE: row}}`, as written."""


def counted(rows: Rows, every: int) -> dict[str, Any]:
    """Return what is pinned of a run: per suite the counts, the reasons, and the groups that fail."""
    return {
        suite: {
            "every": every,
            "cases": len(found),
            "counts": {
                estimator: dict(
                    sorted(Counter(r[estimator] for r in found.values() if estimator in r).items())
                )
                for estimator in ESTIMATORS
            },
            "failing": {  # groups, such as an operation or an architecture, with a wrong case or a crash
                estimator: sorted(
                    {case.split("#")[0] for case, row in found.items() if row.get(estimator) in FAILURES}
                )
                for estimator in ESTIMATORS
            },
            "reasons": reasons(found),
        }
        for suite, found in sorted(rows.items())
    }


def reasons(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return why cases are refused or unfit, each with how many and an example, the most frequent first."""
    cases: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for case, row in found.items():
        if row.get("ghost") == "unfit":
            cases["all", "unfit", grouped(row.get("reason", ""))].append(case)
            continue
        said = dict(re.findall(r"(ghost|exact|lai): (.*?)(?=; (?:exact|lai): |$)", row.get("reason", "")))
        for estimator, reason in said.items():
            if row.get(estimator) == "refused":
                cases[estimator, "refused", grouped(reason)].append(case)
    ordered = sorted(cases.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    keys = ("estimator", "verdict", "reason", "cases", "example")
    return [dict(zip(keys, (*key, len(names), names[0]), strict=True)) for key, names in ordered]


def grouped(reason: str) -> str:
    """Return a message without the names and numbers of its own case."""
    used = sorted(set(re.findall(r"used by ([^)]+)\)", reason))) or ["a function"]
    if "cannot explain" in reason:
        return f"no record of a parameter used by {used[0]}"
    if "(used by" in reason:
        return f"warned: no readout from the input of a matrix used by {used[0]}"
    reason = re.sub(r"'[^']*'", "…", " ".join(reason.removeprefix("ValueError: ").split()))
    reason = re.sub(r"\([\d, ]*\)|\[[\d, ]*\]|-?\d[\d.,e+-]*", "…", reason)
    return reason[:110].strip()


def worse(found: dict[str, Any], pinned: dict[str, Any]) -> list[str]:
    """Return what is worse than what is pinned: groups that fail anew, and fewer exact cases."""
    complaints = []
    for suite, now in found.items():
        before = pinned.get(suite, {"failing": {}, "counts": {}, "every": None, "cases": None})
        for estimator in ESTIMATORS:
            anew = set(now["failing"][estimator]) - set(before["failing"].get(estimator, ()))
            complaints += [f"{suite}: {estimator} fails on {group}" for group in sorted(anew)]
        if (now["every"], now["cases"]) != (before["every"], before["cases"]):
            continue
        for estimator, counts in before["counts"].items():
            exact, was = now["counts"][estimator].get("exact", 0), counts.get("exact", 0)
            if exact < was:
                complaints.append(f"{suite}: {estimator} was exact in {was} cases, and is in {exact}")
    return complaints


def pinned() -> dict[str, Any]:
    """Return the committed counts."""
    known: dict[str, Any] = json.loads(PINNED.read_text())
    return known


def pin(found: dict[str, Any]) -> None:
    """Commit what a run came to, unless it ran named cases alone."""
    kept = pinned() | {suite: entry for suite, entry in found.items() if entry["every"]}
    PINNED.write_text(json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False) + "\n")
