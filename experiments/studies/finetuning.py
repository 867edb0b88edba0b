"""Fine-tuning (the paper's Table 2): a language model with a prediction layer, curated after a warm-up."""

from functools import partial
from typing import Any

from experiments.data import prose
from experiments.harness.statistics import Methods, compared, judged
from experiments.harness.study import Unit, study_of
from experiments.studies import trainings
from experiments.studies.tasks import fine_tuning
from experiments.studies.trainings import NULL, ORACLE, STOPPED

PRINTED = "LAI, after a warm-up"
CURATED = (
    PRINTED,
    "Ghost, after a warm-up",
    "LAI",
    "Ghost",
    "LAI, best half",
    "LAI, half of each class",
    "LAI, warm-up and half of each class",
)
METHODS = (
    NULL, ORACLE, "validation only", "training + validation", "validation batch mixed in", "random",
    "small loss", "RHO-loss", *CURATED,
)  # fmt: skip
MAIN = "GPT, clean"
SETTINGS = {MAIN: 0.0, "GPT, 40% wrong": 0.4}
"""The share of wrong labels."""


def config(size: str) -> dict[str, Any]:
    if size == "quick":
        small = {"epochs": 2, "training": 64, "reading": 5, "testing": 100}
        return {"seeds": [0, 1], **small, "settings": [MAIN]}
    return {"seeds": list(range(5)), "epochs": 5, "training": 640, "reading": 300, "settings": list(SETTINGS)}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed, setting and method."""
    sizes = {key: config[key] for key in ("epochs", "training", "reading", "testing") if key in config}
    own = {
        name: (METHODS, partial(fine_tuning, share=SETTINGS[name], **sizes)) for name in config["settings"]
    }
    return trainings.units(config["seeds"], own)


ABOVE = (
    (PRINTED, STOPPED),
    (PRINTED, "training + validation"),
    (PRINTED, "Ghost, after a warm-up"),
    (PRINTED, "validation batch mixed in"),
    ("LAI", NULL),
    ("LAI, best half", "LAI"),
    ("LAI, half of each class", "LAI"),
    ("LAI, warm-up and half of each class", NULL),
)
"""Who is said to be above whom, where the paper does not compare."""


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge Table 2, and what its numbers could also come from."""
    found = {}
    for setting in trainings.settings(methods):
        accuracy, held = (f"{setting}: {metric}" for metric in ("accuracy", "validation loss"))
        ratios = zip(*(methods[name][held]["values"] for name in (PRINTED, NULL)), strict=True)
        found |= {
            f"{setting}: after the warm-up, at most half are kept": judged(
                [(kept - 0.6) / 0.4 for kept in methods[PRINTED][f"{setting}: kept"]["values"]],
                paper="half or fewer (Section 5.3)",
                at_most=0.5,
            ),
            f"{setting}: LAI's validation loss is at most four fifths of plain training's": judged(
                [one / other for one, other in ratios], paper="-20 to -50% (Table 2)", at_most=0.8
            ),
            f"{setting}: LAI is above plain training": compared(
                methods, PRINTED, NULL, accuracy, paper="+0.006 to +0.014 (Table 2)"
            ),
        }
        for name, other in ABOVE:
            found[f"{setting}: {name}: above {other}"] = compared(
                methods, name, other, accuracy, paper="not compared"
            )
        found[f"{setting}: training + validation has a lower validation loss than LAI"] = compared(
            methods, "training + validation", PRINTED, held, paper="not compared", sign=-1
        )
    return found


draw = partial(trainings.best_first, height=3.8)
STUDY = study_of(
    __name__,
    name="finetuning",
    title="Fine-tuning",
    about="Table 2",
    columns={
        f"{MAIN}: accuracy": "GPT, clean",
        f"{MAIN}: validation loss": "validation loss",
        f"{MAIN}: test loss": "test loss",
        f"{MAIN}: kept": "kept",
        f"{MAIN}: cost": "cost",
        "GPT, 40% wrong: accuracy": "GPT, 40% wrong",
        "BERT, film reviews: accuracy": "BERT, film reviews",
    },
    data={"prose": prose.digest},
)
