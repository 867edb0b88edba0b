"""How scores move while a network trains (the paper's Figure 2), and what their history tells of labels."""

import warnings
from functools import partial
from typing import Any

import lai_torch
import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.stats import rankdata, spearmanr

import lai_core as lai
from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared, judged
from experiments.harness.study import Found, Study, Unit
from experiments.methods.base import LOSS, Run, auc
from experiments.studies import tasks

SHARE = "share of epochs kept"
RUNS = {"LAI": ("lai", True), "Ghost": ("ghost", True), "plain, scored by LAI": ("lai", False)}


def config(size: str) -> dict[str, Any]:
    """Return the settings."""
    if size == "quick":
        return {"seeds": [0, 1], "epochs": 5, "share": 0.4}
    return {"seeds": list(range(5)), "epochs": 30, "share": 0.4}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed and way to train."""
    return [Unit(name, seed, partial(_run, name, seed, config)) for seed in config["seeds"] for name in RUNS]


def history(name: str, seed: int, config: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Train; return each epoch's scores `(epochs, n)`, losses at the end, which are wrong, and accuracy."""
    torch.set_num_threads(1)
    estimator, selects = RUNS[name]
    task = tasks.digits(seed, noise="symmetric", share=config["share"], held=300, epochs=config["epochs"])
    run, order = Run(task, seed), np.random.default_rng((seed, 2))
    curator = lai_torch.Curator(
        run.model, LOSS, run.optimizer, task.validation, estimator=estimator, policy=lai.keep_positive
    )
    scores = np.zeros((config["epochs"], len(run.labels)))
    for epoch in range(config["epochs"]):
        for rows in torch.from_numpy(order.permutation(len(run.labels))).split(task.batch):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="refresh: ")
                if selects:
                    found = curator.step(*run.batch(rows)).scores
                else:
                    found = curator.score(*run.batch(rows))[1].scores
                    run.update(rows, torch.full((len(rows),), 1.0 / len(rows)))
            scores[epoch, rows] = found.numpy()
    with torch.no_grad():
        right = run.model(task.test[0]).argmax(1) == task.test[1]
        own = LOSS(run.model(run.inputs), run.labels)
    return scores, own.numpy(), task.wrong.numpy().astype(bool), float(right.double().mean())


def _run(name: str, seed: int, config: dict[str, Any]) -> Found:
    """Say how scores move, and how well each summary of their history finds wrong labels."""
    scores, own, wrong, accuracy = history(name, seed, config)
    kept, size = scores > 0, np.median(np.abs(scores), axis=1)
    ranks = np.stack([rankdata(row) for row in scores])
    epochs = len(scores)
    behaviour = {
        "accuracy": accuracy,
        "kept in the last epoch": kept[-1].mean(),
        "median size, last epoch over first": size[-1] / size[0],
        "sign changes a sample and epoch": (kept[1:] != kept[:-1]).mean(),
        "rank correlation with the next epoch": np.mean(
            [spearmanr(scores[i], scores[i + 1]).statistic for i in range(epochs - 1)]
        ),
        "kept in every epoch": kept.all(0).mean(),
        "kept in none": (~kept.any(0)).mean(),
    }
    singles = [auc(-row, wrong) for row in scores]
    detectors = {
        "first epoch's scores": singles[0],
        "last epoch's scores": singles[-1],
        "best single epoch's scores (known afterwards)": max(singles),
        "sum of scores": auc(-scores.sum(0), wrong),
        "mean rank": auc(-ranks.mean(0), wrong),
        SHARE: auc(-kept.mean(0), wrong),
        "own loss at the end": auc(own, wrong),
        "random": auc(np.random.default_rng(seed).random(len(wrong)), wrong),
        "the truth": auc(wrong.astype(float), wrong),
    }
    found = {name: {key: float(value) for key, value in behaviour.items()}}
    return found | {each: {f"AUC, {name}": value} for each, value in detectors.items()}


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge what Section 6.2 says of single samples and of sums over checkpoints."""
    of = methods["LAI"]
    kept = of["kept in the last epoch"]["values"]
    metric = "AUC, LAI"
    return {
        "scores converge sharply around zero (a tenth of their first size)": judged(
            of["median size, last epoch over first"]["values"],
            paper="converge sharply (Figure 2A)",
            at_most=0.1,
        ),
        "at least 40% are kept in the last epoch": judged(kept, paper="about half", at_least=0.4),
        "at most 60% are kept in the last epoch": judged(kept, paper="about half", at_most=0.6),
        "fewer than 5% of samples are kept in every epoch": judged(
            of["kept in every epoch"]["values"], paper="very few", at_most=0.05
        ),
        "summed scores find wrong labels worse than the last epoch's": compared(
            methods, "sum of scores", "last epoch's scores", metric, paper="sums neutralize", sign=-1
        ),
        "the share of epochs kept finds wrong labels better than any single epoch": compared(
            methods, SHARE, "best single epoch's scores (known afterwards)", metric, paper="ours"
        ),
        "the share of epochs kept finds wrong labels better than summed scores": compared(
            methods, SHARE, "sum of scores", metric, paper="ours"
        ),
    }


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw how well each summary finds wrong labels."""
    figure, (axes,) = pictures.figure(height=3.2)
    rows = {name: of["AUC, LAI"] for name, of in record["methods"].items() if "AUC, LAI" in of}
    ordered = sorted(rows, key=lambda name: rows[name]["mean"])
    for at, name in enumerate(ordered):
        row, color = rows[name], pictures.LOOKS["LAI"][0] if name == SHARE else pictures.INK
        axes.plot(row["mean"], at, "o", color=color)
        if row["low"] is not None:
            axes.plot([row["low"], row["high"]], [at, at], color=color)
    axes.set_yticks(range(len(ordered)), ordered, fontsize=8)
    pictures.label(axes, xlabel="wrong labels found: area under the ROC curve", xlim=(0.4, 1.01))
    return {"found": figure}


STUDY = Study(
    name="dynamics",
    title="Dynamics of scores",
    about="Figure 2",
    setting="""Digits with 40% wrong labels; every sample is scored once an epoch. The first rows say how
well each summary of a sample's history finds wrong labels (area under the ROC curve), the
others how scores move.""",
    picture="How well each summary of the history of scores finds wrong labels.",
    config=config,
    units=units,
    claims=claims,
    pictures=draw,
    null="random",
    oracle="the truth",
    columns={
        "AUC, LAI": "AUC, LAI selects",
        "AUC, Ghost": "AUC, Ghost selects",
        "AUC, plain, scored by LAI": "AUC, plain training",
        "kept in the last epoch": "kept, last epoch",
        "median size, last epoch over first": "size, last / first",
        "sign changes a sample and epoch": "sign changes",
        "rank correlation with the next epoch": "rank correlation, next",
        "kept in every epoch": "always kept",
        "kept in none": "never kept",
    },
)
