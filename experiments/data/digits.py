"""scikit-learn's bundled handwritten digits, split and with some training labels flipped."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from sklearn.datasets import load_digits
from torch import Tensor

Batch = tuple[Tensor, Tensor]
"""Inputs and labels."""
N_TRAINING, N_VALIDATION = 1024, 300
"""The other 473 of the 1,797 images are the test set."""


class NoisyDigits(NamedTuple):
    """Images `(n, 64)`, 8 x 8 pixels from 0 to 1, and labels `(n,)`; of the training labels some are wrong.

    No method sees `true_labels`, what the training images show.
    """

    training: Batch
    validation: Batch
    test: Batch
    true_labels: Tensor

    @property
    def wrong(self) -> Tensor:
        return self.training[1] != self.true_labels


def noisy_digits(seed: int, *, flip: float = 0.4) -> NoisyDigits:
    """Split the digits at random and flip the share `flip` of the training labels to another class."""
    if not 0.0 <= flip <= 1.0:
        msg = f"flip: expected a share in [0, 1], got {flip!r}"
        raise ValueError(msg)
    images, labels = load_digits(return_X_y=True)
    random = np.random.default_rng((seed, 0))  # 1 draws initial parameters, 2 the order of samples
    indices = np.split(random.permutation(len(labels)), [N_TRAINING, N_TRAINING + N_VALIDATION])
    training, validation, test = (
        (torch.tensor(images[rows] / 16.0, dtype=torch.float32), torch.tensor(labels[rows]))
        for rows in indices
    )
    given = torch.from_numpy(flip_labels(training[1].numpy(), flip, random))
    return NoisyDigits((training[0], given), validation, test, training[1])


def flip_labels(
    labels: Int[np.ndarray, " n"], share: float, random: np.random.Generator
) -> Int[np.ndarray, " n"]:
    """Return the labels with `round(share * n)` of them replaced by a different class, each as likely."""
    chosen = random.choice(len(labels), round(share * len(labels)), replace=False)
    flipped = labels.copy()
    flipped[chosen] = (labels[chosen] + random.integers(1, 10, len(chosen))) % 10
    return flipped
