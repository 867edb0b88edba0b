"""The command: run the study, show the table, write the figures, judge the claims."""

import json
import platform
import sys
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from experiments.noisy_labels import figures, pictures
from experiments.noisy_labels.recipe import Recipe
from experiments.noisy_labels.results import accuracies, claims, summarize
from experiments.noisy_labels.study import BACKENDS, Study, learner_of, n_epochs, run_study
from experiments.noisy_labels.table import claims_table, methods_table


@click.command("noisy-labels")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="How many runs a method."
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=Recipe.epochs,
    show_default=True,
    help="Passes over the data.",
)
@click.option(
    "--backend", type=click.Choice(BACKENDS), default="torch", show_default=True, help="What trains."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results go.  [default: build/noisy-labels; for jax build/noisy-labels-jax]",
)
def noisy_labels(seeds: int, epochs: int, backend: str, out: Path | None) -> None:
    """Rescue a training run on handwritten digits of which 40% are labelled wrongly.

    Exits with 1 if Ghost, LAI and LLI are not each at least 8 points of accuracy above plain
    training, or if 0.33 or more of what one of them keeps is flipped.
    """
    out = out or Path("build", "noisy-labels" if backend == "torch" else f"noisy-labels-{backend}")
    console = Console()
    recipe = replace(Recipe(), epochs=epochs)
    study = _with_progress(console, backend, recipe, seeds)
    results = collect(study, backend)
    write(study, results, out)
    title = f"Digits, 40% of training labels flipped; {backend}, {seeds} seeds, {epochs} epochs"
    console.print(methods_table(results["methods"], results["references"], title))
    console.print(
        "accuracy on 473 test images, mean ± deviation over seeds, after the last epoch;", style="dim"
    )
    console.print("'stopped early': after the epoch of the highest validation accuracy", style="dim")
    console.print(claims_table(results["claims"]))
    console.print(f"figures and pictures: {out}/")
    if not all(claim["holds"] for claim in results["claims"]):
        sys.exit(1)


def collect(study: Study, backend: str) -> dict[str, Any]:
    """Return what `results.json` holds."""
    methods = summarize(study.methods, [digits.flipped for digits in study.data])
    return {
        "methods": methods,
        "references": {name: accuracies(runs) for name, runs in study.references.items()},
        "claims": claims(methods),
        "settings": {
            **asdict(study.recipe),
            "optimizer": "Adam",
            "backend": backend,
            "seeds": len(study.data),
            "n_training": len(study.data[0].training),
            "n_validation": len(study.data[0].validation),
            "n_test": len(study.data[0].test),
            "flipped_share": float(study.data[0].flipped.mean()),
            "machine": platform.machine(),
            "versions": {name: version(name) for name in (backend, "numpy", "scikit-learn")},
        },
    }


def write(study: Study, results: dict[str, Any], out: Path | None) -> None:
    """Write `results.json`, and each picture with its numbers beside it."""
    out.mkdir(parents=True, exist_ok=True)
    _dump(results, out / "results.json")
    run, digits = study.methods["lai"][0], study.data[0]
    found = {
        "accuracy": figures.accuracy_over_epochs(study.methods | study.references),
        "scores": figures.score_distributions(study.methods["lai"], study.data),
        "participation": figures.participation(run, digits),
        "samples": figures.single_samples(run, digits),
        "lowest": figures.lowest_scored(run, digits),
    }
    for name, numbers in found.items():
        _dump(numbers, out / f"{name}.json")
        pictures.DRAW[name](numbers).savefig(out / f"{name}.png", dpi=150)


def _with_progress(console: Console, backend: str, recipe: Recipe, seeds: int) -> Study:
    columns = (
        TextColumn("{task.description:<42}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"starting {backend}", total=n_epochs(recipe, seeds))
        return run_study(
            learner_of(backend),
            recipe,
            seeds,
            lambda text: progress.update(task, advance=1, description=text),
        )


def _dump(numbers: Any, path: Path) -> None:
    """Write strict JSON; a score that is not a number becomes null."""
    path.write_text(json.dumps(_plain(numbers), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _plain(numbers: Any) -> Any:
    if isinstance(numbers, dict):
        return {key: _plain(value) for key, value in numbers.items()}
    if isinstance(numbers, list | tuple):
        return [_plain(value) for value in numbers]
    return None if isinstance(numbers, float) and numbers != numbers else numbers
