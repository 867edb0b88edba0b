"""A committed record as a page: a table of methods, the claims with their verdicts, its origin."""

from typing import Any

from experiments.harness import record as records
from experiments.harness.study import Study


def found(study: Study) -> dict[str, Any]:
    """Return the committed record of a study."""
    return records.read(records.RESULTS / f"{study.name}.json")


def methods_table(study: Study, record: dict[str, Any]) -> str:
    """Return means with half their intervals; nothing where a method has no such metric."""
    shown = {key: head for key, head in study.columns.items() if _any(record, key)}
    marks = {study.null: " (null)", study.oracle: " (oracle)"}
    lines = [["method", *shown.values()], ["---", *["---:"] * len(shown)]]
    for name, metrics in record["methods"].items():
        if any(key in metrics for key in shown):
            cells = [_cell(metrics[key]) if key in metrics else "" for key in shown]
            lines.append([name + marks.get(name, ""), *cells])
    return _markdown(lines)


def claims_table(record: dict[str, Any]) -> str:
    """Return each claim, its verdict, what was found and what the paper says."""
    lines = [["claim", "verdict", "found", "95% interval", "paper"], ["---"] * 5]
    for text, claim in record["claims"].items():
        low, high = claim["interval"]
        ends = "" if low is None else f"{low:+.3f} to {high:+.3f}"
        lines.append([text, f"**{claim['verdict']}**", f"{claim['found']:+.3f}", ends, claim["paper"]])
    return _markdown(lines)


def page(study: Study) -> str:
    """Return both, and on what it ran."""
    record = found(study)
    config = record["config"]
    held = "".join(f"; {name} `{digest[:12]}`" for name, digest in config["data"].items())
    where = f"`{config['command']}`; {len(config['seeds'])} seeds; {config['machine']}{held}."
    return "\n\n".join([methods_table(study, record), "Claims:", claims_table(record), where])


def _any(record: dict[str, Any], key: str) -> bool:
    return any(key in metrics for metrics in record["methods"].values())


def _cell(of: dict[str, Any]) -> str:
    spread = "" if of["low"] is None else f" ± {(of['high'] - of['low']) / 2:.3f}"
    return f"{of['mean']:.3f}{spread}"


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
