"""What a step costs by method (the paper's Table 4): operations and peak bytes, validation set included."""

import warnings
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
from experiments.harness.study import Found, Study, Unit
from experiments.methods.base import LOSS
from experiments.studies.networks import GPT, convolutional
from workloads.counts import Counts

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


def wide(seed: int) -> nn.Sequential:
    """Return four wide layers."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, 10),
    )  # fmt: skip


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "MLP": wide,
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
    ways: dict[str, Any] = {NULL: (None, SIZE), ORACLE: (None, SIZE // 2)}
    found = {each: _measured(name, seed, None, 1, rows) for each, (_, rows) in ways.items()}
    for each, (estimator, refresh) in ESTIMATORS.items():
        found[each] = _measured(name, seed, estimator, refresh, SIZE)
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
    if estimator is None:

        def step() -> None:
            optimizer.zero_grad()
            LOSS(model(batch[0]), batch[1]).mean().backward()
            optimizer.step()

    else:
        curator = lai_torch.Curator(
            model, LOSS, optimizer, held, estimator=estimator, policy=HALF, refresh=refresh
        )
        step = partial(curator.step, *batch)
    with warnings.catch_warnings():  # what the validation set and exact pairs cost is what is measured
        warnings.filterwarnings("ignore", message="refresh: |positions: ")
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


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge Table 4's ratios."""
    found = {}
    for name in NETWORKS:
        if (key := f"{name}: operations") not in methods[NULL]:
            continue
        ghost, lai_, lli = (methods[each][key]["values"] for each in ("Ghost", "LAI", "LLI"))
        memory = [methods[each][f"{name}: bytes"]["values"] for each in ("Ghost", "LAI")]
        found |= {
            f"{name}: Ghost takes at least 1.8 times the operations of LAI": judged(
                [g / a for g, a in zip(ghost, lai_, strict=True)], paper="1.84 to 2.57", at_least=1.8
            ),
            f"{name}: LAI takes at most 1.05 times the operations of LLI": judged(
                [a / b for a, b in zip(lai_, lli, strict=True)], paper="1.00", at_most=1.05
            ),
            f"{name}: LAI takes at most 2 plain steps": judged(lai_, paper="0.78 to 1.98", at_most=2.0),
            f"{name}: LAI takes at most 0.9 of Ghost's memory": judged(
                [a / g for g, a in zip(*memory, strict=True)], paper="0.67 to 0.88", at_most=0.9
            ),
        }
    return found


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw operations over plain training's."""
    figure, (axes,) = pictures.figure(height=3.2)
    names = list(record["methods"])
    colors = [pictures.LOOKS[each][0] for each in ("Ghost", "LAI", "LLI")]
    for shift, (network, color) in enumerate(zip(NETWORKS, colors, strict=True)):
        if f"{network}: operations" not in record["methods"][NULL]:
            continue
        values = [record["methods"][name][f"{network}: operations"]["mean"] for name in names]
        places = [at + 0.25 * (shift - 1) for at in range(len(names))]
        axes.barh(places, values, height=0.22, color=color, label=network)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    pictures.label(axes, xlabel="operations of a step, in plain steps")
    pictures.legend(axes)
    return {"operations": figure}


STUDY = Study(
    name="cost",
    title="Cost",
    about="Table 4",
    setting="""Batch and validation set have 32 samples each, as in the paper's table; half of each batch
is kept. Operations of eight steps, and the most bytes that live in them, over those of
plain training.""",
    picture=(
        "Operations of a step in plain steps: Ghost takes more than twice those of LAI on every network. "
    ),
    config=config,
    units=units,
    claims=claims,
    pictures=draw,
    null=NULL,
    oracle=ORACLE,
    columns={f"{name}: {key}": f"{name}, {key}" for key in ("operations", "bytes") for name in NETWORKS},
)
