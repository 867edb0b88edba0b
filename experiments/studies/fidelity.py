"""Whether cheap scores rank samples by what the step on them really does (the paper's Figure 1)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import lai_torch
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import lai_core as lai
from experiments.data import prose
from experiments.data.digits import Batch, noisy_digits
from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared, judged
from experiments.harness.study import Found, Unit, study_of
from experiments.methods.base import LOSS, descend
from experiments.networks import GPT, chain, convolutional, next_loss
from experiments.studies import figure_one
from experiments.studies.figure_one import Game, correlation, sample_gradients

NULL, ORACLE = "random", "Shapley values"
CONTEXT = 32
Score = dict[str, Tensor]


@dataclass(frozen=True)
class Setting:
    """A network, its data, and the learning rates that train it."""

    network: Callable[[int], nn.Module]
    loss: Callable[..., Tensor]
    positions: str
    rates: Mapping[str, float]
    players: int
    enumerated: bool


def perceptron(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return chain((64, 48, 48, 48, 10))


def gpt(seed: int) -> nn.Module:
    return GPT(len(prose.alphabet()) + 1, CONTEXT, seed=seed)


SETTINGS = {
    "MLP": Setting(perceptron, LOSS, "tokens", {"SGD": 0.1, "Adam": 0.003}, 8, True),
    "conv": Setting(convolutional, LOSS, "mean", {"SGD": 0.1, "Adam": 0.003}, 8, True),
    "GPT": Setting(gpt, next_loss, "tokens", {"SGD": 0.3, "Adam": 0.003}, 10, False),
}
PAIRS = (
    ("LAI's correlation is above Ghost's", "LAI", "Ghost", "0.96 against 0.90 (Figure 1)"),
    ("LAI's correlation is above LLI's", "LAI", "LLI", "not compared"),
    ("LAI's correlation is above own loss's", "LAI", "own loss", "not compared"),
    ("preconditioning raises LAI's correlation", "preconditioned LAI", "LAI", "mends it for Adam (appendix)"),
)
PLACES = [(name, kind) for name in SETTINGS for kind in ("SGD", "Adam")]


def config(size: str) -> dict[str, Any]:
    """Return the settings: factors multiply the learning rate that the network is trained with."""
    if size == "quick":
        return {"seeds": [0, 1], "factors": [1.0], "checkpoints": [20], "pairs": 2, "repeats": 1}
    sizes = {"factors": [0.1, 1.0, 10.0], "checkpoints": [20, 200], "pairs": 3, "repeats": 3}
    return {"seeds": list(range(5))} | sizes


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed, network and optimizer, and one of Figure 1's own setting."""
    found: list[Unit] = []
    for seed in config["seeds"]:
        for name, kind in PLACES:
            found.append((seed, partial(_run, name, kind, seed, config)))
        found.append((seed, partial(figure_one.small, gpt, seed, config)))
    return found


def data(name: str, seed: int) -> tuple[Batch, Batch]:
    """Return training samples, of the digits 40% labelled wrongly, and clean validation samples."""
    if name == "GPT":
        ids = prose.windows(prose.prose(), 1500, CONTEXT + 1, np.random.default_rng((seed, 3)))
        both = torch.from_numpy(ids[:, :-1].copy()), torch.from_numpy(ids[:, 1:].copy())
        return (both[0][24:], both[1][24:]), (both[0][:24], both[1][:24])
    (inputs, labels), (x, y), *_ = noisy_digits(seed)
    return (inputs.double(), labels), (x[:100].double(), y[:100])


def _run(name: str, kind: str, seed: int, config: dict[str, Any]) -> Found:
    """Train, and compare at every checkpoint and learning rate; means over them."""
    torch.set_num_threads(1)
    setting, random = SETTINGS[name], np.random.default_rng((seed, 5))
    training, held = data(name, seed)
    model = setting.network(seed).double()
    rate = setting.rates[kind]
    optimizer = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[kind](model.parameters(), lr=rate)
    rows: dict[str, dict[str, list[float]]] = {}

    def drawn(count: int) -> Batch:
        index = torch.from_numpy(random.integers(0, len(training[1]), count))
        return training[0][index], training[1][index]

    for step in range(max(config["checkpoints"]) + 1):
        for _ in range(config["repeats"] if step in config["checkpoints"] else 0):
            batch = drawn(setting.players)
            first = first_order(setting, model, held, batch, drawn(64), random)
            for factor in config["factors"]:
                optimizer.param_groups[0]["lr"] = rate * factor
                game = Game(model, setting.loss, held, batch, optimizer)
                scores = first | along_the_step(setting, model, held, batch, optimizer)
                place = f"{name}, {kind}, rate x{factor:g}"
                for method, value in _compared(scores, game, setting, config, random).items():
                    for key in ("Pearson", f"Pearson after {step} steps"):
                        rows.setdefault(method, {}).setdefault(f"{place}: {key}", []).append(value)
        optimizer.param_groups[0]["lr"] = rate
        descend(model, optimizer, drawn(32), torch.full((32,), 1 / 32), setting.loss)
    return figure_one.means(rows)


def _compared(
    scores: Score, game: Game, setting: Setting, config: dict[str, Any], random: np.random.Generator
) -> dict[str, float]:
    """Correlate all scores with the true values; the oracle is half of the draws against the other half."""
    if setting.enumerated:
        truth = game.exact()
        oracle = 1.0
    else:
        draws = game.sampled(config["pairs"], random)
        truth, halves = draws.mean(0), [draws[start::2].mean(0) for start in (0, 1)]
        oracle = correlation(*halves)
    found = {name: correlation(value.detach().double().numpy(), truth) for name, value in scores.items()}
    return found | {ORACLE: oracle}


def first_order(
    setting: Setting, model: nn.Module, held: Batch, batch: Batch, others: Batch, random: np.random.Generator
) -> Score:
    """Return the scores that do not know the step's size."""
    loss, where = setting.loss, setting.positions
    sides = [lai_torch.trace(model, loss, *each, gradients="all") for each in (held, batch)]
    moments = lai_torch.trace(model, loss, *others)
    moment = lai.update_second_moment(None, moments.layers[-1].output_gradients)
    gradients = sample_gradients(model, loss, batch)
    calibrated = lai_torch.Curator(
        model, loss, None, held, estimator=lai_torch.CalibratedLAI(positions=where)
    )
    with torch.no_grad():
        own = loss(model(batch[0]), batch[1])
    found = {
        NULL: torch.from_numpy(random.normal(size=len(batch[1]))),
        "own loss": own,
        "gradient norm": sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt(),
        "LLI": lai.lli_scores(*sides),
        "LAI": lai.lai_scores(*sides, positions=where),
        "preconditioned LAI": lai.preconditioned_lai_scores(*sides, moment, positions=where),
        "Ghost": lai.ghost_scores(*sides),
    }
    found["calibrated LAI"] = calibrated.score(*batch)[1].scores
    if setting.network is perceptron:
        gated = lai_torch.Curator(model, loss, None, held, estimator="gate_lai")
        found["gate LAI"] = gated.score(*batch)[1].scores
    return found


def along_the_step(
    setting: Setting, model: nn.Module, held: Batch, batch: Batch, optimizer: torch.optim.Optimizer
) -> Score:
    """Return the scores that know it: of SGD's step, and of the optimizer's own."""
    of = partial(lai_torch.exact_scores, model, setting.loss, held, batch)
    return {
        "derivative of the step": of(optimizer=optimizer),
        "midpoint": of(at="midpoint", learning_rate=optimizer.param_groups[0]["lr"]),
        "midpoint of the optimizer": of(at="midpoint", optimizer=optimizer),
    }


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge Figure 1's claims against the true values, and say what explains it."""
    found = {}
    for name, kind in PLACES:
        place = f"{name}, {kind}"
        metric, small = (f"{name}, {of}: Pearson" for of in (f"{kind}, rate x1", "SGD, rate x0.1"))
        if metric in methods[NULL]:
            for text, one, other, paper in PAIRS:
                found[f"{place}: {text}"] = compared(methods, one, other, metric, paper=paper)
            found[f"{place}: the optimizer's midpoint correlates above 0.9"] = judged(
                methods["midpoint of the optimizer"][metric]["values"],
                paper="ours",
                at_least=0.9,
                metric=metric,
            )
        if kind == "Adam" and small in methods["Ghost"]:
            found[f"{name}, SGD: at a tenth of the step Ghost correlates above 0.95"] = judged(
                methods["Ghost"][small]["values"],
                paper="Ghost accumulates noise",
                at_least=0.95,
                metric=small,
            )
    return found | figure_one.claims(methods)


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    """Draw the correlation at the rate of training: methods over settings."""
    methods, text = record["methods"], "correlation with Shapley values"
    names = ("own loss", "LLI", "LAI", "Ghost", "derivative of the step", "midpoint of the optimizer")
    places = [f"{name}, {kind}" for name, kind in PLACES]
    figure, (axes,) = pictures.figure(height=3.6)
    for shift, (method, marker) in enumerate(zip(names, "os^Dv*", strict=True)):
        rows = [methods[method][f"{place}, rate x1: Pearson"] for place in places]
        at, color = np.arange(len(places)) + 0.1 * (shift - 3), pictures.color_of(method.split(" of the")[0])
        pictures.points(axes, at, rows, marker, color=color, label=method)
    axes.set_xticks(range(len(places)), places, fontsize=8)
    pictures.label(axes, ylabel=text, ylim=(-1.0, 1.05))
    pictures.legend(axes, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return {"correlation": figure}


STUDY = study_of(
    __name__,
    name="fidelity",
    title="Fidelity",
    about="Figure 1",
    columns={
        f"{name}, {kind}, rate x{factor}: Pearson": f"{name}, {kind}, x{factor}"
        for name, kind in PLACES
        for factor in ("0.1", "1", "10")
    },
    data={"prose": prose.digest},
)
