"""From training runs to the numbers of the table, and what the study claims of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from experiments.noisy_labels.recipe import CLAIMED, PLAIN
from experiments.noisy_labels.training import Run

MIN_GAIN = 0.08
"""Accuracy above plain training that the study claims of Ghost, LAI and LLI."""

MAX_FLIPPED = 0.33
"""Share of flipped labels among kept samples below which it claims them to be; chance is 0.40."""

Flips = Sequence[Bool[np.ndarray, " n_train"]]


def accuracies(runs: Sequence[Run]) -> dict[str, Any]:
    """Summarise the test accuracy of one method's runs, one run a seed.

    `accuracy_*` is after the last epoch; `early_stopped_*` after the first epoch of the highest
    validation accuracy. Deviations are those between seeds; 0 for a single one.
    """
    last = np.array([run.test_accuracy[-1] for run in runs])
    stopped = np.array([run.test_accuracy[int(run.validation_accuracy.argmax())] for run in runs])
    return {
        "accuracy_mean": float(last.mean()),
        "accuracy_std": _deviation(last),
        "early_stopped_mean": float(stopped.mean()),
        "early_stopped_std": _deviation(stopped),
        "accuracy_of_each_seed": last.tolist(),
    }


def selection(runs: Sequence[Run], flips: Flips) -> dict[str, Any]:
    """Summarise what was kept, over all epochs and seeds; of nothing kept no share is flipped (None)."""
    kept = sum(int(run.kept.sum()) for run in runs)
    flipped = sum(int(run.kept[:, flip].sum()) for run, flip in zip(runs, flips, strict=True))
    return {
        "kept_share": kept / sum(run.kept.size for run in runs),
        "flipped_share_of_kept": flipped / kept if kept else None,
    }


def summarize(runs: Mapping[str, Sequence[Run]], flips: Flips) -> dict[str, dict[str, Any]]:
    """Summarise the runs of every method, plain training among them; seconds are means per run."""
    seconds = {name: float(np.mean([run.seconds for run in of_method])) for name, of_method in runs.items()}
    return {
        name: {
            **accuracies(of_method),
            **selection(of_method, flips),
            "seconds": seconds[name],
            "seconds_ratio": seconds[name] / seconds[PLAIN.name],
        }
        for name, of_method in runs.items()
    }


def claims(methods: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the study claims: the statement, the value found, its bound, and whether it holds."""
    found = []
    for name in CLAIMED:
        gain = methods[name]["accuracy_mean"] - methods[PLAIN.name]["accuracy_mean"]
        share = methods[name]["flipped_share_of_kept"]
        found += [
            {
                "claim": f"{name}: accuracy above plain, at least",
                "value": gain,
                "bound": MIN_GAIN,
                "holds": gain >= MIN_GAIN,
            },
            {
                "claim": f"{name}: flipped share of kept, below",
                "value": share,
                "bound": MAX_FLIPPED,
                "holds": share is not None and share < MAX_FLIPPED,
            },
        ]
    return found


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0
