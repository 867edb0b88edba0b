"""What a step costs by method (the paper's Table 4): operations and peak bytes, validation set included."""

from collections.abc import Callable
from functools import partial
from typing import Any

import lai_torch
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import lai_core as lai
from experiments.figures import pictures
from experiments.harness.statistics import Methods, judged
from experiments.harness.study import Found, Unit, study_of
from experiments.methods.base import LOSS
from experiments.networks import GPT, convolutional, seeded
from tests.support.workloads.counts import Counts

NULL, ORACLE = "plain", "half chosen for nothing"
ESTIMATORS: dict[str, tuple[Any, int]] = {
    "Ghost": ("ghost", 1),
    "LAI": ("lai", 1),
    "LLI": ("lli", 1),
    "preconditioned LAI": ("preconditioned_lai", 1),
    "midpoint": ("midpoint", 1),
    "Ghost, refresh 8": ("ghost", 8),
    "LAI, refresh 8": ("lai", 8),
}
SIZE, PERIOD = 32, 8
HALF = partial(lai.keep_top, fraction=0.5)


class Classifier(nn.Module):
    """A GPT whose mean position is classified, as in fine-tuning."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.body, self.out = GPT(50, 16, width=64, depth=4, seed=seed), nn.Linear(64, 2)
        self.body.head = nn.Identity()

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of two classes."""
        return self.out(self.body.norm(self.body.hidden(ids)).mean(1))


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "MLP": lambda seed: seeded(seed, 64, 256, 256, 256, 10),
    "conv": partial(convolutional, channels=16),
    "GPT": Classifier,
}


def config(size: str) -> dict[str, Any]:
    """Return the settings: batch and validation set of one size, as in the paper's table."""
    seeds = [0, 1] if size == "quick" else list(range(5))
    return {"seeds": seeds, "batch": SIZE, "validation": SIZE, "steps": PERIOD, "kept": 0.5}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed and network; quickly, of the smallest."""
    names = ["MLP"] if config["size"] == "quick" else NETWORKS
    return [Unit(name, seed, partial(_run, name, seed)) for seed in config["seeds"] for name in names]


def _run(name: str, seed: int) -> Found:
    """Measure a period of steps of every method, over plain training's."""
    torch.set_num_threads(1)
    ways = {NULL: (None, 1, SIZE), ORACLE: (None, 1, SIZE // 2)}
    ways |= {each: (*of, SIZE) for each, of in ESTIMATORS.items()}
    found = {each: _measured(name, seed, *way) for each, way in ways.items()}
    plain = found[NULL]
    return {
        each: {f"{name}: {key}": value / plain[key] for key, value in of.items()}
        for each, of in found.items()
    }


def _measured(name: str, seed: int, estimator: Any, refresh: int, rows: int) -> dict[str, float]:
    """Count the operations of some steps after warm ones, and the most bytes that live in one of them."""
    model, random = NETWORKS[name](seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held, batch = (_drawn(name, count, random) for count in (SIZE, rows))

    def step() -> None:
        optimizer.zero_grad()
        LOSS(model(batch[0]), batch[1]).mean().backward()
        optimizer.step()

    if estimator is not None:
        options: Any = {"estimator": estimator, "policy": HALF, "refresh": refresh}
        step = partial(lai_torch.Curator(model, LOSS, optimizer, held, **options).step, *batch)
    for _ in range(PERIOD):
        step()
    with Counts() as counts:
        for _ in range(PERIOD):
            step()
    held_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    return {"operations": float(counts.flops), "bytes": float(2 * held_bytes + counts.peak)}


def _drawn(name: str, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    if name == "GPT":
        return torch.randint(50, (count, 16), generator=random), torch.randint(2, (count,), generator=random)
    return torch.rand(count, 64, generator=random), torch.randint(10, (count,), generator=random)


RATIOS: tuple[tuple[str, str, str, str, str, dict[str, float]], ...] = (
    (
        "Ghost takes at least 1.8 times the operations of LAI", "Ghost", "LAI", "operations",
        "1.84 to 2.57", {"at_least": 1.8},
    ),
    (
        "LAI takes at most 1.05 times the operations of LLI", "LAI", "LLI", "operations",
        "1.00", {"at_most": 1.05},
    ),
    ("LAI takes at most 2 plain steps", "LAI", NULL, "operations", "0.78 to 1.98", {"at_most": 2.0}),
    ("LAI takes at most 0.9 of Ghost's memory", "LAI", "Ghost", "bytes", "0.67 to 0.88", {"at_most": 0.9}),
)  # fmt: skip
"""What is claimed of whose what over whose, what the paper prints, and the bound."""


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge Table 4's ratios."""
    found = {}
    for name in (each for each in NETWORKS if f"{each}: operations" in methods[NULL]):
        for text, one, other, what, paper, bound in RATIOS:
            pair = zip(*(methods[of][f"{name}: {what}"]["values"] for of in (one, other)), strict=True)
            found[f"{name}: {text}"] = judged([a / b for a, b in pair], paper=paper, **bound)
    return found


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw operations over plain training's."""
    figure, (axes,) = pictures.figure(height=3.2)
    methods, names = record["methods"], list(record["methods"])
    for shift, (network, method) in enumerate(zip(NETWORKS, ("Ghost", "LAI", "LLI"), strict=True)):
        if (key := f"{network}: operations") in methods[NULL]:
            values, color = [methods[name][key]["mean"] for name in names], pictures.color_of(method)
            places = [at + 0.25 * (shift - 1) for at in range(len(names))]
            axes.barh(places, values, height=0.22, color=color, label=network)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    pictures.label(axes, xlabel="operations of a step, in plain steps")
    pictures.legend(axes)
    return {"operations": figure}


STUDY = study_of(
    __name__,
    name="cost",
    title="Cost",
    about="Table 4",
    columns={f"{name}: {key}": f"{name}, {key}" for key in ("operations", "bytes") for name in NETWORKS},
)
