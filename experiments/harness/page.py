"""A committed record as a page: a table of methods, the claims with their verdicts, its origin."""

from collections.abc import Iterable, Sequence
from typing import Any

from experiments.harness import record as records
from experiments.harness.study import Study

OURS = ("ours", "not compared")
"""What a claim's `paper` says where the paper makes none."""

INTRODUCTION = """# Experiments

What curation is worth, against whom, at what cost. `python -m experiments NAME --full` makes each
section's numbers, and `python -m experiments page` this page of them. Means and 95% intervals over
seeds (Student's t, paired by seed; of correlations on Fisher's z); a claim *holds* or is *refuted*
where its whole interval lies on one side of its bound, and is *undecided* else. Costs are operations
in plain trainings, scoring and validation passes included. The networks are small, and so is what they
settle: the opposite of a refuted claim is significant here; that no setting exists where it holds is
not shown. The paper's own data and models (GPT-Neo on the Pile and GLUE, CIFAR-N, 20 Newsgroups) need a GPU
and are not here. Dynamics and the demo train in JAX too (`--backend jax`); in the others costs are counted by
PyTorch's dispatcher, or the reference is its optimizers' step."""


def methods_table(study: Study, record: dict[str, Any]) -> str:
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


def section(study: Study) -> str:
    """Return what was set up, the picture, both tables, and on what it ran; or that it has not been run."""
    heading = f"## {study.title}: {study.about}\n\n{study.setting}"
    if not study.committed.exists():
        return (
            f"{heading}\n\nNo result is committed yet; `python -m experiments {study.name} --full` makes one."
        )
    record = records.read(study.committed)
    config = record["config"]
    held = "".join(f"; {name} `{digest[:12]}`" for name, digest in config["data"].items())
    origin = (
        f"`{config['command']}`; {len(config['seeds'])} seeds; {config['machine']}{held}; "
        f"{{download}}`all numbers as JSON <../../experiments/results/{study.name}.json>`."
    )
    picture = f"""```{{computed}} experiments.studies:pictures {study.name}
:alt: "{study.picture}"
```"""
    parts = [heading, picture, methods_table(study, record), "Claims:", claims_table(record), origin]
    return "\n\n".join(parts)


def document(studies: Iterable[Study]) -> str:
    """Return the page of the documentation."""
    every = list(studies)
    sections = (section(study) for study in every)
    return "\n\n".join([INTRODUCTION, verdicts(every), *sections]) + "\n"


def verdicts(studies: Iterable[Study]) -> str:
    """Return how many of the paper's own claims came out how, by study."""
    rows = []
    for study in (each for each in studies if each.committed.exists()):
        claims = records.read(study.committed)["claims"].values()
        of = [claim["verdict"] for claim in claims if claim["paper"] not in OURS]
        rows.append([study.title, *(str(of.count(verdict)) for verdict in records.VERDICTS)])
    table = markdown(["study", *records.VERDICTS], rows, align="---:")
    return "What became of the claims that the paper itself makes:\n\n" + table


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
