"""The linear datamodelling score: what sums of scores tell of retrainings on subsets (Park et al. 2023)."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional

NULL, ORACLE = "random", "retraining"
LABEL = "same label"
ONE, SEVERAL = "Spearman, one network", "Spearman, all networks"
BEYOND, OWN = "Spearman, beyond the label", "Spearman, own run"
WHOLE = "Spearman, mean loss"


def datamodelling_scores(
    kernels: Mapping[str, Tensor], members: Tensor, again: Tensor, own: Tensor
) -> dict[str, dict[str, float]]:
    """Return each method's scores, and those of retraining itself.

    `kernels`, `(networks, n_test, n)` by method, score each training sample for each test sample, from each
    of some networks; `members`, `(subsets, n)`, are the samples of each subset; `again`, `(retrainings,
    subsets, n_test)`, the log-odds of the test samples' labels after each retraining; `own`, `(subsets,
    n_test)`, those after the first network's own run, less the losses of the samples left out.
    """
    half, truth, fall = len(again) // 2, again.mean(0), lost(again)
    labels = members.float() @ kernels[LABEL][0].T
    parted = [(again[at : at + 1], torch.cat([again[:at], again[at + 1 :]])) for at in range(len(again))]
    one = [(of.mean(0), others.mean(0)) for of, others in parted]
    found = {
        ORACLE: {
            ONE: _mean(rank_correlation(*pair) for pair in one),
            SEVERAL: rank_correlation(again[:half].mean(0), again[half:].mean(0)),
            BEYOND: _mean(rank_correlation(*pair, beyond=labels) for pair in one),
            OWN: rank_correlation(truth, own),
            WHOLE: _mean(rank_correlation(lost(of), lost(others)) for of, others in parted),
        }
    }
    for method, kernel in kernels.items():
        each = members.float() @ kernel.mT
        found[method] = {
            ONE: _mean(rank_correlation(of, truth) for of in each),
            SEVERAL: rank_correlation(each.sum(0), truth),
            BEYOND: _mean(rank_correlation(of, truth, beyond=labels) for of in each),
            OWN: rank_correlation(each[0], own),
            WHOLE: _mean(rank_correlation(of.sum(1, keepdim=True), fall) for of in each),
        }
    return found


def lost(log_odds: Tensor) -> Tensor:
    """Return minus the mean loss over retrainings and test samples, `(subsets, 1)`."""
    return -functional.softplus(-log_odds).mean((0, 2))[:, None]


def rank_correlation(one: Tensor, other: Tensor, *, beyond: Tensor | None = None) -> float:
    """Return the mean over columns of Spearman's correlation; 0 where a column is constant.

    With `beyond`, the partial correlation: of what the ranks of `beyond` do not explain.
    """
    a, b, *held = (_standard(of) for of in (one, other, *([] if beyond is None else [beyond])))
    for c in held:
        a, b = (_normed(of - c * (of * c).sum(0)) for of in (a, b))
    return float((a * b).sum(0).mean())


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([*values]))


def _standard(values: Tensor) -> np.ndarray:
    """Return the ranks of each column, centred, of norm 1."""
    ranks = rankdata(values.double().numpy(), axis=0)
    return _normed(ranks - ranks.mean(0))


def _normed(columns: np.ndarray) -> np.ndarray:
    """Return columns of norm 1, or of 0 where rounding is all that is left."""
    norm = np.sqrt((columns**2).sum(0))
    return np.divide(columns, norm, out=np.zeros_like(columns), where=norm > 1e-9)
