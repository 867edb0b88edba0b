"""Networks trained side by side on subsets, and how they judge attribution (Park et al. 2023)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from experiments.data.digits import Batch, noisy_digits
from experiments.methods.base import LOSS
from experiments.networks import convolutional, perceptron

TESTED = 100
"""How many test samples are attributed."""


@dataclass(frozen=True)
class Setting:
    """A network, its data, and how it is trained."""

    network: Callable[[int], nn.Sequential]
    data: Callable[[int], tuple[Batch, Batch]]
    """From a seed to the training samples and the test samples."""
    rates: Mapping[str, float]
    """The learning rate of each optimizer."""
    positions: str = "tokens"
    """What LAI means by an inner product of positions."""
    batch: int = 32

    def optimizer(self, kind: str, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
        """Return one of the two optimizers, as it comes."""
        return {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[kind](parameters, lr=self.rates[kind])


def digits(seed: int) -> tuple[Batch, Batch]:
    """Return 512 handwritten digits with right labels, and 100 test samples."""
    found = noisy_digits(seed, flip=0.0)
    (inputs, labels), (x, y) = found.training, found.test
    return (inputs[:512], labels[:512]), (x[:TESTED], y[:TESTED])


def tumours(seed: int) -> tuple[Batch, Batch]:
    """Return 384 rows of 30 measurements, standardized, of two classes, and 100 test samples."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng((seed, 29)).permutation(len(labels))
    own, held = order[:384], order[384 : 384 + TESTED]
    inputs = (inputs - inputs[own].mean(0)) / inputs[own].std(0)
    both = [(torch.from_numpy(inputs[rows]).float(), torch.from_numpy(labels[rows])) for rows in (own, held)]
    return both[0], both[1]


def of(*widths: int) -> Callable[[int], nn.Sequential]:
    """Return what makes a perceptron of these widths from a seed."""
    return lambda seed: perceptron(widths, seed=seed)


SETTINGS = {
    "MLP": Setting(of(64, 32, 32, 10), digits, {"SGD": 0.1, "Adam": 0.003}),
    "conv": Setting(convolutional, digits, {"SGD": 0.2, "Adam": 0.005}, positions="mean"),
    "tabular": Setting(of(30, 32, 32, 2), tumours, {"SGD": 0.1, "Adam": 0.003}),
}


def order(members: Tensor, batch: int, epochs: int, seed: int) -> Tensor:
    """Return the rows of each step, `(steps, batch)`: all members once an epoch, less what fills no batch."""
    random = torch.Generator().manual_seed(seed)
    steps = len(members) // batch
    drawn = [members[torch.randperm(len(members), generator=random)[: steps * batch]] for _ in range(epochs)]
    return torch.cat(drawn).view(-1, batch)


def subsets(count: int, of: int, seed: int) -> Tensor:
    """Return `(count, of)`, booleans: which half of the samples each subset has."""
    random = torch.Generator().manual_seed(seed)
    ranks = torch.rand(count, of, generator=random).argsort(1).argsort(1)
    return ranks < of // 2


def side_by_side(
    setting: Setting, kind: str, seeds: Sequence[int], data: Batch, rows: Tensor, weights: Tensor, test: Batch
) -> Tensor:
    """Train a network a seed; return the logits of the test samples, `(networks, n_test, classes)`.

    `rows` and `weights`, `(steps, networks, batch)`, are the samples of each step and the factors of their
    losses in its sum.
    """
    made = [setting.network(seed) for seed in seeds]
    point = {name: of.detach().requires_grad_() for name, of in stack_module_state(made)[0].items()}
    optimizer = setting.optimizer(kind, list(point.values()))

    def loss(at: dict[str, Tensor], inputs: Tensor, labels: Tensor, factors: Tensor) -> Tensor:
        return (factors * LOSS(functional_call(made[0], at, (inputs,)), labels)).sum()

    for index, factors in zip(rows, weights, strict=True):
        optimizer.zero_grad()
        vmap(loss)(point, data[0][index], data[1][index], factors).sum().backward()
        optimizer.step()
    with torch.no_grad():
        return vmap(lambda at: functional_call(made[0], at, (test[0],)))(point)


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
