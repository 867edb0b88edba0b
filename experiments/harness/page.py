"""A committed record as a page: a table of methods, the claims with their verdicts, its origin."""

from collections.abc import Iterable
from typing import Any

from experiments.harness import record as records
from experiments.harness.study import Study

OURS = ("ours", "not compared")
"""What a claim's `paper` says where the paper makes none."""

INTRODUCTION = """---
file_format: mystnb
kernelspec:
  name: python3
---

# Experiments

What curation is worth, against whom, at what cost. `python -m experiments NAME --full` makes each
section's numbers, and `python -m experiments page` this page of them. Means and 95% intervals over
seeds (Student's t, paired by seed); a claim *holds* or is *refuted* where its whole interval lies
on one side of its bound, and is *undecided* else. Costs are operations in plain trainings, scoring
and validation passes included. The networks are small, and so is what they settle: the opposite of
a refuted claim is significant here; that no setting exists where it holds is not shown. Dynamics and the
demo train in JAX too (`--backend jax`); in the others costs are counted by PyTorch's dispatcher, or the
reference is its optimizers' step."""


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


def section(study: Study) -> str:
    """Return what was set up, the picture, both tables, and on what it ran; or that it has not been run."""
    heading = f"## {study.title}: {study.about}\n\n{study.setting}"
    if not (records.RESULTS / f"{study.name}.json").exists():
        return (
            f"{heading}\n\nNo result is committed yet; `python -m experiments {study.name} --full` makes one."
        )
    record = found(study)
    config = record["config"]
    held = "".join(f"; {name} `{digest[:12]}`" for name, digest in config["data"].items())
    origin = (
        f"`{config['command']}`; {len(config['seeds'])} seeds; {config['machine']}{held}; "
        f"{{download}}`all numbers as JSON <../../experiments/results/{study.name}.json>`."
    )
    parts = [heading, _picture(study), methods_table(study, record), "Claims:", claims_table(record), origin]
    return "\n\n".join(parts)


def document(studies: Iterable[Study]) -> str:
    """Return the page of the documentation."""
    every = list(studies)
    return "\n\n".join([INTRODUCTION, verdicts(every), *(section(study) for study in every)]) + "\n"


def verdicts(studies: Iterable[Study]) -> str:
    """Return how many of the paper's own claims came out how, by study."""
    lines = [["study", *records.VERDICTS], ["---", *["---:"] * len(records.VERDICTS)]]
    for study in studies:
        if (records.RESULTS / f"{study.name}.json").exists():
            claims = found(study)["claims"].values()
            of = [claim["verdict"] for claim in claims if claim["paper"] not in OURS]
            lines.append([study.title, *(str(of.count(verdict)) for verdict in records.VERDICTS)])
    return "What became of the claims that the paper itself makes:\n\n" + _markdown(lines)


def _picture(study: Study) -> str:
    return f"""```{{code-cell}}
---
tags: [remove-input]
mystnb:
  image:
    alt: "{study.picture}"
---
import matplotlib.pyplot as plt

from experiments.harness.page import found
from experiments.studies import STUDIES

study = STUDIES["{study.name}"]
study.pictures(found(study))
plt.show()
```"""


def _any(record: dict[str, Any], key: str) -> bool:
    return any(key in metrics for metrics in record["methods"].values())


def _cell(of: dict[str, Any]) -> str:
    if of["low"] is None:
        return f"{of['mean']:.3f}"
    return f"{of['mean']:.3f} ± {(of['high'] - of['low']) / 2:.3f}".replace(" ", "\N{NO-BREAK SPACE}")


def _markdown(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
