"""The numbers behind the pictures, as JSON can hold them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.noisy_labels.data import NoisyDigits
from experiments.noisy_labels.training import Run

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
N_BINS = 60


def accuracy_over_epochs(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Test accuracy after each epoch: mean and deviation over seeds, by method."""
    curves = {name: np.stack([run.test_accuracy for run in of]) for name, of in runs.items()}
    return {
        name: {
            "mean": curve.mean(axis=0).tolist(),
            "std": (curve.std(axis=0, ddof=1) if len(curve) > 1 else 0.0 * curve[0]).tolist(),
        }
        for name, curve in curves.items()
    }


def score_distributions(runs: Sequence[Run], data: Sequence[NoisyDigits]) -> dict[str, Any]:
    """Quantiles of the scores of flipped and of other samples, over epochs; all seeds together.

    With histograms at the first, a middle and the last epoch, over bins that are even in
    `arcsinh(score / scale)`: scores span orders of magnitude and have either sign.
    """
    scores = np.concatenate([run.scores for run in runs], axis=1)
    flipped = np.concatenate([digits.flipped for digits in data])
    epochs = len(scores)
    finite = np.isfinite(scores)
    magnitudes = np.abs(scores[finite])
    scale = float(np.median(magnitudes)) / 10 if magnitudes.any() else 1.0
    edge = float(np.arcsinh(magnitudes.max(initial=scale) / scale))
    edges = scale * np.sinh(np.linspace(-edge, edge, N_BINS + 1))
    shown = sorted({0, epochs // 2, epochs - 1})
    groups = {"right": ~flipped, "flipped": flipped}
    return {
        "scale": scale,
        "quantiles": list(QUANTILES),
        "over_epochs": {
            name: np.nanquantile(scores[:, group], QUANTILES, axis=1).tolist()
            for name, group in groups.items()
        },
        "bin_edges": edges.tolist(),
        "histograms": {
            str(epoch + 1): {
                name: np.histogram(scores[epoch, group & finite[epoch]], edges)[0].tolist()
                for name, group in groups.items()
            }
            for epoch in shown
        },
    }


def participation(run: Run, data: NoisyDigits) -> dict[str, Any]:
    """Which sample took part in which epoch: one string of 0 and 1 a sample.

    Samples with right labels first, then flipped ones, each sorted by how often they took part.
    """
    often = run.kept.sum(axis=0)
    order = np.lexsort((-often, data.flipped))
    return {
        "sample": order.tolist(),
        "flipped": data.flipped[order].tolist(),
        "epochs": ["".join("01"[int(kept)] for kept in run.kept[:, sample]) for sample in order],
    }


def single_samples(run: Run, data: NoisyDigits) -> list[dict[str, Any]]:
    """Scores over epochs of three samples with right and three with flipped labels.

    Of each kind the one at the 10th, 50th and 90th percentile of how often they took part.
    """
    often = run.kept.sum(axis=0)
    tracks = []
    for flipped in (False, True):
        members = np.flatnonzero(data.flipped == flipped)
        ranked = members[np.argsort(often[members], kind="stable")]
        for percentile in (10, 50, 90):
            sample = int(ranked[(len(ranked) - 1) * percentile // 100])
            tracks.append(
                {
                    **_portrait(sample, data),
                    "percentile": percentile,
                    "scores": run.scores[:, sample].tolist(),
                    "kept": run.kept[:, sample].tolist(),
                }
            )
    return tracks


def lowest_scored(run: Run, data: NoisyDigits, count: int = 32) -> list[dict[str, Any]]:
    """Find the samples with the lowest mean rank of score within their epoch, lowest first."""
    scores = np.where(np.isfinite(run.scores), run.scores, np.inf)
    ranks = scores.argsort(axis=1).argsort(axis=1).mean(axis=0) / max(scores.shape[1] - 1, 1)
    lowest = ranks.argsort(kind="stable")[:count]
    return [{**_portrait(int(sample), data), "mean_rank": float(ranks[sample])} for sample in lowest]


def _portrait(sample: int, data: NoisyDigits) -> dict[str, Any]:
    """Return which sample it is, what it shows and what it is said to show."""
    return {
        "sample": sample,
        "digits_row": int(data.indices[0][sample]),
        "given_label": int(data.training.labels[sample]),
        "true_label": int(data.true_labels[sample]),
        "pixels": data.training.inputs[sample].tolist(),
    }
