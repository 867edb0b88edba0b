"""The guide's page on when to curate, from the committed records: no number on it is typed."""

from typing import Any

from experiments import advice_budget, advice_sources
from experiments.harness import record as records
from experiments.harness.page import markdown
from experiments.harness.statistics import compared
from experiments.retraining.trained import LABEL, ONE
from experiments.studies import attribution, finetuning, noisy_labels, pretraining, search

MIXED = "validation batch mixed in"
OTHERS = (
    noisy_labels.STOPPED, "validation only", MIXED, "RHO-loss", "KNN-Shapley",
    "confident learning",
)  # fmt: skip
"""What to use instead: all of it has what a curator has, or less."""
CURATED = ("Ghost", "LAI", "LAI as a set")
READING = (pretraining.NULL, "random, 70%", *pretraining.CURATED)
TUNING = (
    finetuning.NULL, finetuning.STOPPED, "training + validation", "validation batch mixed in",
    finetuning.PRINTED, "LAI", "LAI, half of each class",
)  # fmt: skip

BETTER = "LAI as a set is above LAI, best half"

PAGE = """# When to curate

{verdict}

Measured on small networks, five seeds each, sources with sixteen ([all of it](../theory/studies.md)); try it
on yours.

## Wrong labels

Test accuracy; the best of a row in bold. All rows are digits except *annotators* (film reviews).

{labels}

### Mixing a validation batch in

Points of accuracy gained, with 95% intervals; bold where the interval is on one side of zero:

{mixed}

## The best policies of a search

Twelve policies were tried; each is chosen on some seeds and judged on others. All are stopped early, and
costs, in plain trainings, include scoring. The last three columns compare with an opponent:

- *fewest operations*: the operations with which the opponent reaches its own accuracy, divided by those with
  which the policy reaches the same (below 1 the opponent is cheaper);
- *most accurate*: the points of accuracy that the policy gains.

{search}

## Pre-training and fine-tuning

Test loss of a small GPT, 30% of whose sequences are bad:

{reading}

Test accuracy of small language models with a prediction layer:

{tuning}

{sources}

{budget}

## So

- Labels may be wrong: stop early by the validation loss. Whether to mix a batch of clean validation samples
  into training depends on the noise and on how many such samples there are
  ([figures](#mixing-a-validation-batch-in)):
  - symmetric noise and 300 clean samples: mix in ({symmetric} over stopping early alone);
  - asymmetric or instance-dependent noise: RHO-loss is better, by {asymmetric} and {instance};
  - 20 clean samples, or validation labels as wrong as the others: stop early without mixing in,
    which costs {few_clean} and {doubtful}.
- Beside a batch mixed in, `policy=lai_torch.GroupFloor(0.5)` curates and keeps half of each class at least:
  {more} on {main}, at {times} plain trainings.
- There are features in which neighbours share labels (pixels here): drop what KNN-Shapley scores below zero,
  before training, at the price of the distances.
- Labels are right, or training is short: do not curate.
- A half of a batch that is chosen as a set, in which what two samples say alike counts once, has {few}
  wrong labels where the half of the highest scores has {many}. At {price} plain trainings it is more
  accurate than that in {up} of {tried} settings, less in {down}: by {lost} points where the labels to
  validate by are wrong too.
- Data comes from several known sources: mix validation samples in, and let the
  [shares of the sources](sources.md) follow their mean scores.
- Curate to see *which* samples help or hurt: the share of epochs in which a sample was kept finds wrong
  labels at an AUC of {found}, its own loss at the end at {own}. `lai_torch.score_dataset` makes the table,
  and `lai_torch.AuditLog` keeps every epoch's.
- Which training samples does *one prediction* depend on? Attribute after training, by EKFAC: Ghost's scores
  summed over a run are above it in {above} of {places} settings, level in {level}, below in {below}, and cost
  as much. On digits, most of what they tell is the label. Rank correlation with networks retrained on
  subsets; costs in plain trainings ([study](../theory/studies.md)):

{attributed}
"""


def page() -> str:
    """Return the page."""
    held = records.committed()
    exact = search.most_accurate(held["search"]["methods"], search.MAIN)
    more = held["search"]["claims"][f"{search.MAIN}: {exact}: above {MIXED}, all stopped early"]
    labels, judged = (held["noisy-labels"][key] for key in ("methods", "claims"))
    settings = [name for name in noisy_labels.SETTINGS if f"{name}: accuracy" in labels["LAI"]]
    verdicts = [_against_the_best(labels, setting)["verdict"] for setting in settings]
    moves, as_sets = held["dynamics"]["methods"], [judged[f"{setting}: {BETTER}"] for setting in settings]
    up, down = ([claim["verdict"] for claim in as_sets].count(of) for of in ("holds", "refuted"))
    main = {
        name: {key: of[f"{noisy_labels.MAIN}: {key}"]["mean"] for key in ("cost", "wrong of kept")}
        for name, of in labels.items()
        if name in ("LAI as a set", "LAI, best half")
    }
    tuned = {f"{setting}: accuracy": setting for setting in finetuning.SETTINGS}
    return PAGE.format(
        verdict=(
            f"**LAI is above the best of the simpler ways in {verdicts.count('holds')} of {len(settings)} "
            f"settings, below it in {verdicts.count('refuted')}; {verdicts.count('undecided')} are "
            "undecided** (a 95% interval, paired by seed)."
        ),
        labels=_labels(labels, settings),
        mixed=_mixed(labels, settings),
        symmetric=_points(labels, noisy_labels.MAIN, noisy_labels.STOPPED),
        asymmetric=_points(labels, "asymmetric 40%", "RHO-loss"),
        instance=_points(labels, "instance-dependent 40%", "RHO-loss"),
        few_clean=_points(labels, "symmetric 40%, 20 to validate", noisy_labels.STOPPED),
        doubtful=_points(labels, noisy_labels.DOUBTFUL, noisy_labels.STOPPED),
        more=f"{100 * more['found']:+.1f} points ({more['verdict']})",
        main=search.MAIN,
        times=f"{held['search']['methods'][exact][f'{search.MAIN}: cost']['mean']:.1f}",
        search=_search(held["search"]),
        reading=_table(held["pretraining"]["methods"], READING, {"test loss": "test loss"}),
        tuning=_table(held["finetuning"]["methods"], TUNING, tuned),
        sources=advice_sources.section(held["mixtures"]),
        budget=advice_budget.section(held["budget"]),
        few=f"{100 * main['LAI as a set']['wrong of kept']:.0f}%",
        many=f"{100 * main['LAI, best half']['wrong of kept']:.0f}%",
        price=f"{main['LAI as a set']['cost']:.1f}",
        tried=len(as_sets),
        up=up,
        down=down,
        lost=f"{-100 * judged[f'{noisy_labels.DOUBTFUL}: {BETTER}']['found']:.0f}",
        found=f"{moves['share of epochs kept']['AUC, LAI']['mean']:.3f}",
        own=f"{moves['own loss at the end']['AUC, LAI']['mean']:.3f}",
        **_attributed(held["attribution"]),
    )


def _labels(methods: dict[str, Any], settings: list[str]) -> str:
    """Return accuracies, the best of a row in bold, and below them the costs in the main setting."""
    names, rows = [name for name in (*OTHERS, *CURATED) if name in methods], []
    for setting in settings:
        means = [methods[name].get(f"{setting}: accuracy", {}).get("mean") for name in names]
        best = max(mean for mean in means if mean is not None)
        written = ["" if mean is None else f"{mean:.3f}" for mean in means]
        bold = [f"**{text}**" if mean == best else text for mean, text in zip(means, written, strict=True)]
        rows.append([setting, *bold])
    costs = [f"{methods[name][f'{noisy_labels.MAIN}: cost']['mean']:.1f}" for name in names]
    return markdown(["labels", *names], [*rows, ["cost, in plain trainings", *costs]], align="---:")


def _mixed(methods: dict[str, Any], settings: list[str]) -> str:
    """Return what mixing a validation batch in gains over simpler ways; in bold what is decided."""
    rivals = (noisy_labels.STOPPED, "RHO-loss", "validation only", "LAI")
    rows = [
        [setting, *(_gain(methods, f"{setting}: accuracy", other) for other in rivals)]
        for setting in settings
    ]
    return markdown(["labels", *(f"over {other}" for other in rivals)], rows, align="---:")


def _points(methods: dict[str, Any], setting: str, other: str) -> str:
    """Return how far mixing in is from another way, without the sign, which the advice says."""
    claim = compared(methods, MIXED, other, f"{setting}: accuracy", paper="")
    low, high = claim["interval"]
    return f"{100 * abs(claim['found']):.1f} ± {50 * (high - low):.1f} points"


def _gain(methods: dict[str, Any], metric: str, other: str) -> str:
    claim = compared(methods, MIXED, other, metric, paper="")
    low, high = claim["interval"]
    text = f"{100 * claim['found']:+.1f} ± {50 * (high - low):.1f}"
    return text if claim["verdict"] == "undecided" else f"**{text}**"


def _against_the_best(methods: dict[str, Any], setting: str) -> dict[str, Any]:
    """Judge LAI against the best of the others, in a setting."""
    metric = f"{setting}: accuracy"
    rivals = [name for name in OTHERS if metric in methods.get(name, {})]
    best = max(rivals, key=lambda name: methods[name][metric]["mean"])
    return compared(methods, "LAI", best, metric, paper="")


def _search(record: dict[str, Any]) -> str:
    """Return, by setting and policy, what the policy does, and what others need or reach beside it."""
    methods, claims, rows = record["methods"], record["claims"], []
    for setting in record["config"]["settings"]:
        best, exact = search.chosen(methods, setting), search.most_accurate(methods, setting)
        saved, gained, cost = [], [], f"{setting}: cost"
        for other in search.OPPONENTS:
            times = methods[best][f"{setting}: over {other}"]["mean"]
            fewer = claims[f"{setting}: {best}: fewer operations than {other} for its accuracy"]["verdict"]
            saved.append(f"{times:.2f} times ({fewer})")
            claim = claims[f"{setting}: {exact}: above {other}, all stopped early"]
            gained.append(f"{100 * claim['found']:+.1f} points ({claim['verdict']})")
        for goal, name, found in (("fewest operations", best, saved), ("most accurate", exact, gained)):
            price = f"{methods[name][cost]['mean']:.1f}"
            rows.append([setting, goal, f"*{name}*: {_policy(name)}", price, *found])
    return markdown(["labels", "best for", "policy and what it does", "cost", *search.OPPONENTS], rows)


RULES = {
    "positive": "keeps the samples with a positive score",
    "soft weights": "weighs samples by their positive scores",
    "half of each class": "keeps positive scores, and at least half of each class",
    "majority": "keeps a sample if most of its scores so far are positive",
}


def _policy(name: str) -> str:
    """Say what a policy of the search does, from its name."""
    estimator, rule, *more = name.split(", ")
    said = [
        f"scores each batch by {estimator}" + " in every fourth epoch" * ("each fourth epoch" in more),
        RULES[rule],
    ]
    return "; ".join([*said, *["then steps on 32 validation samples"] * ("mixed in" in more)])


def _attributed(record: dict[str, Any]) -> dict[str, Any]:
    """Return the table of attribution, and in how many settings the run's sums are above EKFAC."""
    methods, places = record["methods"], attribution.recorded(record["methods"])
    names = (LABEL, "LAI", "Ghost", attribution.PRODUCTS, attribution.TRAK, attribution.EKFAC)
    columns = {f"{place}: {ONE}": place for place in places}
    verdicts = [
        record["claims"][f"{place}: Ghost over the run is above EKFAC"]["verdict"] for place in places
    ]
    counts = {"above": "holds", "level": "undecided", "below": "refuted"}
    return {key: verdicts.count(verdict) for key, verdict in counts.items()} | {
        "places": len(places),
        "attributed": _table(methods, names, columns | {f"{places[0]}: cost": f"cost, {places[0]}"}),
    }


def _table(methods: dict[str, Any], names: tuple[str, ...], columns: dict[str, str]) -> str:
    """Return means of some methods, by metric and heading."""
    rows = [
        [name, *(f"{methods[name][key]['mean']:.3f}" if key in methods[name] else "" for key in columns)]
        for name in names
    ]
    return markdown(["method", *columns.values()], rows, align="---:")
