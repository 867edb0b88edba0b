"""Tables that pages show by ``{computed} site_tables:...``: pinned counts, judged libraries."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.judge.command import RECORD
from benchmarks.judge.libraries import LIBRARIES
from benchmarks.judge.zoo import code
from experiments.harness.page import markdown

COUNTS = Path(__file__).parents[2] / "benchmarks" / "compatibility" / "counts.json"
ESTIMATORS = {"ghost": "Ghost", "exact": "`exact_scores`", "lai": "LAI"}
VERDICTS = ("exact", "refused", "wrong", "crash", "unfit")
JUDGED = ("exact", "part", "refused", "crash", "wrong")


def counts():
    """Return per suite and estimator of the compatibility runs how many cases came to what."""
    rows = [
        (suite, str(entry["cases"]), name, *(str(counts.get(v, 0)) for v in VERDICTS))
        for suite, entry in json.loads(COUNTS.read_text()).items()
        for estimator, name in ESTIMATORS.items()
        if (counts := entry["counts"][estimator])
    ]
    return markdown(("suite", "cases", "estimator", *VERDICTS), rows)


def judged():
    """Return what each library does with each case."""
    record = json.loads(RECORD.read_text())
    rows = [(name, *(_verdict(record[each][name]) for each in LIBRARIES)) for name in record["lai_torch"]]
    return markdown(("case", *LIBRARIES), rows)


def judged_libraries():
    """Return the libraries' versions and documented scopes, and how often they come to what."""
    record = json.loads(RECORD.read_text())
    rows = []
    for name, library in LIBRARIES.items():
        found = [row["verdict"] for row in record[name].values()]
        counts = [str(found.count(verdict)) for verdict in JUDGED]
        rows.append((name, record["versions"][name], f"[{library.scope}]({library.source})", *counts))
    return f"Judged on {record['date']}.\n\n" + markdown(
        ("library", "version", "documented scope", *JUDGED), rows
    )


def judged_cases():
    """Return each case's code, and why it is not exact in which library."""
    record = json.loads(RECORD.read_text())
    parts = []
    for name in record["lai_torch"]:
        parts += [f"**{name}**", "", "```python", code(name), "```", ""]
        for each in LIBRARIES:
            row = record[each][name]
            if row["verdict"] in {"wrong", "refused", "crash"}:
                reason = row["reason"].replace("`", "'")
                parts.append(f"- {each}: {_verdict(row)}, `{reason}`")
        parts.append("")
    return "\n".join(parts)


def _verdict(row):
    shown = f"**{row['verdict']}**" if row["verdict"] == "wrong" else row["verdict"]
    return shown + ("°" if row["scope"] == "outside" else "")
