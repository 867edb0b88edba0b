"""What the methods train on: digits with labels flipped by hand, reviews with those of annotators."""

from collections.abc import Callable

import numpy as np
import torch
from scipy import special
from torch import nn

from experiments.data import annotators
from experiments.methods import Task
from experiments.noisy_labels.data import flip_labels, noisy_digits
from experiments.noisy_labels.torch_learner import network
from experiments.noisy_labels.training import initial_parameters

CONFUSED = np.array([6, 7, 3, 8, 9, 6, 0, 1, 3, 4])
"""What a hurried reader takes each digit for: asymmetric noise."""
LEARNING_RATE, BATCH = 0.003, 128


def digits(seed: int, *, noise: str, share: float, held: int, epochs: int, held_wrong: float = 0.0) -> Task:
    """Return digits of which a share is labelled wrongly, and a validation set of `held` images.

    Of its labels a share `held_wrong` is wrong, each to any other class.
    """
    clean = noisy_digits(seed, flip=0.0)
    random = np.random.default_rng((seed, 7))
    given = flip_labels(clean.true_labels, share, random)
    if noise == "asymmetric":
        given = np.where(given != clean.true_labels, CONFUSED[clean.true_labels], clean.true_labels)
    if noise == "instance":
        given = mistaken(clean.training.inputs, clean.true_labels, share, random)
    wrong = torch.from_numpy(given != clean.true_labels).float()
    validation, test = (
        (torch.from_numpy(of.inputs), torch.from_numpy(of.labels)) for of in (clean.validation, clean.test)
    )
    return Task(
        training=(torch.from_numpy(clean.training.inputs), torch.from_numpy(given)),
        validation=(
            validation[0][:held],
            torch.from_numpy(flip_labels(validation[1][:held].numpy(), held_wrong, random)),
        ),
        test=test,
        wrong=wrong,
        network=_network(64, 128, 128, 10),
        learning_rate=LEARNING_RATE,
        batch=BATCH,
        epochs=epochs,
    )


def mistaken(inputs: np.ndarray, labels: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    """Return labels that are wrong where the image itself invites it (Xia et al. 2020).

    A sample's chance to be mistaken is normal around the share, with a deviation of 0.1; for what, a softmax
    of random linear functions of its pixels says, one set of them a class.
    """
    rate = np.clip(random.normal(share, 0.1, len(labels)), 0.0, 1.0)
    classes = labels.max() + 1
    logits = np.einsum("nd,ndc->nc", inputs, random.normal(size=(classes, inputs.shape[1], classes))[labels])
    logits[np.arange(len(labels)), labels] = -np.inf
    chance = rate[:, None] * special.softmax(logits, axis=1)
    chance[np.arange(len(labels)), labels] = 1.0 - rate
    return (chance.cumsum(1) < random.random((len(labels), 1))).sum(1).clip(max=classes - 1)


def reviews(seed: int, *, noise: str, held: int, epochs: int) -> Task:
    """Return film-review sentences with annotators' labels; a clean validation set and 2,000 to test on."""
    rated, inputs = annotators.rated(), torch.from_numpy(annotators.features())
    random = np.random.default_rng((seed, 7))
    rows = np.split(random.permutation(len(rated))[: 2000 + held + 2000], [2000, 2000 + held])
    right = torch.tensor([int(one.mean > 0) for one in rated])
    given = torch.tensor([annotators.given_label(rated[row], noise, random) for row in rows[0]])
    training, validation, test = (torch.from_numpy(each) for each in rows)
    return Task(
        training=(inputs[training], given),
        validation=(inputs[validation], right[validation]),
        test=(inputs[test], right[test]),
        wrong=(given != right[training]).float(),
        network=_network(64, 64, 2),
        learning_rate=0.001,
        batch=100,
        epochs=epochs,
    )


def _network(*widths: int) -> Callable[[int], nn.Module]:
    return lambda seed: network(initial_parameters(seed, widths))
