"""What the study of mixtures says, for the guide: its tables and its verdict, from the record."""

from typing import Any

from experiments.harness.page import markdown
from experiments.harness.statistics import Methods
from experiments.studies import mixtures as study

VERDICTS = ("holds", "undecided", "refuted")
SECTION = """## How much of each source

{verdict}

Sixteen seeds; all arms have the same budget of forward passes. Test accuracy, on text minus the test loss in
hundredths of a nat; then what is gained over the validation mixed in, **bold** where a 99.5% interval, paired
by seed, is on one side of 0, and (in brackets) where a 95% interval holds 0:

{settings}

In how many settings each way is above the validation mixed in, level with it and below; what it gains or
loses at most; and what a step costs, in plain steps:

{ways}

{findings}

Why the mixture does not help in some settings: a score is the derivative of one step, and may differ from
what a source does over many. A trial measures that: a copy of the model trains on for a while with half of
each batch from one source. On *{why}*, a quarter into training, the table gives each source's score and by
how much its trial lowers the test loss, in hundredths of a nat, both minus the mean over sources.

{horizons}"""


def section(record: dict[str, Any]) -> str:
    """Return the section of the guide's page."""
    methods = record["methods"]
    up, level, down = counts(methods, study.OURS, study.MIXED)
    sure = "; at 99.5%: {}, {} and {}".format(*counts(methods, study.OURS, study.MIXED, 0.995))
    return SECTION.format(
        verdict=(
            "**Shares of sources that follow mean scores ([how](sources.md)), on top of a validation batch "
            f"mixed in, are above that batch alone in {up} of {up + level + down} settings, level in {level} "
            f"and below in {down}** (95% intervals{sure})."
        ),
        settings=_settings(methods),
        ways=_ways(methods),
        why=study.WHY,
        horizons=_horizons(methods),
        findings="\n".join(f"- {each}" for each in _findings(methods)),
    )


def counts(methods: Methods, one: str, other: str, level: float = 0.95) -> list[int]:
    """Return in how many settings one arm is above, level with and below another."""
    found = [claim["verdict"] for _, claim in _claims(methods, one, other, level)]
    return [found.count(verdict) for verdict in VERDICTS]


def _claims(methods: Methods, one: str, other: str, level: float = 0.95) -> list[tuple[str, dict[str, Any]]]:
    held = ((name, study.above(methods, name, one, other, level)) for name in study.settings(methods))
    return [(name, claim) for name, claim in held if claim is not None]


def _settings(methods: Methods) -> str:
    shown, rows = (study.ALONE, study.OURS, study.FILTER, study.DECAYED), []
    head = ["setting", study.NULL, study.MIXED, *(f"gain: {name}" for name in shown)]
    for setting in study.settings(methods):
        key, sign = f"{setting}: {study.metric(setting)}", study.SIGNS[study.metric(setting)]
        means = [f"{100 * sign * methods[name][key]['mean']:.1f}" for name in (study.NULL, study.MIXED)]
        rows.append([setting, *means, *(_gain(methods, setting, name) for name in shown)])
    return markdown(head, rows, align="---:")


def _gain(methods: Methods, setting: str, name: str) -> str:
    """Return what an arm gains over the validation mixed in, with its interval."""
    claim, sure = (study.above(methods, setting, name, study.MIXED, level) for level in (0.95, 0.995))
    if claim is None or sure is None:
        return ""
    low, high = claim["interval"]
    text = f"{100 * claim['found']:+.1f} ± {50 * (high - low):.1f}"
    if claim["verdict"] == "undecided":
        return f"({text})"
    return text if sure["verdict"] == "undecided" else f"**{text}**"


def _ways(methods: Methods) -> str:
    head = (
        "way",
        "settings",
        "95%: above, level, below",
        "99.5%",
        "most gained",
        "most lost",
        "cost of a step",
    )
    rows = []
    for name in (each for each in methods if each not in (study.MIXED, study.ORACLE)):
        if claims := _claims(methods, name, study.MIXED):
            gains = [100 * claim["found"] for _, claim in claims]
            costs = [methods[name][f"{setting}: cost"]["mean"] for setting, _ in claims]
            often = (", ".join(map(str, counts(methods, name, study.MIXED, of))) for of in (0.95, 0.995))
            ends = f"{max(0.0, *gains):+.1f}", f"{min(0.0, *gains):+.1f}"
            rows.append([name, f"{len(gains)}", *often, *ends, f"{min(costs):.2f} to {max(costs):.2f}"])
    return markdown(head, rows, align="---:")


def _horizons(methods: Methods) -> str:
    score, fall = (f"{study.WHY}: {what} of " for what in ("one step's score", "fall after a trial"))
    found, rows = methods[study.HORIZONS], []
    for key in (each for each in found if each.startswith(score)):
        one, many = found[key]["mean"], found[key.replace(score, fall)]["mean"]
        rows.append([key.removeprefix(score), f"{one:+.2f}", f"{100 * many:+.1f}"])
    return markdown(("source", "score", "fall of the test loss"), rows, align="---:")


def _often(methods: Methods, one: str, other: str) -> str:
    up, level, down = counts(methods, one, other)
    return f"above *{other}* in {up} of {up + level + down} settings, level in {level}, below in {down}"


def _findings(methods: Methods) -> list[str]:
    both = [claim["verdict"] for _, claim in _claims(methods, study.BOTH, study.OURS)]
    adopted = both.count("holds") > len(both) / 2 and "refuted" not in both
    return [
        f"Against the static filter, the mixture is {_often(methods, study.OURS, study.FILTER)}: the "
        "filter cannot follow best shares that change, and takes sources that are unlike for bad.",
        "A decayed learning rate is worth something by itself: the mixture, at a constant rate, is "
        f"{_often(methods, study.OURS, study.DECAYED)}.",
        f"Choosing single samples instead, {study.SAMPLES} is {_often(methods, study.SAMPLES, study.MIXED)}.",
        f"Shares that follow trials in place of scores are {_often(methods, study.TRIED, study.MIXED)}.",
        f"Choosing by source and then by sample within the batch is {_often(methods, study.BOTH, study.OURS)}"
        + ("." if adopted else ": it is not offered."),
    ]
