"""What online scores are worth as attribution: the sums of a run against networks retrained on subsets."""

from collections.abc import Callable
from functools import partial
from typing import Any

import lai_torch
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import lai_core as lai
from experiments.data.digits import Batch
from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared
from experiments.harness.study import Found, Unit, study_of
from experiments.methods import attribution
from experiments.methods.base import LOSS
from experiments.retraining import trained
from experiments.retraining.summed import ADAMS, SUMMED, Summed, tracer, train
from experiments.retraining.trained import BEYOND, LABEL, NULL, ONE, ORACLE, OWN, SETTINGS, SEVERAL, order
from workloads.counts import counted

PRODUCTS, TRAK, EKFAC = "inner products at the end", "TRAK", "EKFAC"
WIDTH, DAMPING = 32, 0.1
"""Of TRAK's projection, the best of 16 to 256 on another seed; EKFAC's, in mean eigenvalues of each layer."""
PLACES = tuple(f"{name}, {kind}" for name in SETTINGS for kind in ("SGD", "Adam"))
(ADAM,) = ADAMS
SHOWN = {
    ONE: "one network", SEVERAL: "all networks", BEYOND: "beyond the label", OWN: "own run", "cost": "cost",
}  # fmt: skip
"""The metrics of the table. Convolutions have no cost: torch counts grouped ones once too often a group."""


def config(size: str) -> dict[str, Any]:
    """Return the settings: how many networks are attributed, and how many are retrained on each subset."""
    quick = {"settings": [PLACES[-1]], "subsets": 8, "networks": 2, "retrainings": 2, "epochs": 2}
    full = {"settings": list(PLACES), "subsets": 50, "networks": 4, "retrainings": 6, "epochs": 20}
    return {"seeds": [0, 1]} | quick if size == "quick" else {"seeds": list(range(5))} | full


def arms(place: str) -> tuple[str, ...]:
    """Return what is compared in a setting."""
    summed = (*SUMMED, *ADAMS) if place.endswith("Adam") else SUMMED
    return (NULL, LABEL, *summed, PRODUCTS, TRAK, EKFAC, ORACLE)


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a setting and seed."""
    return [
        Unit(place, seed, partial(_run, place, seed, config), arms(place), f"{place}: ")
        for place in config["settings"]
        for seed in config["seeds"]
    ]


def _run(place: str, seed: int, config: dict[str, Any]) -> Found:
    """Attribute by every method, retrain on subsets, and compare."""
    torch.set_num_threads(1)
    name, kind = place.split(", ")
    setting = SETTINGS[name]
    training, test = setting.data(seed)
    networks = range(1000 * seed, 1000 * seed + config["networks"])
    everyone = torch.arange(len(training[1]))
    rows = [order(everyone, setting.batch, config["epochs"], each) for each in networks]
    runs = [
        train(setting, kind, each, training, test, steps) for each, steps in zip(networks, rows, strict=True)
    ]
    found = [attributed(run, training, test, each) for run, each in zip(runs, networks, strict=True)]
    kernels = {method: torch.stack([of[method][0] for of in found]) for method in found[0]}
    members = trained.subsets(config["subsets"], len(everyone), seed)
    shape = config["retrainings"], len(members), len(test[1])

    def log_odds(seeds: range | list[int], steps: Tensor, weights: Tensor) -> Tensor:
        logits = trained.side_by_side(setting, kind, seeds, training, steps, weights, test)
        labels = test[1].repeat(len(seeds))
        return attribution.margin(logits.flatten(0, 1), labels).view(len(seeds), -1)

    again = []
    for start in range(networks.stop, networks.stop + shape[0] * shape[1], shape[1]):
        seeds = range(start, start + shape[1])
        orders = (
            order(everyone[of], setting.batch, config["epochs"], each)
            for of, each in zip(members, seeds, strict=True)
        )
        steps = torch.stack([*orders], 1)
        again.append(log_odds(seeds, steps, torch.full(steps.shape, 1.0 / setting.batch)))
    kept = torch.stack([of[rows[0]] for of in members], 1) / setting.batch
    own = log_odds([networks[0]] * len(members), rows[0][:, None].expand(kept.shape), kept)
    costs = {method: cost for method, (_, cost) in found[0].items()} | {ORACLE: 0.5 * len(members)}
    return {
        method: {f"{place}: {key}": value for key, value in metrics.items()}
        | ({} if name == "conv" else {f"{place}: cost": costs[method]})
        for method, metrics in trained.datamodelling_scores(kernels, members, torch.stack(again), own).items()
    }


def attributed(run: Summed, training: Batch, test: Batch, seed: int) -> dict[str, tuple[Tensor, float]]:
    """Return scores `(n_test, n)` and what they cost in trainings, by method, from one network's training."""
    model, count, record = run.model, len(training[1]), tracer(run.model, test, training)

    def products() -> Tensor:
        lai_torch.trace(model, LOSS, *training, gradients="all")  # whose checks count, as they do in EKFAC's
        return lai.ghost_kernel(record(test)[0], record(training)[0])

    at_the_end: dict[str, tuple[Callable[[], Tensor], int]] = {
        PRODUCTS: (products, 0),
        TRAK: (
            lambda: attribution.projected_kernel(model, training, test, width=WIDTH, seed=seed),
            attribution.inverse_operations(count, WIDTH),
        ),
        EKFAC: (
            lambda: attribution.kronecker_kernel(model, training, test, damping=DAMPING),
            attribution.eigenvector_operations(model),
        ),
    }
    noise = torch.randn(len(test[1]), count, generator=torch.Generator().manual_seed(seed))
    same = (test[1][:, None] == training[1]).float()
    found = {NULL: (noise, 0.0), LABEL: (same, 0.0)}
    found |= {name: (scores, run.costs[name]) for name, scores in run.scores.items()}
    for name, (score, apart) in at_the_end.items():
        found[name] = score().detach(), 1.0 + (counted(score).flops + apart) / run.operations
    return found


def best_sum(place: str) -> str:
    """Return the run's sum that follows the optimizer's own step best."""
    return ADAM if place.endswith("Adam") else "midpoint"


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge the run's sums against what looks at the end, each other, and the label alone."""
    judged = {}
    for place in recorded(methods):
        pairs = [("Ghost", other) for other in (PRODUCTS, TRAK, EKFAC, LABEL)]
        for one, other in (*pairs, ("LAI", "Ghost"), (best_sum(place), "Ghost")):
            claim = compared(methods, one, other, f"{place}: {ONE}", paper="ours")
            judged[f"{place}: {one} over the run is above {other}"] = claim
    return judged


def recorded(methods: Methods) -> list[str]:
    """Return the settings that a record has."""
    return [place for place in PLACES if f"{place}: {ONE}" in methods[NULL]]


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw the scores of one network, methods over settings."""
    methods, places = record["methods"], recorded(record["methods"])
    figure, (axes,) = pictures.figure(height=3.6)
    shown = (LABEL, PRODUCTS, TRAK, EKFAC, "LAI", "Ghost", "midpoint")
    for shift, (method, marker) in enumerate(zip(shown, "xv^Ds*o", strict=True)):
        names = [best_sum(place) if method == "midpoint" else method for place in places]
        rows = [methods[name][f"{place}: {ONE}"] for name, place in zip(names, places, strict=True)]
        at, color = np.arange(len(places)) + 0.1 * (shift - len(shown) / 2), pictures.color_of(method)
        name = "midpoint of the optimizer" if method == "midpoint" else method
        pictures.points(axes, at, rows, marker, color=color, label=name)
    axes.set_xticks(range(len(places)), places, fontsize=8)
    pictures.label(axes, ylabel="linear datamodelling score")
    pictures.legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)
    return {"lds": figure}


STUDY = study_of(
    __name__,
    name="attribution",
    title="Attribution by a run's sums",
    about="ours",
    setting="""Whether the scores that a run adds up tell which training samples a prediction
depends on. Networks are retrained on 50 random halves of the training set. The linear
datamodelling score (LDS, Park et al. 2023) of a method is Spearman's correlation, over these
subsets, between a test sample's log-odds and the summed scores of the subset's members; it is
averaged over 100 test samples. The log-odds are means over six retrainings, each with its own
initial weights and order of samples. A perceptron and two convolutions on 512 digits, a
perceptron on 384 rows of 30 measurements (breast cancer); 20 epochs. The table holds the settings that
have been run.

- *LLI*, *LAI*, *Ghost*, *midpoint* (of SGD's step) and *midpoint of Adam* are summed over the run: each
  step adds the scores of its batch, for each test sample separately.
- *Inner products at the end*, *TRAK* (projected to 32 numbers, the best width on another seed) and
  *EKFAC* (damping 0.1 of the mean eigenvalue) look at the trained network alone.
- *Same label* scores 1 for each training sample with the test sample's label, 0 for others.
- *Retraining* predicts by one retraining the mean of the five others, in "all networks" by three the mean
  of three. It is no ceiling: a prediction that has no noise of its own can correlate better.
- "One network" is the mean over four networks, each attributed separately; "all networks" adds their
  scores.
- "Beyond the label" is the partial correlation, given how many members have the test sample's label.
- "Own run" retrains from the attributed network's initial weights, on its batches, without the losses
  of the samples left out.
- Costs are of one network and all 100 test samples. EKFAC's contains the checks of `lai_torch.trace`; the
  counts for convolutions are left out.""",
    picture="Linear datamodelling score by network and optimizer, for seven ways to attribute.",
    columns={f"{place}: {key}": f"{place}: {short}" for place in PLACES for key, short in SHOWN.items()},
)
