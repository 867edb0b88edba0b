"""Seventeen settings with several sources of data: bad ones, scarce ones, unknown ones, meaningless ones."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from experiments.mixtures.arms import Batch, Perceptrons, Task

Samples = tuple[np.ndarray, np.ndarray]
"""Inputs and labels."""
Sources = dict[str, Samples]
Drawn = tuple[Sources, Sequence[Samples], Sequence[Samples]]
"""What one seed draws: its sources with their names, and what it validates and tests on."""
HELD, TESTED = 100, 450


def wrong(random: np.random.Generator, samples: Samples, share: float, classes: int = 10) -> Samples:
    """Return samples of which a share has another label."""
    inputs, labels = samples
    moved = np.where(random.random(len(labels)) < share, random.integers(1, classes, len(labels)), 0)
    return inputs, (labels + moved) % classes


def of_images(
    make: Callable[..., Sources], *, held: int = HELD, bad: float = 0.0, **options: Any
) -> Callable[[np.random.Generator], Drawn]:
    """Return what draws sources of digits, `held` images to validate on and 450 to test on.

    A share `bad` of the validation labels is wrong.
    """

    def drawn(random: np.random.Generator) -> Drawn:
        pixels, labels = load_digits(return_X_y=True)
        order = random.permutation(len(labels))
        pixels, labels = pixels[order] / 16.0, labels[order]
        parts = slice(TESTED + HELD, None), slice(TESTED, TESTED + held), slice(TESTED)
        training, validation, test = ((pixels[part], labels[part]) for part in parts)
        found = make(random, training, **options)
        return found, [wrong(random, validation, bad)], [test]

    return drawn


def cut(samples: Samples, sizes: Sequence[int]) -> list[Samples]:
    """Return parts of so many samples each."""
    ends = np.cumsum([0, *sizes])
    return [(samples[0][a:b], samples[1][a:b]) for a, b in pairwise(ends)]


def joined(sources: Sources) -> Samples:
    """Return samples one after the other."""
    inputs, labels = zip(*sources.values(), strict=True)
    return np.concatenate(inputs), np.concatenate(labels)


def digits(random: np.random.Generator, training: Samples, *, mixed: float = 0.0) -> Sources:
    """Return six sources of digits, a share `mixed` of whose samples has another source's name."""
    clean, some, most, moved, few, permuted = cut(training, [150, 200, 250, 200, 20, 200])
    shifted = np.roll(moved[0].reshape(-1, 8, 8), 1, 2).reshape(-1, 64)
    found = {
        "clean": clean,
        "40% wrong": wrong(random, some, 0.4),
        "80% wrong": wrong(random, most, 0.8),
        "shifted, noise": (np.clip(shifted + random.normal(0.0, 0.4, shifted.shape), 0.0, 1.0), moved[1]),
        "20 copied": (np.repeat(few[0], 10, 0), np.repeat(few[1], 10)),
        "pixels permuted": (permuted[0][:, random.permutation(64)], permuted[1]),
    }
    if mixed:
        inputs, labels = joined(found)
        order = np.arange(len(labels))
        lost = np.flatnonzero(random.random(len(labels)) < mixed)
        order[lost] = random.permutation(lost)
        sizes = [len(of) for _, of in found.values()]
        found = dict(zip(found, cut((inputs[order], labels[order]), sizes), strict=True))
    return found


def clusters(random: np.random.Generator, training: Samples) -> Sources:
    """Return the six sources' samples in eight clusters of their inputs, where the sources are unknown.

    Clusters of one size: samples are cut in two at the median of their first principal component, thrice.
    """
    inputs, labels = joined(digits(random, training))
    parts = [np.arange(len(labels))]
    for _ in range(3):
        halves = []
        for part in parts:
            centred = inputs[part] - inputs[part].mean(0)
            order = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], kind="stable")
            halves += np.array_split(part[order], 2)
        parts = halves
    return {f"cluster {at}": (inputs[part], labels[part]) for at, part in enumerate(parts)}


def two(random: np.random.Generator, training: Samples) -> Sources:
    """Return a clean source and one with wrong labels."""
    clean, bad = cut(training, [300, 600])
    return {"clean": clean, "80% wrong": wrong(random, bad, 0.8)}


def thirty(random: np.random.Generator, training: Samples) -> Sources:
    """Return thirty sources of 36 images, ten of them clean."""
    parts, shares = cut(training, [36] * 30), {"clean": 0.0, "half wrong": 0.5, "90% wrong": 0.9}
    return {
        f"{name} {at}": wrong(random, part, shares[name])
        for at, (part, name) in enumerate(zip(parts, [*shares] * 10, strict=True))
    }


def scarce(random: np.random.Generator, training: Samples) -> Sources:
    """Return few clean samples, which are soon learnt by heart, and plenty of worse ones."""
    few, plenty, most, permuted = cut(training, [40, 700, 250, 250])
    return {
        "40 clean": few,
        "30% wrong": wrong(random, plenty, 0.3),
        "80% wrong": wrong(random, most, 0.8),
        "pixels permuted": (permuted[0][:, random.permutation(64)], permuted[1]),
    }


def same(random: np.random.Generator, training: Samples) -> Sources:
    """Return six random parts of clean digits."""
    return dict(zip("abcdef", cut(training, [100, 150, 200, 250, 250, 250]), strict=True))


def classes(random: np.random.Generator, training: Samples) -> Sources:
    """Return clean digits, two classes a source."""
    inputs, labels = training
    rows = {f"{2 * pair} and {2 * pair + 1}": np.flatnonzero(labels // 2 == pair)[:200] for pair in range(5)}
    return {name: (inputs[of], labels[of]) for name, of in rows.items()}


def drift(random: np.random.Generator) -> Drawn:
    """Return a target that changes half-way, to digits that are turned and have other names."""

    def turned(samples: Samples) -> Samples:
        return np.rot90(samples[0].reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64), (samples[1] + 3) % 10

    def parts(random: np.random.Generator, training: Samples) -> Sources:
        first, second, bad, other = cut(training, [300] * 4)
        return {
            "first": first,
            "second": turned(second),
            "first, 80% wrong": wrong(random, bad, 0.8),
            "second, 80% wrong": wrong(random, turned(other), 0.8),
        }

    found, *held = of_images(parts)(random)
    return found, *([of, turned(of)] for (of,) in held)


def parity(random: np.random.Generator, bits: int = 20) -> Drawn:
    """Return the parity of four bits: an easy source whose bits are biased, the target's, random labels."""

    def drawn(count: int, share: float) -> Samples:
        signs = np.where(random.random((count, bits)) < share, 1.0, -1.0)
        return signs, (signs[:, :4].prod(1) > 0).astype(int)

    found = {"easy": drawn(3000, 0.85), "the target's": drawn(3000, 0.5)}
    found["random labels"] = drawn(3000, 0.5)[0], random.integers(0, 2, 3000)
    return found, [drawn(HELD, 0.5)], [drawn(600, 0.5)]


def chains(random: np.random.Generator, *, held: int, letters: int = 12) -> Drawn:
    """Return text by Markov chains of order 2, three characters of context: the target's own is scarce."""
    target, near, far = (random.dirichlet(np.full(letters, 0.15), letters**2) for _ in range(3))
    eye = np.eye(letters)

    def written(chain: np.ndarray, count: int) -> np.ndarray:
        sums, drawn, text = chain.cumsum(1), random.random(count + 50), [0, 1]
        for each in drawn:
            row = sums[text[-2] * letters + text[-1]]
            text.append(min(int(np.searchsorted(row, each)), letters - 1))
        return np.array(text[-count:])

    def read(text: np.ndarray) -> Samples:
        return np.concatenate([eye[text[:-3]], eye[text[1:-2]], eye[text[2:-1]]], 1), text[3:]

    own = written(target, 4003)
    found = {
        "target, 500": written(target, 503),
        "70% target": written(0.7 * target + 0.3 * near, 4003),
        "40% target": written(0.4 * target + 0.6 * near, 4003),
        "other": written(far, 4003),
        "shuffled": random.permutation(own),
        "loop": np.tile(written(target, 63), 64)[:4003],
    }
    validation, test = written(target, held + 3), written(target, 2003)
    return {name: read(text) for name, text in found.items()}, [read(validation)], [read(test)]


def tabular(random: np.random.Generator, width: int = 20, count: int = 600) -> Drawn:
    """Return eight domains of five classes, each class three clouds."""
    centres = random.normal(0.0, 1.1, (5, 3, width))

    def drawn(count: int = count, chances: Any = None) -> Samples:
        labels = random.choice(5, count, p=chances)
        return centres[labels, random.integers(0, 3, count)] + random.normal(size=(count, width)), labels

    def moved(inputs: Callable[[np.ndarray], np.ndarray] = lambda x: x, shift: int = 0) -> Samples:
        found, labels = drawn()
        return inputs(found), (labels + shift) % 5

    turn, away = np.linalg.qr(random.normal(size=(width, width)))[0], 0.7 * random.normal(size=width)
    found = {
        "target, 150": drawn(150),
        "shifted": moved(lambda x: x + away),
        "35% wrong": wrong(random, drawn(), 0.35, 5),
        "75% wrong": wrong(random, drawn(), 0.75, 5),
        "rotated": moved(lambda x: x @ turn),
        "half missing": moved(lambda x: x * (np.arange(width) >= width // 2)),
        "few classes": drawn(chances=[0.6, 0.2, 0.2, 0.0, 0.0]),
        "labels moved": moved(shift=1),
    }
    return found, [drawn(HELD)], [drawn(1000)]


DIGITS = ((1, 0, 0, 0.5, 0.2, 0), (1, 1, 0, 0.5, 0.2, 0))
TEXTS = ((1, 2, 0, 0, 0, 0), (1, 2, 1, 0, 0, 0))
TABLES = ((1, 1, 0, 0, 0, 0, 1, 0), (1, 1, 0, 0, 0, 1, 1, 0))
SETTINGS: dict[str, tuple[Callable[[np.random.Generator], Drawn], int, tuple[tuple[float, ...], ...]]] = {
    "bad sources": (of_images(digits), 800, DIGITS),
    "20 to validate": (of_images(digits, held=20), 800, DIGITS),
    "wrong validation labels": (of_images(digits, bad=0.4), 800, DIGITS),
    "tabular": (tabular, 800, TABLES),
    "text, 30 to validate": (partial(chains, held=30), 1600, TEXTS),
    "text, 200 to validate": (partial(chains, held=200), 1600, TEXTS),
    "text, 1000 to validate": (partial(chains, held=1000), 1600, TEXTS),
    "scarce clean source": (of_images(scarce), 800, ((1, 1, 0, 0), (0.3, 1, 0, 0))),
    "drift": (drift, 1200, ((1, 1, 0, 0), (0, 1, 0, 0))),
    "curriculum": (parity, 1600, ((1, 1, 0), (0.5, 1, 0))),
    "nothing wrong": (of_images(same), 800, ((1,) * 6,)),
    "sources by class": (of_images(classes), 800, ((1,) * 5,)),
    "random sources": (of_images(digits, mixed=1.0), 800, ((1,) * 6,)),
    "half random sources": (of_images(digits, mixed=0.5), 800, DIGITS),
    "sources unknown, clusters": (of_images(clusters), 800, ((1,) * 8,)),
    "2 sources": (of_images(two), 800, ((1, 0),)),
    "30 sources": (of_images(thirty), 800, ((1, 0, 0) * 10, (1, 0.3, 0) * 10)),
}
"""Of each: what a seed draws, the steps of plain training, and the mixtures that the oracle tries."""


def task(setting: str, seeds: Sequence[int], steps: int | None = None) -> Task:
    """Return a setting's task of all seeds."""
    make, most, known = SETTINGS[setting]
    drawn, validation, test = zip(*(make(np.random.default_rng((seed, 23))) for seed in seeds), strict=True)
    inputs, targets = _stacked([joined(sources) for sources in drawn])
    return Task(
        inputs,
        targets,
        tuple(drawn[0]),
        tuple(len(labels) for _, labels in drawn[0].values()),
        *(tuple(_stacked(half) for half in zip(*of, strict=True)) for of in (validation, test)),
        known,
        partial(Perceptrons, inputs.shape[2], int(targets.max()) + 1, seeds),
        most if steps is None else steps,
    )


def _stacked(parts: Sequence[Samples]) -> Batch:
    inputs, labels = (np.stack(each) for each in zip(*parts, strict=True))
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels)
