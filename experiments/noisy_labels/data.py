"""scikit-learn's bundled handwritten digits, split and with some training labels flipped."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.datasets import load_digits

N_CLASSES = 10
N_TRAINING = 1024
N_VALIDATION = 300
"""The other 473 of the 1,797 images are the test set."""

PURPOSES = ("split and flips", "initial parameters", "order of samples")


@dataclass(frozen=True)
class Samples:
    """Images and labels.

    Attributes
    ----------
    inputs
        `(n, 64)`: the 8 x 8 pixels of each image, from 0 to 1.
    labels
        `(n,)`: the digit each image is said to show.
    """

    inputs: Float[np.ndarray, "n 64"]
    labels: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels)


@dataclass(frozen=True)
class NoisyDigits:
    """Digits whose training labels are partly wrong, and clean validation and test sets.

    Attributes
    ----------
    training
        With the labels as given, wrong ones included.
    true_labels
        `(n_train,)`: what the training images show. No method sees it.
    validation, test
        With true labels.
    indices
        The row of every image in scikit-learn's table: training, validation, test.
    """

    training: Samples
    true_labels: Int[np.ndarray, " n_train"]
    validation: Samples
    test: Samples
    indices: tuple[Int[np.ndarray, " n_train"], Int[np.ndarray, " n_val"], Int[np.ndarray, " n_test"]]

    @property
    def flipped(self) -> Bool[np.ndarray, " n_train"]:
        """Which training labels are wrong."""
        return self.training.labels != self.true_labels

    @property
    def unflipped(self) -> Samples:
        """The training samples whose label is right: what a perfect curator would keep."""
        right = ~self.flipped
        return Samples(self.training.inputs[right], self.training.labels[right])


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the random stream of one seed for one purpose, independent of every other one."""
    return np.random.default_rng((seed, PURPOSES.index(purpose)))


def noisy_digits(seed: int, *, flip: float = 0.4) -> NoisyDigits:
    """Split the digits at random and flip the share `flip` of the training labels.

    Parameters
    ----------
    seed
        Decides the split, which labels are flipped, and to what.
    flip
        Share of training labels that are replaced by another class, each other class alike.

    Returns
    -------
    NoisyDigits
        1,024 training, 300 validation and 473 test images.

    Raises
    ------
    ValueError
        If `flip` lies outside [0, 1].
    """
    if not 0.0 <= flip <= 1.0:
        msg = f"flip: expected a share in [0, 1], got {flip!r}"
        raise ValueError(msg)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    random = stream(seed, "split and flips")
    indices = np.split(random.permutation(len(labels)), [N_TRAINING, N_TRAINING + N_VALIDATION])
    training, validation, test = (Samples(images[rows], labels[rows].astype(np.int64)) for rows in indices)
    given = flip_labels(training.labels, flip, random)
    return NoisyDigits(
        Samples(training.inputs, given),
        training.labels,
        validation,
        test,
        (indices[0], indices[1], indices[2]),
    )


def flip_labels(
    labels: Int[np.ndarray, " n"], share: float, random: np.random.Generator, classes: int = N_CLASSES
) -> Int[np.ndarray, " n"]:
    """Return the labels with `round(share * n)` of them replaced by a different class."""
    chosen = random.choice(len(labels), round(share * len(labels)), replace=False)
    flipped = labels.copy()
    flipped[chosen] = (labels[chosen] + random.integers(1, classes, len(chosen))) % classes
    return flipped
