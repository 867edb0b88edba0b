"""What the methods train on: digits with flipped labels, pieces of text."""

import copy
from functools import lru_cache, partial

import numpy as np
import torch
from scipy import special
from torch import nn

from experiments.data import prose
from experiments.data.digits import flip_labels, noisy_digits
from experiments.methods import Task
from experiments.methods.base import descend
from experiments.networks import GPT, Classifier, next_loss, uniform

CONFUSED = np.array([6, 7, 3, 8, 9, 6, 0, 1, 3, 4])
"""What a hurried reader takes each digit for: asymmetric noise."""
WIDTHS, LEARNING_RATE, BATCH = (64, 128, 128, 10), 0.003, 128
"""Chosen for plain training, on seeds that no study uses (100 to 102): of SGD at rates 0.1 to 0.5, with
momentum at 0.03 and 0.1, and Adam at 0.001 and 0.003, all of which peak between 0.89 and 0.93 on the way in
batches of 64, Adam at 0.003 gets to 0.92 in the fewest epochs. Larger batches keep the studies short. No
method had anything tuned for it. Training runs on well past plain training's peak, until it has taken in many
of the wrong labels; what stopping earlier would have given is reported beside it."""


def flipped(seed: int, *, epochs: int, share: float = 0.4) -> Task:
    """Return digits of which a share is flipped to any other class: the demo's."""
    found = noisy_digits(seed, flip=share)
    network, sets = partial(uniform, widths=WIDTHS), (found.training, found.validation, found.test)
    return Task(*sets, found.wrong.float(), network, LEARNING_RATE, BATCH, epochs)


def digits(seed: int, *, noise: str, share: float, held: int, epochs: int, held_wrong: float = 0.0) -> Task:
    """Return digits of which a share is labelled wrongly, and a validation set of `held` images.

    Of its labels a share `held_wrong` is wrong, each to any other class.
    """
    clean = noisy_digits(seed, flip=0.0)
    (inputs, labels), random = clean.training, np.random.default_rng((seed, 7))
    right = labels.numpy()
    given = flip_labels(right, share, random)
    if noise == "asymmetric":
        given = np.where(given != right, CONFUSED[right], right)
    if noise == "instance":
        given = mistaken(inputs.numpy(), right, share, random)
    own = torch.from_numpy(given)
    x, y = (part[:held] for part in clean.validation)
    validation = x, torch.from_numpy(flip_labels(y.numpy(), held_wrong, random))
    network = partial(uniform, widths=WIDTHS)
    wrong = (own != labels).float()
    return Task((inputs, own), validation, clean.test, wrong, network, LEARNING_RATE, BATCH, epochs)


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


LENGTH, PIECES, RATE = 32, 32, 0.002
"""Characters of a piece, samples of a step on text, and the learning rate of fine-tuning."""


@lru_cache(maxsize=1)
def read_sources() -> tuple[np.ndarray, np.ndarray]:
    """Return pieces `(n, LENGTH)` of the source of two modules, in turn, and of which of them each is."""
    parts = [prose.numbers(source) for source in prose.modules()[:2]]
    pieces = [part[: len(part) // LENGTH * LENGTH].reshape(-1, LENGTH) for part in parts]
    fewest = min(map(len, pieces))
    return np.stack([each[:fewest] for each in pieces], axis=1).reshape(-1, LENGTH), np.tile([0, 1], fewest)


@lru_cache(maxsize=2)
def pretrained(seed: int, steps: int) -> GPT:
    """Return a GPT that has learnt to tell the next character of Python's language reference."""
    random = np.random.default_rng((seed, 5))
    model = GPT(len(prose.alphabet()) + 1, LENGTH, seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weights = torch.full((PIECES,), 1.0 / PIECES)
    for _ in range(steps):
        ids = torch.from_numpy(prose.windows(prose.prose(), PIECES, LENGTH + 1, random))
        descend(model, optimizer, (ids[:, :-1], ids[:, 1:].contiguous()), weights, next_loss)
    return model


def fine_tuning(
    seed: int,
    *,
    share: float,
    training: int,
    reading: int,
    epochs: int,
    testing: int = 1000,
) -> Task:
    """Return so many training pieces, 100 clean ones to validate on, and those to test on.

    The network has been `reading` for so many steps before.
    """
    random, (rows, labels) = np.random.default_rng((seed, 7)), map(torch.from_numpy, read_sources())
    cut = len(labels) * 6 // 10  # what is trained on comes from before
    early = random.permutation(cut)[:training]
    late = cut + random.permutation(len(labels) - cut)[: 100 + testing]
    given = labels[early].clone()
    given[: round(share * len(given))] ^= 1  # the pieces are in random order

    def network(network_seed: int) -> nn.Module:
        model = pretrained(network_seed, reading)
        return Classifier(copy.deepcopy(model), 2, seed=network_seed)

    sets = (rows[early], given), *((rows[part], labels[part]) for part in (late[:100], late[100:]))
    return Task(*sets, (given != labels[early]).float(), network, RATE, PIECES, epochs)
