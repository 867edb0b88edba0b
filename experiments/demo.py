"""The demo: rescue a training run on digits of which 40% are labelled wrongly."""

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from experiments.figures import pictures
from experiments.harness import record as records
from experiments.harness.page import markdown
from experiments.methods import Outcome, train
from experiments.studies import tasks

INK, BLUE = pictures.INK, pictures.color_of("LAI")
LOOKS = {
    "plain": (INK, "-", "plain training"),
    "ghost": ("#009E73", "-", "Ghost"),
    "lai": (BLUE, "-", "LAI"),
    "lli": ("#E69F00", "-", "LLI"),
    "preconditioned_lai": ("#56B4E9", "--", "preconditioned LAI"),
    "calibrated_lai": (BLUE, ":", "calibrated LAI"),
    "gate_lai": ("#CC79A7", "--", "gate-corrected LAI"),
    "lai_as_printed": ("#D55E00", "-", "LAI as printed"),
    "unflipped_only": (INK, "--", "right labels only"),
    "validation_only": (INK, ":", "validation only"),
}
"""Color, line and title of methods and references, by their names in JSON."""
TITLES = {name: title for name, (*_, title) in LOOKS.items()}
REFERENCES = ("unflipped_only", "validation_only")
"""Plain training on other samples, as long: what curation could reach, and what it has to beat."""
METHODS = tuple(name for name in TITLES if name not in REFERENCES)
CLAIMED = ("ghost", "lai", "lli")
"""The methods of which the demo claims that they rescue the run."""
MIN_GAIN = 0.08
"""Accuracy above plain training that it claims of them."""
MAX_FLIPPED = 0.33
"""Share of flipped labels among kept samples below which it claims them to be; chance is 0.40."""
EPOCHS = 60
Outcomes = Mapping[str, Sequence[Outcome]]
"""By method, one a seed."""


def run(epochs: int, seeds: int) -> dict[str, list[Outcome]]:
    """Train every method once per seed, seed after seed, so that slow moments hit all alike."""
    starts = {name: title.removesuffix(" training") for name, title in TITLES.items()}
    for name in METHODS:  # lazy imports and compilations are in nobody's seconds
        train(starts[name], tasks.flipped(0, epochs=1), 0)
    found: dict[str, list[Outcome]] = {name: [] for name in starts}
    every = [(seed, name) for seed in range(seeds) for name in starts]
    for seed, name in tqdm(every, desc="demo", unit="run", disable=None):
        found[name].append(train(starts[name], tasks.flipped(seed, epochs=epochs), seed))
    return found


def accuracies(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Summarise the test accuracy of one method's runs.

    `accuracy_*` is after the last epoch; `early_stopped_*` after the first epoch of the highest validation
    accuracy. Deviations are those between seeds; 0 for a single one.
    """
    last, stopped = [of.test[-1] for of in outcomes], [of.stopped for of in outcomes]
    found: dict[str, Any] = {}
    for name, values in (("accuracy", last), ("early_stopped", stopped)):
        found[f"{name}_mean"] = float(np.mean(values))
        found[f"{name}_std"] = float(np.std(values, ddof=min(1, len(values) - 1)))
    return found | {"accuracy_of_each_seed": last}


def summarize(outcomes: Outcomes) -> dict[str, dict[str, Any]]:
    """Summarise all methods: of nothing kept no share is flipped (None); seconds are means per run."""
    found = {}
    seconds = {name: float(np.mean([of.run.meter.seconds for of in each])) for name, each in outcomes.items()}
    for name, each in outcomes.items():
        kept = sum(float(of.often.sum()) for of in each)
        flipped = sum(float((of.often * of.run.wrong).sum()) for of in each)
        found[name] = {
            **accuracies(each),
            "kept_share": kept / sum(of.often.numel() for of in each),
            "flipped_share_of_kept": flipped / kept if kept else None,
            "seconds": seconds[name],
            "seconds_ratio": seconds[name] / seconds["plain"],
        }
    return found


def claims(methods: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the demo claims: the statement, the value found, its bound, and whether it holds."""
    found = []
    for name in CLAIMED:
        gain = methods[name]["accuracy_mean"] - methods["plain"]["accuracy_mean"]
        share = methods[name]["flipped_share_of_kept"]
        for text, value, bound, holds in (
            ("accuracy above plain, at least", gain, MIN_GAIN, gain >= MIN_GAIN),
            ("flipped share of kept, below", share, MAX_FLIPPED, share is not None and share < MAX_FLIPPED),
        ):
            found.append({"claim": f"{name}: {text}", "value": value, "bound": bound, "holds": holds})
    return found


def collect(outcomes: Outcomes) -> dict[str, Any]:
    """Return what `results.json` holds."""
    methods = summarize({name: outcomes[name] for name in METHODS})
    task = outcomes["plain"][0].run.task
    return {
        "methods": methods,
        "references": {name: accuracies(outcomes[name]) for name in REFERENCES},
        "claims": claims(methods),
        "settings": {
            "widths": tasks.WIDTHS,
            "learning_rate": task.learning_rate,
            "batch": task.batch,
            "epochs": task.epochs,
            "optimizer": "Adam",
            "seeds": len(outcomes["plain"]),
            "n_training": len(task.training[1]),
            "n_validation": len(task.validation[1]),
            "n_test": len(task.test[1]),
            "flipped_share": float(task.wrong.mean()),
            "machine": platform.machine(),
            "versions": {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
    }


def write(outcomes: Outcomes, results: dict[str, Any], out: Path) -> None:
    """Write `results.json`, and the picture with its numbers beside it."""
    out.mkdir(parents=True, exist_ok=True)
    accuracy = {}
    for name, each in outcomes.items():
        curves = [of.test for of in each]
        std = np.std(curves, axis=0, ddof=min(1, len(curves) - 1))  # 0 for a single seed
        accuracy[name] = {"mean": np.mean(curves, axis=0).tolist(), "std": std.tolist()}
    for name, found in {"results": results, "accuracy": accuracy}.items():
        text = json.dumps(found, indent=1, allow_nan=False)
        (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    draw(accuracy).savefig(out / "accuracy.png", dpi=150)


def draw(numbers: dict[str, Any] | None = None) -> Figure:
    """Draw accuracy over epochs, by default the committed one: mean and band of one deviation, by method."""
    numbers = numbers or records.read(records.RESULTS / "demo" / "accuracy.json")
    figure, (axes,) = pictures.figure(height=4.4)
    for name in sorted(numbers, key=lambda name: -numbers[name]["mean"][-1]):
        mean, std = (np.asarray(numbers[name][key]) for key in ("mean", "std"))
        epochs, (color, style, title) = np.arange(1, len(mean) + 1), LOOKS[name]
        axes.plot(epochs, mean, style, color=color, lw=1.6, label=f"{title}  {100 * mean[-1]:.1f}%")
        axes.fill_between(epochs, mean - std, mean + std, color=color, alpha=0.13, lw=0)
    pictures.label(axes, ylim=(0, 1), xlabel="epoch", ylabel="accuracy on clean test images")
    pictures.legend(axes, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return accuracies and shares in percent, as far as a method has them."""
    found = [
        f"{_percent(row[f'{name}_mean'])} ± {_percent(row[f'{name}_std'])}"
        for name in ("accuracy", "early_stopped")
    ]
    return found + [_percent(row[key]) for key in ("kept_share", "flipped_share_of_kept") if key in row]


def readme_table(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """Return README's table of the methods."""
    head = (
        "method", "accuracy after the last epoch", "at the best validation epoch", "samples kept",
        "flipped labels among the kept",
    )  # fmt: skip
    rows = [[TITLES[name], *(f"{cell} %" for cell in cells(methods[name]))] for name in METHODS]
    return markdown(head, rows)


def show(results: dict[str, Any], title: str, out: Path) -> None:
    """Print the methods, plain training on other samples, and what became of the claims."""
    head = "", "accuracy", "stopped early", "kept", "flipped of kept", "seconds", "times plain"
    rows = []
    for name, row in results["methods"].items():
        taken = f"{row['seconds']:.2f}", f"{row['seconds_ratio']:.1f}"
        rows.append([TITLES[name].ljust(18), *cells(row), *taken])
    for name, row in results["references"].items():
        rows.append([TITLES[name].ljust(18), *cells(row), "", "", "", ""])
    click.echo(f"{title}\n\n{markdown(head, rows)}\n")
    click.echo("accuracy on 473 test images, mean ± deviation over seeds, after the last epoch;")
    click.echo("'stopped early': after the epoch of the highest validation accuracy\n")
    for claim in results["claims"]:
        verdict = "holds" if claim["holds"] else "DOES NOT HOLD"
        found, bound = (_percent(claim[key]) for key in ("value", "bound"))
        click.echo(f"{claim['claim']} {bound}: {found}, {verdict}")
    click.echo(f"figures and picture: {out}/")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


POSITIVE = click.IntRange(min=1)
FOLDER = click.Path(file_okay=False, path_type=Path)
DEFAULT = "Where results go.  [default: build/noisy-labels]"


@click.command("noisy-labels")
@click.option("--seeds", type=POSITIVE, default=5, show_default=True, help="How many runs a method.")
@click.option("--epochs", type=POSITIVE, default=EPOCHS, show_default=True, help="Passes over the data.")
@click.option("--out", type=FOLDER, help=DEFAULT)
def noisy_labels(seeds: int, epochs: int, out: Path | None) -> None:
    """Rescue a training run on handwritten digits of which 40% are labelled wrongly.

    Exits with 1 if Ghost, LAI and LLI are not each at least 8 points of accuracy above plain
    training, or if 0.33 or more of what one of them keeps is flipped.
    """
    out = out or Path("build", "noisy-labels")
    outcomes = run(epochs, seeds)
    results = collect(outcomes)
    write(outcomes, results, out)
    show(results, f"Digits, 40% of training labels flipped; {seeds} seeds, {epochs} epochs", out)
    if not all(claim["holds"] for claim in results["claims"]):
        sys.exit(1)
