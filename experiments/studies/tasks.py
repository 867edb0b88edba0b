"""What the methods train on: digits with labels flipped by hand, reviews with those of annotators."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from experiments.data import annotators
from experiments.methods import Task
from experiments.noisy_labels.data import flip_labels, noisy_digits
from experiments.noisy_labels.torch_learner import network
from experiments.noisy_labels.training import initial_parameters

CONFUSED = np.array([6, 7, 3, 8, 9, 6, 0, 1, 3, 4])
"""What a hurried reader takes each digit for: asymmetric noise."""
LEARNING_RATE, BATCH = 0.003, 128


def digits(seed: int, *, noise: str, share: float, held: int, epochs: int) -> Task:
    """Return digits of which a share is labelled wrongly, and a clean validation set of `held` images."""
    clean = noisy_digits(seed, flip=0.0)
    random = np.random.default_rng((seed, 7))
    given = flip_labels(clean.true_labels, share, random)
    if noise == "asymmetric":
        given = np.where(given != clean.true_labels, CONFUSED[clean.true_labels], clean.true_labels)
    wrong = torch.from_numpy(given != clean.true_labels).float()
    validation, test = (
        (torch.from_numpy(of.inputs), torch.from_numpy(of.labels)) for of in (clean.validation, clean.test)
    )
    return Task(
        training=(torch.from_numpy(clean.training.inputs), torch.from_numpy(given)),
        validation=(validation[0][:held], validation[1][:held]),
        test=test,
        wrong=wrong,
        network=_network(64, 128, 128, 10),
        learning_rate=LEARNING_RATE,
        batch=BATCH,
        epochs=epochs,
    )


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
