"""Wrong labels (the paper's Table 3): every way to choose, at equal epochs and at equal cost."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared
from experiments.harness.study import Unit, study_of
from experiments.studies import tasks, trainings
from experiments.studies.trainings import NULL, ORACLE, STOPPED

OPEN = "not compared"
CORE = (
    NULL, ORACLE, "validation only", "training + validation", "validation batch mixed in", "random",
    "small loss", "RHO-loss", "Ghost", "LAI", "LAI, best half",
)  # fmt: skip
ALL = (
    *CORE, "LLI", "self-paced (SPL)", "preconditioned LAI", "calibrated LAI", "midpoint", "LAI, refresh 8",
    "Ghost, refresh 8", "LAI, error bars",
)  # fmt: skip
FEW = (
    NULL, ORACLE, "validation only", "training + validation", "validation batch mixed in", "random",
    "RHO-loss", "Ghost", "LAI", "LAI, best half",
)  # fmt: skip
MAIN, SKEWED = "symmetric 40%", "asymmetric 40%"
INVITED, DOUBTFUL = "instance-dependent 40%", "symmetric 40%, and of the validation labels"
SIZES = {20: "symmetric 40%, 20 to validate", 100: "symmetric 40%, 100 to validate", 300: MAIN}
SYMMETRIC = {"noise": "symmetric", "share": 0.4, "held": 300}
SETTINGS: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    MAIN: (ALL, SYMMETRIC),
    SKEWED: (CORE, SYMMETRIC | {"noise": "asymmetric"}),
    INVITED: (CORE, SYMMETRIC | {"noise": "instance"}),
    "no noise": (CORE, SYMMETRIC | {"share": 0.0}),
    SIZES[20]: (FEW, SYMMETRIC | {"held": 20}),
    SIZES[100]: (FEW, SYMMETRIC | {"held": 100}),
    DOUBTFUL: (FEW, SYMMETRIC | {"held_wrong": 0.4}),
}
CLAIMS = (
    ("LAI is above plain training", "LAI", NULL, "accuracy", "+2.0 on average (Table 3)"),
    ("LAI is above plain training stopped early", "LAI", STOPPED, "accuracy", OPEN),
    ("LAI is above training on the validation set alone", "LAI", "validation only", "accuracy", OPEN),
    ("LAI is above RHO-loss", "LAI", "RHO-loss", "accuracy", OPEN),
    ("LAI is above Ghost", "LAI", "Ghost", "accuracy", "+0.4 on average (Table 3)"),
    ("at plain's cost, LAI is above Ghost", "LAI", "Ghost", "at plain's cost", OPEN),
    *(
        (f"{one} is above {other}", one, other, "accuracy", paper)
        for one, other, paper in (
            ("LAI", "LLI", "+0.3 on average (Table 3)"),
            ("LAI", "self-paced (SPL)", "+8.2 on average (Table 3)"),
            ("LAI", "inner products (IP)", "+4.9 on average (Table 3)"),
            ("LAI", "LiSSA", "+10.8 on average (Table 3)"),
            ("LAI", "DataInf", "+6.7 on average (Table 3)"),
            ("LAI", "TRAK", "+4.9 on the image sets (Table 3)"),
            ("LAI", "KNN-Shapley", OPEN),
            ("LAI", "confident learning", OPEN),
            ("inner products (IP)", "LiSSA", "+5.9 on average (Table 3)"),
            ("inner products (IP)", "DataInf", "+1.9 on average (Table 3)"),
            ("inner products (IP)", "TRAK", "-2.7 on the image sets (Table 3)"),
            ("LAI as a set", "LAI, best half", OPEN),
            ("LAI as a set", "LAI", OPEN),
            ("LAI as a set", "RHO-loss", OPEN),
            ("LAI as a set", "validation batch mixed in", OPEN),
            ("LAI as a set", "GREATS-like", OPEN),
            ("GREATS-like", "Ghost", OPEN),
            ("LAI, error bars", "LAI", OPEN),
        )
    ),
)
"""Who is said to be above whom in what, and what the paper says of it; some are in the record alone."""


def config(size: str) -> dict[str, Any]:
    if size == "quick":
        return {"seeds": [0, 1], "epochs": 2, "settings": [MAIN]}
    return {"seeds": list(range(5)), "epochs": 30, "settings": list(SETTINGS)}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed, setting and method."""
    settings: dict[str, trainings.Setting] = {}
    for name in config["settings"]:
        methods, options = SETTINGS[name]
        settings[name] = methods, partial(tasks.digits, epochs=config["epochs"], **options)
    return trainings.units(config["seeds"], settings)


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge the paper's claims, and those it should have made."""
    found = {}
    for setting in trainings.settings(methods):
        for text, one, other, metric, paper in CLAIMS:
            key = f"{setting}: {metric}"
            if all(key in methods.get(name, {}) for name in (one, other)):
                found[f"{setting}: {text}"] = compared(methods, one, other, key, paper=paper)
    return found


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw accuracy in the main setting, best first, and how it grows with the validation set."""
    figure, (axes,) = pictures.figure(height=3.0)
    names = (STOPPED, "validation only", "validation batch mixed in", "RHO-loss", "Ghost", "LAI")
    for at, (name, style) in enumerate(zip(names, ("-", ":", "--", "-.", "-", "-"), strict=True)):
        of = record["methods"].get(name, {})
        known = {
            size: of[f"{place}: accuracy"] for size, place in SIZES.items() if f"{place}: accuracy" in of
        }
        x = [size * 1.03**at for size in known]
        pictures.points(axes, x, [*known.values()], style, color=pictures.color_of(name), label=name)
    axes.set(xscale="log")
    axes.set_xticks(list(SIZES), [str(size) for size in SIZES], minor=False)
    axes.minorticks_off()
    text = "clean validation images, 40% of the training labels wrong"
    pictures.label(axes, xlabel=text, ylabel="test accuracy")
    pictures.legend(axes, ncols=2, loc="lower right")
    return trainings.best_first(record, 6.4) | {"sizes": figure}


STUDY = study_of(
    __name__,
    name="noisy-labels",
    title="Wrong labels",
    about="Table 3",
    columns={
        f"{MAIN}: accuracy": "symmetric 40%",
        f"{MAIN}: stopped early": "stopped early",
        f"{MAIN}: at plain's cost": "at plain's cost",
        f"{MAIN}: cost": "cost",
        f"{MAIN}: wrong of kept": "wrong of kept",
        f"{SKEWED}: accuracy": "asymmetric 40%",
        f"{INVITED}: accuracy": "instance-dependent 40%",
        "annotators, worst of three: accuracy": "annotators",
        "no noise: accuracy": "no noise",
        f"{SIZES[20]}: accuracy": "20 to validate",
        f"{SIZES[100]}: accuracy": "100 to validate",
        f"{DOUBTFUL}: accuracy": "validation wrong too",
    },
)
