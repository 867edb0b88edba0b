"""Committed records as tables in markdown: methods, claims with their verdicts, origin."""

from collections.abc import Iterable, Sequence
from typing import Any

from experiments.harness import record as records
from experiments.harness.study import Shown

OURS = ("ours", "not compared")
"""What a claim's `paper` says where the paper makes none."""


def methods_table(study: Shown, record: dict[str, Any]) -> str:
    """Return means with their intervals; nothing where a method has no such metric."""
    methods = record["methods"]
    shown = [key for key in study.columns if any(key in metrics for metrics in methods.values())]
    marks = {study.null: " (null)", study.oracle: " (oracle)"}
    head = ["method", *(study.columns[key] for key in shown)]
    rows = [
        [name + marks.get(name, ""), *(_cell(metrics[key]) if key in metrics else "" for key in shown)]
        for name, metrics in methods.items()
        if any(key in metrics for key in shown)
    ]
    if len(head) > len(rows) + 1:  # a table that is wider than it is long stands on its side
        head, *rows = ([*column] for column in zip(["setting", *head[1:]], *rows, strict=True))
    return markdown(head, rows, align="---:")


def claims_table(record: dict[str, Any]) -> str:
    """Return each claim, its verdict, what was found and what the paper says."""
    rows = []
    for text, claim in record["claims"].items():
        low, high = claim["interval"]
        ends = "" if low is None else f"{low:+.3f} to {high:+.3f}"
        rows.append([text, f"**{claim['verdict']}**", f"{claim['found']:+.3f}", ends, claim["paper"]])
    return markdown(("claim", "verdict", "found", "95% interval", "paper"), rows)


def tables(study: Shown) -> str:
    """Return what a committed record holds: both tables, and on what it was computed."""
    record = records.read(study.committed)
    config = record["config"]
    held = "".join(f"; {name} `{digest[:12]}`" for name, digest in config["data"].items())
    last = f" of commit `{study.commit}`, the last that has this study" if study.commit else ""
    origin = (
        f"`{config['command']}`{last}; {len(config['seeds'])} seeds; {config['machine']}{held}; "
        f"{{download}}`all numbers as JSON <../../experiments/results/{study.name}.json>`."
    )
    return "\n\n".join([methods_table(study, record), "Claims:", claims_table(record), origin])


def verdicts(studies: Iterable[Shown]) -> str:
    """Return how many of the paper's own claims came out how, by study that judges any."""
    rows = []
    for study in studies:
        claims = records.read(study.committed)["claims"].values()
        of = [claim["verdict"] for claim in claims if claim["paper"] not in OURS]
        if of:
            rows.append([study.title, *(str(of.count(verdict)) for verdict in records.VERDICTS)])
    return markdown(["study", *records.VERDICTS], rows, align="---:")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "---") -> str:
    """Return a table in markdown; `---:` aligns all columns but the first to the right."""
    lines = [head, ["---", *[align] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(of: dict[str, Any]) -> str:
    mean, low, high = (of[key] for key in ("mean", "low", "high"))
    if low is None:
        return f"{mean:.3f}"
    uneven = abs((high - mean) - (mean - low)) > 0.001
    half = f"±\N{NO-BREAK SPACE}{(high - low) / 2:.3f}"
    return f"{mean:.3f} ({low:.2f} to {high:.2f})" if uneven else f"{mean:.3f} {half}"
