"""One training run, whatever framework steps the network."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.noisy_labels.data import NoisyDigits, Samples, stream
from experiments.noisy_labels.recipe import Method, Recipe

Parameters = list[tuple[np.ndarray, np.ndarray]]


class Learner(Protocol):
    """A network that takes steps on rows of the samples it was given."""

    def step(
        self, rows: Int[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, " n"] | None, Bool[np.ndarray, " n"]]:
        """Train on the rows; return their scores (None if unscored) and which of them were kept."""

    def predict(self, inputs: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " n"]:
        """Return the class the network sees in each image."""

    def losses(self) -> Float[np.ndarray, " n_train"]:
        """Return the losses of the samples it was given to train on."""


MakeLearner = Callable[[Method, Samples, Samples, Parameters, Recipe], Learner]
"""From the method, the samples to train on, the validation set and initial parameters to a learner."""


@dataclass(frozen=True)
class Run:
    """What one training run did.

    Attributes
    ----------
    test_accuracy, validation_accuracy
        `(epochs,)`, after each epoch.
    scores
        `(epochs, n)`: each sample's score when its batch came up; NaN if unscored. Positive helps.
    kept
        `(epochs, n)`: whether it took part in the update.
    seconds
        Spent in steps, scoring included, evaluation excluded.
    """

    test_accuracy: Float[np.ndarray, " epochs"]
    validation_accuracy: Float[np.ndarray, " epochs"]
    scores: Float[np.ndarray, "epochs n"]
    kept: Bool[np.ndarray, "epochs n"]
    seconds: float


def initial_parameters(seed: int, widths: tuple[int, ...]) -> Parameters:
    """Draw weights `(d_out, d_in)` and biases, uniform within `1/sqrt(d_in)`: the same in any framework."""
    random = stream(seed, "initial parameters")
    drawn = []
    for d_in, d_out in itertools.pairwise(widths):
        bound = d_in**-0.5
        weight = random.uniform(-bound, bound, (d_out, d_in))
        drawn.append((weight.astype(np.float32), random.uniform(-bound, bound, d_out).astype(np.float32)))
    return drawn


def batches(
    n_samples: int, steps: int, recipe: Recipe, random: np.random.Generator
) -> Iterator[Int[np.ndarray, " batch"]]:
    """Yield `steps` batches of rows: as many shuffled passes over the samples as that takes."""
    passes = -(-steps * recipe.batch // n_samples)
    order = np.concatenate([random.permutation(n_samples) for _ in range(passes)])
    for start in range(0, steps * recipe.batch, recipe.batch):
        yield order[start : start + recipe.batch]


def train(
    make: MakeLearner,
    method: Method,
    data: NoisyDigits,
    recipe: Recipe,
    seed: int,
    *,
    on: Samples | None = None,
    after_epoch: Callable[[], None] = lambda: None,
) -> Run:
    """Train one network from the seed's initial parameters on the seed's order of samples.

    Parameters
    ----------
    make
        Builds the learner.
    method, data, recipe, seed
        What to train.
    on
        The samples to train on; None: the noisy training set. An epoch has the same number of steps
        whatever they are, about one pass over the training set.
    after_epoch
        Called after each epoch, for a progress bar.

    Returns
    -------
    Run
        What it did.
    """
    samples = data.training if on is None else on
    learner = make(method, samples, data.validation, initial_parameters(seed, recipe.widths), recipe)
    order = stream(seed, "order of samples")
    steps = max(1, len(data.training) // recipe.batch)
    scores = np.full((recipe.epochs, len(samples)), np.nan, np.float32)
    kept = np.zeros((recipe.epochs, len(samples)), bool)
    test, validation = np.empty(recipe.epochs), np.empty(recipe.epochs)
    seconds = 0.0
    for epoch in range(recipe.epochs):
        for rows in batches(len(samples), steps, recipe, order):
            start = time.perf_counter()
            scored, kept[epoch, rows] = learner.step(rows)
            seconds += time.perf_counter() - start
            if scored is not None:
                scores[epoch, rows] = scored
        test[epoch] = _accuracy(learner, data.test)
        validation[epoch] = _accuracy(learner, data.validation)
        after_epoch()
    return Run(test, validation, scores, kept, seconds)


def _accuracy(learner: Learner, samples: Samples) -> float:
    return float(np.mean(learner.predict(samples.inputs) == samples.labels))
