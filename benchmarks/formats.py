"""How near scores in bfloat16 and in torchao's float8 come to those of the same model in float32."""

import copy
import dataclasses
from typing import Any

import lai_torch
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

from benchmarks import report
from benchmarks.models import Work, llama, mlp
from benchmarks.models import rows as part

BOUND = 0.99
"""The least correlation of scores of float8 layers; of the others what there is is said."""
SAMPLES, VALIDATION, LENGTH, CHECKED = 256, 64, 17, 64
RECIPES = ("tensorwise", "rowwise")
SCORED, PLAIN = "float8 layers, {}", "plain gradients in float8, {}"


def works() -> dict[str, Work]:
    """Return models after some steps of Adam, whose widths float8 takes (multiples of 16)."""
    torch.manual_seed(0)
    text = llama(toy=True)
    sides = [({"input_ids": ids, "use_cache": False}, ids) for ids in (drawn(SAMPLES), drawn(VALIDATION))]
    chain = mlp(64, *[128] * 5, 16, samples=SAMPLES, validation=VALIDATION)
    return {
        "language model, 200 steps": trained(
            dataclasses.replace(text, batch=sides[0], validation=sides[1]), 200
        ),
        "MLP, 20 steps": trained(chain, 20),
        "MLP, 200 steps": trained(chain, 200),
    }


def trained(work: Work, steps: int) -> Work:
    """Return a copy after some steps on its batch, whose labels an MLP learns by heart."""
    work = copy.deepcopy(work)
    optimizer = torch.optim.Adam(work.model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        work.losses(*work.batch).mean().backward()
        optimizer.step()
    return work


def drawn(samples: int) -> Tensor:
    """Return sequences that count upwards by steps of their own."""
    start, step = torch.randint(63, (samples, 1)), torch.randint(1, 6, (samples, 1))
    return (start + step * torch.arange(LENGTH)) % 63 + 1


def float8(work: Work, recipe: str) -> Work:
    """Return a copy whose linear layers train in float8, emulated where the device has none."""
    config = Float8LinearConfig.from_recipe_name(recipe)  # type: ignore[arg-type]
    config = dataclasses.replace(config, emulate=not torch.cuda.is_available())
    model = convert_to_float8_training(copy.deepcopy(work.model), config=config)
    return dataclasses.replace(work, model=model)


def cast(work: Work, kind: torch.dtype) -> Work:
    """Return a copy in another type, its inputs too."""

    def side(inputs: Any, targets: Tensor) -> tuple[Any, Tensor]:
        return inputs.to(kind) if isinstance(inputs, Tensor) else inputs, targets

    model = copy.deepcopy(work.model).to(kind)
    return dataclasses.replace(work, model=model, batch=side(*work.batch), validation=side(*work.validation))


def scores(work: Work, estimator: Any) -> Tensor:
    """Return what a curator scores the batch."""
    curator = lai_torch.Curator(work.model, work.loss, None, work.validation, estimator=estimator)
    return curator.score(*work.batch)[1].scores


def correlation(one: Tensor, other: Tensor) -> float:
    """Return Pearson's correlation."""
    return float(torch.corrcoef(torch.stack([one.double(), other.double()]))[0, 1])


def measured(work: Work) -> dict[str, dict[str, float]]:
    """Return the correlations with the float32 model's scores, by format and estimator."""
    kinds = {"lai": lai_torch.LAI(positions=work.positions), "ghost": lai_torch.Ghost()}

    def near(one: Work, reference: Work, **options: Any) -> dict[str, float]:
        return {
            name: correlation(
                scores(one, dataclasses.replace(kind, **options)),  # type: ignore[type-var]
                scores(reference, kind),
            )
            for name, kind in kinds.items()
        }

    half = cast(work, torch.bfloat16)
    found = {
        "model.bfloat16()": near(half, cast(half, torch.float32)),  # of the same parameters
        "autocast=torch.bfloat16": near(work, work, autocast=torch.bfloat16),
    }
    for recipe in RECIPES:
        rounded = float8(work, recipe)
        found[SCORED.format(recipe)] = near(rounded, work)
        checked = part(work.batch, slice(CHECKED))
        agreed = lai_torch.selfcheck(rounded.model, work.loss, *checked, float32="ghost").float32
        assert agreed is not None
        found[PLAIN.format(recipe)] = {"ghost": agreed["gradients"]}
    return found


def run() -> None:
    """Measure, print, write, and fail below the bound."""
    torch.set_num_threads(1)
    named = works()
    figures = {name: measured(named[name]) for name in track(named, "formats", console=Console(stderr=True))}
    columns = [(name, of) for of in ("lai", "ghost") for name in figures]
    lines = [
        [each, *(f"{value:.5f}" if (value := figures[name][each].get(of)) else "" for name, of in columns)]
        for each in next(iter(figures.values()))
    ]
    title = "Correlation with scores in float32"
    report.table(title, ("format", *(f"{of}, {name}" for name, of in columns)), lines)
    failed = [
        f"{name}, {SCORED.format(recipe)}, {of}: {value:.5f} < {BOUND}"
        for name, by in figures.items()
        for recipe in RECIPES
        for of, value in by[SCORED.format(recipe)].items()
        if not value >= BOUND
    ]
    report.close("formats", figures, BOUND, failed, packages=("torch", "torchao"))
