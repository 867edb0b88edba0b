"""The demo's pictures: the numbers of each, as JSON can hold them, and how they are drawn."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.data.digits import NoisyDigits
from experiments.methods import Outcome

KEPT = Path(__file__).parent / "kept"
"""The numbers of a run, of which the site's pictures are drawn."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
N_BINS = 60
RIGHT, FLIPPED = "#0072B2", "#D55E00"  # Okabe and Ito: told apart by colour-blind eyes
QUIET = "#7f7f7f"  # read on white and on a dark page
LOOKS = {
    "plain": (QUIET, "-", "plain training"),
    "ghost": ("#009E73", "-", "Ghost"),
    "lai": ("#0072B2", "-", "LAI"),
    "lli": ("#E69F00", "-", "LLI"),
    "preconditioned_lai": ("#56B4E9", "--", "preconditioned LAI"),
    "calibrated_lai": ("#0072B2", ":", "calibrated LAI"),
    "gate_lai": ("#CC79A7", "--", "gate-corrected LAI"),
    "lai_as_printed": ("#D55E00", "-", "LAI as printed"),
    "unflipped_only": (QUIET, "--", "right labels only"),
    "validation_only": (QUIET, ":", "validation only"),
}
AT_CHANCE = 0.2
"""Accuracy below which a method has its own panel: one digit in ten is right by chance."""
KINDS = (("right", RIGHT, "right label"), ("flipped", FLIPPED, "flipped label"))


def numbers(
    outcomes: Mapping[str, Sequence[Outcome]], data: Sequence[NoisyDigits]
) -> Iterator[tuple[str, Any]]:
    """Yield the numbers of each picture, by name: of all methods, of LAI, of LAI's first run."""
    yield "accuracy", {name: over_epochs([of.test for of in each]) for name, each in outcomes.items()}
    yield "scores", score_distributions([of.scores.numpy() for of in outcomes["lai"]], data)
    first = outcomes["lai"][0]
    scores, kept = first.scores.numpy(), first.often.numpy() > 0
    yield "participation", participation(kept, data[0].wrong.numpy())
    yield "samples", single_samples(scores, kept, data[0])
    yield "lowest", lowest_scored(scores, data[0])


def over_epochs(curves: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Return the mean and the deviation over seeds after each epoch."""
    std = np.std(curves, axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(curves[0]))
    return {"mean": np.mean(curves, axis=0).tolist(), "std": std.tolist()}


def score_distributions(runs: Sequence[np.ndarray], data: Sequence[NoisyDigits]) -> dict[str, Any]:
    """Return quantiles of the scores of flipped and of other samples, over epochs; all seeds together.

    With histograms at the first, a middle and the last epoch, over bins that are even in
    `arcsinh(score / scale)`: scores span orders of magnitude and have either sign.
    """
    scores, flipped = np.concatenate(runs, axis=1), np.concatenate([digits.wrong for digits in data])
    finite, groups = np.isfinite(scores), {"right": ~flipped, "flipped": flipped}
    magnitudes = np.abs(scores[finite])
    scale = float(np.median(magnitudes)) / 10 if magnitudes.any() else 1.0
    largest = float(magnitudes.max(initial=scale))
    edge = np.arcsinh(largest / scale)
    edges = scale * np.sinh(np.linspace(-edge, edge, N_BINS + 1))
    edges[0], edges[-1] = -largest, largest  # else rounding leaves the largest score outside of the bins

    def histogram(epoch: int, group: np.ndarray) -> list[int]:
        return np.histogram(scores[epoch, group & finite[epoch]], edges)[0].tolist()

    return {
        "scale": scale,
        "quantiles": list(QUANTILES),
        "over_epochs": {
            name: np.nanquantile(scores[:, group], QUANTILES, axis=1).tolist()
            for name, group in groups.items()
        },
        "bin_edges": edges.tolist(),
        "histograms": {
            str(epoch + 1): {name: histogram(epoch, group) for name, group in groups.items()}
            for epoch in sorted({0, len(scores) // 2, len(scores) - 1})
        },
    }


def participation(kept: np.ndarray, flipped: np.ndarray) -> dict[str, Any]:
    """Return which sample took part in which epoch: one string of 0 and 1 a sample.

    Samples with right labels first, then flipped ones, each sorted by how often they took part.
    """
    order = np.lexsort((-kept.sum(axis=0), flipped))
    rows = ["".join("01"[int(part)] for part in kept[:, sample]) for sample in order]
    return {"sample": order.tolist(), "flipped": flipped[order].tolist(), "epochs": rows}


def single_samples(scores: np.ndarray, kept: np.ndarray, data: NoisyDigits) -> list[dict[str, Any]]:
    """Return scores over epochs of three samples with right and three with flipped labels.

    Of each kind the one at the 10th, 50th and 90th percentile of how often they took part.
    """
    often, tracks = kept.sum(axis=0), []
    for flipped in (False, True):
        members = np.flatnonzero(data.wrong.numpy() == flipped)
        ranked = members[np.argsort(often[members], kind="stable")]
        for percentile in (10, 50, 90):
            sample = int(ranked[(len(ranked) - 1) * percentile // 100])
            track = {"scores": scores[:, sample].tolist(), "kept": kept[:, sample].tolist()}
            tracks.append({**_portrait(sample, data), "percentile": percentile, **track})
    return tracks


def lowest_scored(scores: np.ndarray, data: NoisyDigits, count: int = 32) -> list[dict[str, Any]]:
    """Return the samples with the lowest mean rank of score within their epoch, lowest first."""
    known = np.where(np.isfinite(scores), scores, np.inf)
    ranks = known.argsort(axis=1).argsort(axis=1).mean(axis=0) / max(scores.shape[1] - 1, 1)
    lowest = ranks.argsort(kind="stable")[:count]
    return [{**_portrait(int(sample), data), "mean_rank": float(ranks[sample])} for sample in lowest]


def _portrait(sample: int, data: NoisyDigits) -> dict[str, Any]:
    """Return which sample it is, what it shows and what it is said to show."""
    return {
        "sample": sample,
        "digits_row": int(data.indices[0][sample]),
        "given_label": int(data.training[1][sample]),
        "true_label": int(data.true_labels[sample]),
        "pixels": data.training[0][sample].tolist(),
    }


def draw_accuracy(numbers: dict[str, Any]) -> Figure:
    """Draw accuracy over epochs: mean and band of one deviation, by method; the empty middle left out."""
    figure = Figure(figsize=(9.5, 6), layout="constrained")
    rows = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for name in sorted(numbers, key=lambda name: -numbers[name]["mean"][-1]):
        mean, std = (np.asarray(numbers[name][key]) for key in ("mean", "std"))
        epochs = np.arange(1, len(mean) + 1)
        color, style, title = LOOKS[name]
        for axes in rows:
            label = f"{title}  {100 * mean[-1]:.1f}%" if axes is rows[0] else None
            axes.plot(epochs, mean, style, color=color, lw=1.8, label=label)
            axes.fill_between(epochs, mean - std, mean + std, color=color, alpha=0.13, lw=0)
    lowest = min((of["mean"][-1] for of in numbers.values() if of["mean"][-1] > AT_CHANCE), default=AT_CHANCE)
    bottom = max(math.floor(10 * lowest - 1) / 10, AT_CHANCE)
    rows[0].set(ylim=(bottom, 1), ylabel="accuracy on clean test images")
    rows[1].set(ylim=(0, AT_CHANCE), xlim=(1, max(len(mean), 2)), xlabel="epoch")
    for axes in rows:
        axes.grid(alpha=0.25)
        _bare(axes)
    figure.legend(loc="outside right center", frameon=False, title="after the last epoch", alignment="left")
    figure.suptitle("Digits with 40% wrong training labels: accuracy over epochs", x=0.01, ha="left")
    return figure


def draw_scores(numbers: dict[str, Any]) -> Figure:
    """Draw the scores of flipped and other samples: quantiles over epochs, histograms at three of them."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.2, 1))
    row = above.subplots(1, 2, sharey=True)
    for axes, (name, color, title) in zip(row, KINDS, strict=True):
        low, lower, median, upper, high = np.asarray(numbers["over_epochs"][name])
        epochs = np.arange(1, len(median) + 1)
        axes.fill_between(epochs, low, high, color=color, alpha=0.2, lw=0, label="90% of them")
        axes.fill_between(epochs, lower, upper, color=color, alpha=0.4, lw=0, label="half of them")
        axes.plot(epochs, median, color=color, lw=2, label="median")
        axes.axhline(0, color=QUIET, lw=0.8)
        axes.set(xlabel="epoch", xlim=(1, max(len(epochs), 2)))
        axes.set_title(title, loc="left", color=color)
        axes.legend(loc="lower right" if name == "right" else "upper right", ncols=3, fontsize=8)
        _bare(axes)
    edge = numbers["bin_edges"][-1]
    _signed(row[0], "y", numbers["scale"], edge)
    row[0].set_ylabel("LAI score (positive helps)")
    figure.suptitle("A  The scores of samples with right and with flipped labels", x=0.01, ha="left")
    _draw_histograms(below.subplots(1, len(numbers["histograms"]), sharey=True, squeeze=False)[0], numbers)
    return figure


def _draw_histograms(row: Sequence[Axes], numbers: dict[str, Any]) -> None:
    edges = np.asarray(numbers["bin_edges"])
    for axes, (epoch, counts) in zip(row, numbers["histograms"].items(), strict=True):
        for name, color, _ in KINDS:
            share = np.asarray(counts[name]) / max(sum(counts[name]), 1)
            axes.stairs(share, edges, fill=True, color=color, alpha=0.35)
            axes.stairs(share, edges, color=color, lw=1.2)
        axes.axvline(0, color=QUIET, lw=0.8)
        _signed(axes, "x", numbers["scale"], edges[-1])
        axes.set(title=f"epoch {epoch}", xlabel="score")
        _bare(axes)
    row[0].set_ylabel("share of its kind")


def draw_participation(numbers: dict[str, Any]) -> Figure:
    """Draw which sample took part in which epoch, samples with right labels above flipped ones."""
    took_part = np.array([list(row) for row in numbers["epochs"]]) == "1"
    flipped = np.asarray(numbers["flipped"])
    figure = Figure(figsize=(9, 8), layout="constrained")
    rows = figure.subplots(2, 1, sharex=True, height_ratios=(max((~flipped).sum(), 1), max(flipped.sum(), 1)))
    n_epochs = took_part.shape[1]
    for axes, group, (_, color, name) in zip(rows, (~flipped, flipped), KINDS, strict=True):
        shown = took_part[group]
        image = np.zeros((*shown.shape, 4))  # nothing is drawn where a sample was left out
        image[shown] = to_rgba(color)
        axes.imshow(
            image, aspect="auto", interpolation="nearest", extent=(0.5, n_epochs + 0.5, len(shown), 0)
        )
        share = shown.mean() if shown.size else 0.0
        axes.set_ylabel(f"{len(shown)} samples with {name}")
        axes.set_title(f"{name}: took part {100 * share:.0f}% of the time", loc="left", fontsize=10)
    rows[-1].set_xlabel("epoch")
    figure.suptitle("B  Which sample took part in which epoch (LAI; coloured: it did)", x=0.01, ha="left")
    return figure


def draw_samples(numbers: Sequence[dict[str, Any]]) -> Figure:
    """Draw the score of a few samples over epochs, each beside its image."""
    figure = Figure(figsize=(10, 8.5), layout="constrained")
    grid = figure.subplots(len(numbers), 2, width_ratios=(1, 9), squeeze=False)
    scores = np.array([track["scores"] for track in numbers], float)
    magnitudes = np.abs(scores[np.isfinite(scores)])
    scale = max(float(np.median(magnitudes)) if magnitudes.size else 0.0, 1e-12)
    limit = 1.5 * max(float(magnitudes.max(initial=0.0)), scale)
    for (picture, axes), track, values in zip(grid, numbers, scores, strict=True):
        color = _draw_digit(picture, track)
        epochs, kept = np.arange(1, len(values) + 1), np.asarray(track["kept"])
        axes.axhline(0, color=QUIET, lw=0.8)
        axes.plot(epochs, values, color=color, lw=1, alpha=0.6)
        axes.plot(epochs[kept], values[kept], "o", color=color, ms=4)
        axes.plot(epochs[~kept], values[~kept], "o", color=color, ms=4, mfc="none")
        _signed(axes, "y", scale, limit)
        axes.set(xlim=(0, len(values) + 1))
        given, true = track["given_label"], track["true_label"]
        truth = "right" if given == true else f"flipped, it is a {true}"
        text = f"label {given} ({truth}); took part in {kept.sum()} of {len(kept)} epochs"
        axes.set_title(text, loc="left", fontsize=9)
        axes.tick_params(labelbottom=values is scores[-1] or track is numbers[-1])
        _bare(axes)
    grid[-1][1].set_xlabel("epoch")
    marks = [
        Line2D([], [], color=QUIET, marker="o", ls="", mfc=face, label=label)
        for face, label in ((QUIET, "took part"), ("none", "left out"))
    ]
    figure.legend(handles=marks, loc="outside upper right", ncols=2, frameon=False)
    figure.suptitle("C  The LAI score of six samples over epochs (positive helps)", x=0.01, ha="left")
    return figure


def draw_lowest(numbers: Sequence[dict[str, Any]]) -> Figure:
    """Draw the images with the lowest scores, with the labels they were given."""
    columns = 8
    rows = max(1, -(-len(numbers) // columns))
    figure = Figure(figsize=(columns * 1.25, rows * 1.55 + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(numbers) :]:
        axes.set_axis_off()
    for axes, portrait in zip(grid, numbers, strict=False):
        _draw_digit(axes, portrait)
    n_flipped = sum(portrait["given_label"] != portrait["true_label"] for portrait in numbers)
    text = f"The {len(numbers)} training images that LAI scored lowest: {n_flipped} have a flipped label"
    figure.suptitle(text, x=0.01, ha="left")
    return figure


def _draw_digit(axes: Axes, portrait: dict[str, Any]) -> str:
    """Draw an image with both labels; return the colour that says whether they agree."""
    color = RIGHT if portrait["given_label"] == portrait["true_label"] else FLIPPED
    axes.imshow(np.reshape(portrait["pixels"], (8, 8)), cmap="gray_r", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"said {portrait['given_label']}, is {portrait['true_label']}", fontsize=8, color=color)
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=2)
    return color


def _signed(axes: Axes, along: str, scale: float, limit: float) -> None:
    """Scale an axis linearly up to `scale` and logarithmically beyond, with ticks that keep apart."""
    top = math.floor(math.log10(limit))
    powers = [10.0**power for power in (top - 1, top) if 10.0**power > 1.5 * scale]
    ticks = [*(-power for power in powers), 0.0, *powers]
    (axes.set_xscale if along == "x" else axes.set_yscale)("asinh", linear_width=scale)
    axis = axes.xaxis if along == "x" else axes.yaxis
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
    (axes.set_xlim if along == "x" else axes.set_ylim)(-limit, limit)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def draw(name: str) -> Figure:
    """Draw one of the pictures from the numbers that are kept beside this file."""
    return DRAW[name](json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8")))


DRAW: dict[str, Callable[[Any], Figure]] = {
    of.__name__.removeprefix("draw_"): of
    for of in (draw_accuracy, draw_scores, draw_participation, draw_samples, draw_lowest)
}
"""By the name of the files that hold the numbers and the picture."""
