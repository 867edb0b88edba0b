"""What the study of two budgets says, for the guide, and a peer's log on the same axes."""

from typing import Any

from experiments.figures import peer_log
from experiments.harness.page import markdown
from experiments.harness.statistics import Methods
from experiments.studies import budget as study

ALT = (
    "Validation loss of two arms. By updates, the best 16 of 32 lie slightly below random 16. By seconds, "
    "random 16 has taken all of its updates when the best have taken a quarter, and lies far below them."
)
SECTION = """## By equal steps and by equal seconds

On a small model a curated step takes longer than a plain one, and the alternative to a curator that keeps
half is a random half. Each arm was trained twice, as many steps as plain training and as many as fit into
its {seconds} CPU seconds, with the learning rate decayed to zero within each budget. Test accuracy on
digits, {seeds} seeds ([study](../theory/studies.md)); costs are those with 40% wrong labels:

{table}

{findings}

A plain step takes {milliseconds} ms, of which calls are a good part, and each summary reads {held}
validation samples beside a batch of 128. A model whose step takes 100 ms pays less
([costs](benchmarks.md)), but never less than a random half, for it scores the whole batch besides. Measure
both on your model.

We found no setting in which choosing single samples wins by the clock, nor one among samples that are dear:
in the [GRPO example](examples.md) curated rollouts solve as much as all of them.

A published log of another library shows how far the two axes differ on a larger scale. GhostSuite trains
GPT-2 (124M) on the Pile on an A100 and keeps the best 16 of 32 sequences by exact scores, or 16 at random:

```{{computed}} experiments.figures.peer_log:draw
:alt: "{alt}"
```

- By equal updates ({updates}) the best end at {best_loss}, random ones at {random_loss}.
- A step takes {best_seconds} s against {random_seconds} s. By {spent} s random ones are at {random_loss}; the
  best are at {near_loss} after {near_seconds} s ({near} updates).
- This is one seed, and the learning rate of the best had hardly begun to decay by then: decayed
  within the same seconds, they may be nearer. The losses drawn are some of those in {source} (MIT)."""


def section(record: dict[str, Any]) -> str:
    """Return the section of the guide's page."""
    methods = record["methods"]
    keys = ("steps in plain's seconds", "milliseconds of a step")
    steps, milliseconds = (methods[study.NULL][f"{study.MAIN}: {key}"]["mean"] for key in keys)
    return SECTION.format(
        milliseconds=f"{milliseconds:.0f}",
        seconds=f"{steps * milliseconds / 1e3:.1f}",
        seeds=len(record["config"]["seeds"]),
        held=study.SETTINGS[study.MAIN]["held"],
        table=_table(methods),
        findings="\n".join(f"- {line}" for line in _findings(record)),
        alt=ALT,
        **peer_log.figures(),
    )


def _table(methods: Methods) -> str:
    """Return what a step costs, and accuracies on both axes."""
    head = ["arm", "step, in plain steps", "in steps on a random half", "steps in plain's seconds"]
    keys = [
        f"{study.MAIN}: {key}"
        for key in ("step over plain", "step over random half", "steps in plain's seconds")
    ]
    for setting in study.settings(methods):
        head += [f"{setting}: {axis}" for axis in study.AXES]
        keys += [f"{setting}: {key}" for key in study.AXES.values()]
    digits = (2, 2, 0, *(3 for _ in keys[3:]))
    rows = [
        [name, *(f"{of[key]['mean']:.{count}f}" for key, count in zip(keys, digits, strict=True))]
        for name, of in methods.items()
        if name != study.ORACLE
    ]
    return markdown(head, rows, align="---:")


def _findings(record: dict[str, Any]) -> list[str]:
    """Return how the curated arms compare with the simple ones, on each axis."""
    lines, counted = [], ("holds", "undecided", "refuted")
    for axis in study.AXES:
        parts = []
        for other in study.SIMPLE:
            verdicts = [
                claim["verdict"]
                for text, claim in record["claims"].items()
                if text.endswith(f"is above {other} by {axis}")
            ]
            above, level, below = (verdicts.count(each) for each in counted)
            parts.append(f"above *{other}* in {above} of {len(verdicts)}, level in {level}, below in {below}")
        lines.append(f"By {axis}, curated arms are {'; '.join(parts)} (95% intervals, paired by seed).")
    return lines
