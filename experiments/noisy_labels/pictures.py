"""Pictures of the study, drawn from the numbers in `figures`."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.noisy_labels.recipe import METHODS, REFERENCES

RIGHT, FLIPPED = "#0072B2", "#D55E00"  # Okabe and Ito: told apart by colour-blind eyes
QUIET = "#7f7f7f"  # read on white and on a dark page
LOOKS = {
    "plain": (QUIET, "-"),
    "ghost": ("#009E73", "-"),
    "lai": ("#0072B2", "-"),
    "lli": ("#E69F00", "-"),
    "preconditioned_lai": ("#56B4E9", "--"),
    "calibrated_lai": ("#0072B2", ":"),
    "gate_lai": ("#CC79A7", "--"),
    "lai_as_printed": ("#D55E00", "-"),
    "unflipped_only": (QUIET, "--"),
    "validation_only": (QUIET, ":"),
}
AT_CHANCE = 0.2
"""Accuracy below which a method has its own panel: one digit in ten is right by chance."""
KINDS = (("right", RIGHT, "right label"), ("flipped", FLIPPED, "flipped label"))
TITLES = {method.name: method.title for method in (*METHODS, *REFERENCES)}


def draw_accuracy(numbers: dict[str, Any]) -> Figure:
    """Draw accuracy over epochs: mean and band of one deviation, by method; the empty middle left out."""
    figure = Figure(figsize=(9.5, 6), layout="constrained")
    rows = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for name in sorted(numbers, key=lambda name: -numbers[name]["mean"][-1]):
        mean, std = (np.asarray(numbers[name][key]) for key in ("mean", "std"))
        epochs = np.arange(1, len(mean) + 1)
        color, style = LOOKS[name]
        for axes in rows:
            label = f"{TITLES[name]}  {100 * mean[-1]:.1f}%" if axes is rows[0] else None
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
    _title(figure, "Digits with 40% wrong training labels: accuracy over epochs")
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
    _title(figure, "A  The scores of samples with right and with flipped labels")
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
    groups = ((~flipped, RIGHT, "right label"), (flipped, FLIPPED, "flipped label"))
    n_epochs = took_part.shape[1]
    for axes, (group, color, name) in zip(rows, groups, strict=True):
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
    _title(figure, "B  Which sample took part in which epoch (LAI; coloured: it did)")
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
        wrong = track["given_label"] != track["true_label"]
        color = FLIPPED if wrong else RIGHT
        _draw_digit(picture, track, color)
        epochs, kept = np.arange(1, len(values) + 1), np.asarray(track["kept"])
        axes.axhline(0, color=QUIET, lw=0.8)
        axes.plot(epochs, values, color=color, lw=1, alpha=0.6)
        axes.plot(epochs[kept], values[kept], "o", color=color, ms=4)
        axes.plot(epochs[~kept], values[~kept], "o", color=color, ms=4, mfc="none")
        _signed(axes, "y", scale, limit)
        axes.set(xlim=(0, len(values) + 1))
        axes.set_title(_track_title(track), loc="left", fontsize=9)
        axes.tick_params(labelbottom=values is scores[-1] or track is numbers[-1])
        _bare(axes)
    grid[-1][1].set_xlabel("epoch")
    marks = [
        Line2D([], [], color=QUIET, marker="o", ls="", label="took part"),
        Line2D([], [], color=QUIET, marker="o", mfc="none", ls="", label="left out"),
    ]
    figure.legend(handles=marks, loc="outside upper right", ncols=2, frameon=False)
    _title(figure, "C  The LAI score of six samples over epochs (positive helps)")
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
        wrong = portrait["given_label"] != portrait["true_label"]
        _draw_digit(axes, portrait, FLIPPED if wrong else RIGHT)
    n_flipped = sum(portrait["given_label"] != portrait["true_label"] for portrait in numbers)
    _title(
        figure,
        f"The {len(numbers)} training images that LAI scored lowest: {n_flipped} have a flipped label",
    )
    return figure


def _draw_digit(axes: Axes, portrait: dict[str, Any], color: str) -> None:
    axes.imshow(np.reshape(portrait["pixels"], (8, 8)), cmap="gray_r", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"said {portrait['given_label']}, is {portrait['true_label']}", fontsize=8, color=color)
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=2)


def _track_title(track: dict[str, Any]) -> str:
    kept = int(np.sum(track["kept"]))
    truth = (
        "right" if track["given_label"] == track["true_label"] else f"flipped, it is a {track['true_label']}"
    )
    return f"label {track['given_label']} ({truth}); took part in {kept} of {len(track['kept'])} epochs"


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


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left")


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


DRAW: dict[str, Callable[[Any], Figure]] = {
    "accuracy": draw_accuracy,
    "scores": draw_scores,
    "participation": draw_participation,
    "samples": draw_samples,
    "lowest": draw_lowest,
}
"""By the name of the files that hold the numbers and the picture."""
