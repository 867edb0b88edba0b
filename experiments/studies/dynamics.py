"""How scores move while a network trains (the paper's Figure 2), and what their history tells of labels."""

from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import roc_auc_score

from experiments.data.digits import noisy_digits
from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared, judged
from experiments.harness.study import Found, Unit, study_of
from experiments.methods import train
from experiments.studies import tasks

SHARE, SUM, ENDS = "share of epochs kept", "sum of scores", "last epoch's scores"
SINGLE, LAST = "best single epoch's scores (known afterwards)", "kept in the last epoch"
NULL, ORACLE = "random", "the truth"
RUNS = ("LAI", "Ghost", "plain, scored by LAI")


def config(size: str) -> dict[str, Any]:
    if size == "quick":
        return {"seeds": [0, 1], "epochs": 5, "share": 0.4}
    return {"seeds": list(range(5)), "epochs": 30, "share": 0.4}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed and way to train."""
    return [(seed, partial(_run, name, seed, config)) for seed in config["seeds"] for name in RUNS]


def _run(name: str, seed: int, config: dict[str, Any]) -> Found:
    """Say how scores move, and how well each summary of their history finds wrong labels."""
    outcome = train(name, tasks.flipped(seed, epochs=config["epochs"], share=config["share"]), seed)
    run, scores = outcome.run, outcome.scores.double().numpy()
    wrong = run.wrong.numpy() > 0
    kept, size = scores > 0, np.median(np.abs(scores), axis=1)
    ranks = np.stack([rankdata(row) for row in scores])
    epochs, labels = len(scores), noisy_digits(seed).true_labels.numpy()
    of_each = np.array([kept[-1, labels == label].mean() for label in range(10)])
    behaviour = {
        "accuracy": outcome.test[-1],
        LAST: kept[-1].mean(),
        "median size, last epoch over first": size[-1] / size[0],
        "sign changes a sample and epoch": (kept[1:] != kept[:-1]).mean(),
        "rank correlation with the next epoch": np.mean(
            [spearmanr(scores[i], scores[i + 1]).statistic for i in range(epochs - 1)]
        ),
        "kept in every epoch": kept.all(0).mean(),
        "kept in none": (~kept.any(0)).mean(),
        "least kept class over the mean": of_each.min() / of_each.mean(),
    }
    for epoch in shown(epochs):
        behaviour[f"epoch {epoch}: kept of right labels"] = kept[epoch - 1, ~wrong].mean()
        behaviour[f"epoch {epoch}: kept of wrong labels"] = kept[epoch - 1, wrong].mean()
    singles = [roc_auc_score(wrong, -row) for row in scores]
    detectors = {
        "first epoch's scores": singles[0],
        ENDS: singles[-1],
        SINGLE: max(singles),
        SUM: roc_auc_score(wrong, -scores.sum(0)),
        "mean rank": roc_auc_score(wrong, -ranks.mean(0)),
        SHARE: roc_auc_score(wrong, -kept.mean(0)),
        "own loss at the end": roc_auc_score(wrong, run.losses(torch.arange(len(wrong))).numpy()),
        NULL: roc_auc_score(wrong, np.random.default_rng(seed).random(len(wrong))),
        ORACLE: roc_auc_score(wrong, wrong.astype(float)),
    }
    found = {name: {key: float(value) for key, value in behaviour.items()}}
    return found | {each: {f"AUC, {name}": value} for each, value in detectors.items()}


def shown(epochs: int) -> list[int]:
    """Return the first epoch, the last, and those between that the picture shows."""
    return sorted({1, *(max(1, epochs * part // 6) for part in range(1, 7))})


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge what Section 6.2 says of single samples and of sums over checkpoints."""
    of, metric = methods["LAI"], "AUC, LAI"
    found = {
        text: judged(of[key]["values"], paper=paper, **bound)
        for text, key, paper, bound in (
            (
                "scores converge sharply around zero (a tenth of their first size)",
                "median size, last epoch over first", "converge sharply (Figure 2A)", {"at_most": 0.1},
            ),
            ("at least 40% are kept in the last epoch", LAST, "about half", {"at_least": 0.4}),
            ("at most 60% are kept in the last epoch", LAST, "about half", {"at_most": 0.6}),
            (
                "fewer than 5% of samples are kept in every epoch", "kept in every epoch", "very few",
                {"at_most": 0.05},
            ),
        )
    }  # fmt: skip
    for text, one, other, paper, sign in (
        ("summed scores find wrong labels worse than the last epoch's", SUM, ENDS, "sums neutralize", -1),
        (f"the {SHARE} finds wrong labels better than any single epoch", SHARE, SINGLE, "ours", 1),
        (f"the {SHARE} finds wrong labels better than summed scores", SHARE, SUM, "ours", 1),
    ):
        found[text] = compared(methods, one, other, metric, paper=paper, sign=sign)
    return found


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw how well each summary finds wrong labels, and what is kept of them over epochs."""
    figure, (left, right) = pictures.figure(2, height=3.2)
    rows = {name: of["AUC, LAI"] for name, of in record["methods"].items() if "AUC, LAI" in of}
    pictures.intervals(left, dict(sorted(rows.items(), key=lambda row: -row[1]["mean"])))
    pictures.label(left, xlabel="wrong labels found (AUC)")
    epochs = shown(record["config"]["epochs"])
    for name in ("LAI", "Ghost"):
        of = record["methods"][name]
        for kind, style in (("right", "o-"), ("wrong", "o--")):
            means = [of[f"epoch {epoch}: kept of {kind} labels"]["mean"] for epoch in epochs]
            color = pictures.LOOKS[name][0]
            right.plot(epochs, means, style, ms=3, color=color, label=f"{name}, {kind} labels")
    pictures.label(right, xlabel="epoch", ylabel="share kept", ylim=(0.0, 1.0))
    pictures.legend(right)
    return {"found": figure}


STUDY = study_of(
    __name__,
    name="dynamics",
    title="Dynamics of scores",
    about="Figure 2",
    columns={
        "AUC, LAI": "AUC, LAI selects",
        "AUC, Ghost": "AUC, Ghost selects",
        "AUC, plain, scored by LAI": "AUC, plain training",
        LAST: "kept, last epoch",
        "median size, last epoch over first": "size, last / first",
        "sign changes a sample and epoch": "sign changes",
        "rank correlation with the next epoch": "rank correlation, next",
        "kept in every epoch": "always kept",
        "kept in none": "never kept",
        "least kept class over the mean": "least kept class / mean",
    },
)
