"""Pre-training with a batch as its own validation set (the paper's Table 1), on text with bad sequences."""

from collections.abc import Callable
from functools import partial
from typing import Any

import lai_torch
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import lai_core as lai
from experiments.data import prose
from experiments.data.digits import Batch
from experiments.figures import pictures
from experiments.harness.statistics import Methods, compared, judged
from experiments.harness.study import Found, Unit, study_of
from experiments.methods.base import descend, lowest
from experiments.networks import GPT, next_loss

NULL, ORACLE = "plain", "clean sequences only"
CONTEXT, BATCH, OPEN = 32, 32, "not compared"
LICENCE = "Copyright (c) 2001 Python Software Foundation; All Rights Reserved"
SKETCHED = lai_torch.LAI(positions="tokens", sketch=16)
CURATED: dict[str, tuple[Any, Any, int]] = {
    "LAI, as printed": (lai_torch.LAI(positions="flatten"), "batch+self", 1),
    "LAI, self left out": (SKETCHED, "batch", 1),
    "Ghost, self left out": ("ghost", "batch", 1),
    "LAI, 32 clean sequences": (SKETCHED, None, 4),
    "Ghost, 32 clean sequences": ("ghost", None, 4),
}
CHOSEN: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "random, 70%": lambda losses, random: lowest(torch.rand(len(losses), generator=random), 0.7),
    "small loss, 70%": lambda losses, random: lowest(losses, 0.7),
    "high loss, 70%": lambda losses, random: lowest(-losses, 0.7),
}
METHODS = (NULL, ORACLE, *CHOSEN, *CURATED)


def config(size: str) -> dict[str, Any]:
    if size == "quick":
        return {"seeds": [0, 1], "steps": 6, "bad": 0.3}
    return {"seeds": list(range(5)), "steps": 150, "bad": 0.3}


def units(config: dict[str, Any]) -> list[Unit]:
    """Return one unit a seed and method."""
    return [(seed, partial(_run, name, seed, config)) for seed in config["seeds"] for name in METHODS]


def corpus(seed: int, bad: float, count: int = 4000) -> tuple[Tensor, np.ndarray, Tensor, Tensor]:
    """Return training sequences, which are bad, 32 clean ones and 300 to test on, from other places.

    A third of the bad ones are shuffled characters, a third source code, a third copies of a line.
    """
    random, text = np.random.default_rng((seed, 3)), prose.prose()
    cut = len(text) * 8 // 10
    draw = partial(prose.windows, length=CONTEXT + 1, random=random)
    training, code = draw(text[:cut], count), draw(prose.code(), count)
    held = draw(text[cut:], 332)
    kind = np.where(random.random(count) < bad, random.integers(1, 4, count), 0)
    training[kind == 1] = random.permuted(training[kind == 1], axis=1)
    training[kind == 2] = code[kind == 2]
    training[kind == 3] = prose.numbers(LICENCE)[: CONTEXT + 1]
    return torch.from_numpy(training), kind > 0, torch.from_numpy(held[:32]), torch.from_numpy(held[32:])


def pair(ids: Tensor) -> Batch:
    """Return inputs and the characters that follow."""
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def _run(name: str, seed: int, config: dict[str, Any]) -> Found:
    """Train, and say how well the clean test text is predicted and what was kept."""
    torch.set_num_threads(1)
    training, bad, clean, test = corpus(seed, config["bad"])
    model = GPT(len(prose.alphabet()) + 1, CONTEXT, seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    order, random = np.random.default_rng((seed, 4)), torch.Generator().manual_seed(seed)
    pool = np.flatnonzero(~bad) if name == ORACLE else np.arange(len(bad))
    curator = None
    if name in CURATED:
        estimator, validation, refresh = CURATED[name]
        held = pair(clean) if validation is None else validation
        options: Any = {"estimator": estimator, "refresh": refresh, "policy": lai.keep_positive}
        curator = lai_torch.Curator(model, next_loss, optimizer, held, **options)
    kept = np.zeros((2, 2))  # of clean and bad sequences: how many were seen, and how many were kept
    for _ in range(config["steps"]):
        rows = pool[order.integers(0, len(pool), BATCH)]
        batch = pair(training[rows])
        weights = torch.full((BATCH,), 1.0 / BATCH)
        if curator is not None:
            weights = curator.step(*batch).weights
        if name in CHOSEN:
            with torch.no_grad():
                weights = CHOSEN[name](next_loss(model(batch[0]), batch[1]), random)
        if curator is None:
            descend(model, optimizer, batch, weights, next_loss)
        for group, of in enumerate((~bad[rows], bad[rows])):
            kept[group] += of.sum(), (weights.numpy()[of] > 0).sum()
    with torch.no_grad():
        inputs, targets = pair(test)
        loss = float(next_loss(model(inputs), targets).mean())
    found = {"test loss": loss, "kept": kept[:, 1].sum() / kept[:, 0].sum()}
    found["kept of clean"] = kept[0, 1] / kept[0, 0]
    if name != ORACLE:
        found["kept of bad"] = kept[1, 1] / kept[1, 0]
    return {name: {key: float(value) for key, value in found.items()}}


def claims(methods: Methods) -> dict[str, dict[str, Any]]:
    """Judge Table 1: that samples are removed, and that the loss falls."""
    removed = [1.0 - kept for kept in methods["LAI, as printed"]["kept"]["values"]]
    found = {
        "as printed, at least one sequence in a thousand is removed": judged(
            removed, paper="0.0008 (135 of 160,000)", at_least=0.001
        )
    }
    printed = {"LAI, as printed": "-0.0000006 in log perplexity (Table 1)"}
    pairs = [("clean sequences only: test loss below plain", ORACLE, NULL, OPEN)]
    for name in CURATED:
        pairs.append((f"{name}: test loss below plain", name, NULL, printed.get(name, OPEN)))
        pairs.append((f"{name}: test loss below random dropping", name, "random, 70%", OPEN))
    for text, one, other, paper in pairs:
        found[text] = compared(methods, one, other, "test loss", paper=paper, sign=-1)
    return found


def draw(record: dict[str, Any]) -> dict[str, Figure]:
    figure, (axes,) = pictures.figure(height=3.2)
    pictures.intervals(axes, {name: each["test loss"] for name, each in record["methods"].items()})
    pictures.label(axes, xlabel="loss on clean test text, after equal steps")
    return {"loss": figure}


STUDY = study_of(
    __name__,
    name="pretraining",
    title="Pre-training",
    about="Table 1",
    columns={key: key for key in ("test loss", "kept", "kept of clean", "kept of bad")},
    data={"prose": prose.digest},
)
