"""Small language models that have read some text, and the sentences that they are fine-tuned to classify."""

import copy
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.data import annotators, prose
from experiments.methods import Task
from experiments.methods.base import descend
from experiments.networks import GPT, Classifier, next_loss

HIDDEN = 0.15
"""The share of symbols that a BERT has to guess (Devlin et al. 2019)."""
LENGTH, WORDS = 32, 2000
BATCH, LEARNING_RATE = 32, 0.002


@dataclass(frozen=True)
class Text:
    """What is read first, `(symbols,)`; what is classified, `(n, LENGTH)`, with its right labels.

    Symbols are numbered from 1; 0 is padding and what is hidden. Rows from `cut` on are not trained on.
    """

    read: np.ndarray
    symbols: int
    rows: np.ndarray
    labels: np.ndarray
    cut: int


@lru_cache(maxsize=2)
def sources() -> Text:
    """Return Python's language reference, and pieces of the source of two of its modules, by characters."""
    parts = [prose.numbers(source) for source in prose.modules()[:2]]
    pieces = [part[: len(part) // LENGTH * LENGTH].reshape(-1, LENGTH) for part in parts]
    fewest = min(map(len, pieces))
    rows = np.stack([each[:fewest] for each in pieces], axis=1).reshape(-1, LENGTH)  # in turn, in their order
    labels = np.tile([0, 1], fewest)
    return Text(prose.numbers(prose.prose()), len(prose.alphabet()), rows, labels, len(rows) * 6 // 10)


@lru_cache(maxsize=2)
def reviews() -> Text:
    """Return film-review sentences, by their 2,000 most frequent words, and whether people liked the film."""
    rated = annotators.rated()
    words = [one.text.lower().split() for one in rated]
    frequent = Counter(chain.from_iterable(words)).most_common(WORDS - 1)
    known = {word: k for k, (word, _) in enumerate(frequent, 1)}
    ids = [[known.get(word, WORDS) for word in of] for of in words]
    rows = np.array([(of + [0] * LENGTH)[:LENGTH] for of in ids])
    labels = np.array([int(one.mean > 0) for one in rated])
    order, read = np.random.default_rng(0).permutation(len(rows)), np.array(list(chain.from_iterable(ids)))
    return Text(read, WORDS, rows[order], labels[order], len(rows) * 6 // 10)


TEXTS = {"source code": sources, "film reviews": reviews}


@lru_cache(maxsize=2)
def pretrained(name: str, causal: bool, seed: int, steps: int) -> GPT:
    """Return a GPT that has learnt to tell the next symbol, or a BERT that has learnt to tell hidden ones."""
    text, random = TEXTS[name](), np.random.default_rng((seed, 5))
    model = GPT(text.symbols + 1, LENGTH, causal=causal, seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weights = torch.full((BATCH,), 1.0 / BATCH)
    for _ in range(steps):
        starts = random.integers(0, len(text.read) - LENGTH - 1, BATCH)
        ids = torch.from_numpy(text.read[starts[:, None] + np.arange(LENGTH + 1)])
        if causal:
            descend(model, optimizer, (ids[:, :-1], ids[:, 1:].contiguous()), weights, next_loss)
        else:
            hidden = torch.from_numpy(random.random((BATCH, LENGTH)) < HIDDEN)
            seen, target = ids[:, :-1] * ~hidden, ids[:, :-1].where(hidden, -100)
            descend(model, optimizer, (seen, target), weights, hidden_loss)
    return model


def hidden_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return each sequence's loss summed over its hidden symbols, over how many are hidden on average."""
    losses = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none", ignore_index=-100)
    return losses.sum(1) / (HIDDEN * LENGTH)


def fine_tuning(
    seed: int,
    *,
    text: str,
    causal: bool,
    share: float,
    training: int,
    reading: int,
    epochs: int,
    testing: int = 1000,
) -> Task:
    """Return so many training pieces, 100 clean ones to validate on, and those to test on.

    The network has been `reading` for so many steps before.
    """
    found, random = TEXTS[text](), np.random.default_rng((seed, 7))
    rows, labels = torch.from_numpy(found.rows), torch.from_numpy(found.labels)
    early = random.permutation(found.cut)[:training]
    late = found.cut + random.permutation(len(labels) - found.cut)[: 100 + testing]
    given = labels[early].clone()
    given[: round(share * len(given))] ^= 1  # the pieces are in random order

    def network(network_seed: int) -> nn.Module:
        model = pretrained(text, causal, network_seed, reading)
        return Classifier(copy.deepcopy(model), 2, seed=network_seed)

    sets = (rows[early], given), *((rows[part], labels[part]) for part in (late[:100], late[100:]))
    return Task(*sets, (given != labels[early]).float(), network, LEARNING_RATE, BATCH, epochs)
