"""Wrong labels (the paper's Table 3): every way to choose, at equal epochs and at equal cost."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from experiments.data import archives
from experiments.harness.statistics import Methods, compared
from experiments.harness.study import Study, Unit
from experiments.studies import tasks, trainings
from experiments.studies.trainings import NULL, ORACLE, STOPPED

CORE = (
    NULL, ORACLE, "validation only", "training + validation", "validation batch mixed in", "random",
    "small loss", "loss below the validation's", "RHO-loss", "guide agrees", "Ghost", "LAI",
)  # fmt: skip
ALL = (
    *CORE, "LLI", "high loss", "self-paced (SPL)", "InfoBatch", "co-teaching", "preconditioned LAI",
    "calibrated LAI", "midpoint", "LAI, refresh 8", "Ghost, refresh 8",
)  # fmt: skip
MAIN, SKEWED, PEOPLE = "symmetric 40%", "asymmetric 40%", "annotators, worst of three"
SETTINGS: dict[str, tuple[Sequence[str], Any, dict[str, Any]]] = {
    MAIN: (ALL, tasks.digits, {"noise": "symmetric", "share": 0.4, "held": 300}),
    SKEWED: (CORE, tasks.digits, {"noise": "asymmetric", "share": 0.4, "held": 300}),
    PEOPLE: (CORE, tasks.reviews, {"noise": "worst", "held": 200}),
    "no noise": (CORE, tasks.digits, {"noise": "symmetric", "share": 0.0, "held": 300}),
}  # fmt: skip


def config(size: str) -> dict[str, Any]:
    """Return the settings; those of people where their ratings have been fetched."""
    if size == "quick":
        return {"seeds": [0, 1], "epochs": {"digits": 6}, "settings": [MAIN]}
    held = [name for name in SETTINGS if name != PEOPLE or archives.fetched("vaderSentiment")]
    return {"seeds": list(range(5)), "epochs": {"digits": 30, "reviews": 12}, "settings": held}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed, setting and method."""
    settings = {}
    for name in config["settings"]:
        methods, make, options = SETTINGS[name]
        settings[name] = methods, partial(make, epochs=config["epochs"][make.__name__], **options)
    return trainings.units(config["seeds"], settings)


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge the paper's claims, and those it should have made."""
    found = {}
    for setting in SETTINGS:
        metric = f"{setting}: accuracy"
        if metric not in methods[NULL]:
            continue
        judge = partial(compared, methods, "LAI", metric=metric)
        found |= {
            f"{setting}: LAI is above plain training": judge(NULL, paper="+2.0 on average (Table 3)"),
            f"{setting}: LAI is above plain training stopped early": judge(STOPPED, paper="not compared"),
            f"{setting}: LAI is above training on the validation set alone": judge(
                "validation only", paper="not compared"
            ),
            f"{setting}: LAI is above RHO-loss": judge("RHO-loss", paper="not compared"),
            f"{setting}: LAI is above Ghost": judge("Ghost", paper="+0.4 on average (Table 3)"),
            f"{setting}: at plain's cost, LAI is above Ghost": compared(
                methods, "LAI", "Ghost", f"{setting}: at plain's cost", paper="not compared"
            ),
        }
        for other, paper in (("LLI", "+0.3 on average"), ("self-paced (SPL)", "+8.2 on average")):
            if metric in methods[other]:
                found[f"{setting}: LAI is above {other}"] = judge(other, paper=f"{paper} (Table 3)")
    return found


STUDY = Study(
    name="noisy-labels",
    title="Wrong labels",
    about="Table 3",
    setting="""Digits with wrong labels (1,024 training, 300 clean validation, 473 test images; a network
of three layers, Adam) and film-review sentences with the labels of real annotators (2,000
training, 200 validation, 2,000 test; weighted counts of words). All methods have the same
data, start and order of samples. *Stopped early* is the epoch of the highest validation
accuracy; *at plain's cost* the last epoch within the operations of plain training (0 where
what precedes training, as the guide of RHO-loss, leaves no whole epoch).""",
    picture="Test accuracy by method, best first, with what each costs in plain trainings.",
    config=config,
    units=units,
    claims=claims,
    pictures=partial(trainings.best_first, setting=MAIN, height=5.0),
    null=NULL,
    oracle=ORACLE,
    columns={
        f"{MAIN}: accuracy": "symmetric 40%",
        f"{MAIN}: stopped early": "stopped early",
        f"{MAIN}: at plain's cost": "at plain's cost",
        f"{MAIN}: cost": "cost",
        f"{MAIN}: wrong of kept": "wrong of kept",
        f"{SKEWED}: accuracy": "asymmetric 40%",
        f"{PEOPLE}: accuracy": "annotators",
        "no noise: accuracy": "no noise",
    },
)
