"""Runs written by hand, whose summaries and pictures are known, and a learner that trains nothing."""

import numpy as np
from experiments.noisy_labels.data import NoisyDigits, Samples, noisy_digits
from experiments.noisy_labels.recipe import METHODS, REFERENCES, Method, Recipe
from experiments.noisy_labels.study import Study
from experiments.noisy_labels.training import Parameters, Run


class CountingLearner:
    """Keeps even rows, scores a row by its index, and sees the number of steps so far in every image."""

    def __init__(
        self, method: Method, training: Samples, validation: Samples, parameters: Parameters, recipe: Recipe
    ) -> None:
        self.method, self.training, self.validation = method, training, validation
        self.parameters, self.recipe = parameters, recipe
        self.seen: list[np.ndarray] = []

    def step(self, rows: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        self.seen.append(rows)
        return rows.astype(np.float32), rows % 2 == 0

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.full(len(inputs), len(self.seen))

    def losses(self) -> np.ndarray:
        return np.zeros(len(self.training.labels))


def made_up_run(seed: int, epochs: int, flipped: np.ndarray, last: float) -> Run:
    """Make a run that ends at accuracy `last`, scores flipped samples lower and keeps positive scores."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(epochs, len(flipped))) - 1.5 * flipped
    accuracy = np.linspace(0.1, last, epochs) if epochs > 1 else np.array([last])
    return Run(accuracy, accuracy, scores.astype(np.float32), scores > 0, seconds=1.0 + seed)


def made_up_study(accuracy: dict[str, float], seeds: int = 2, epochs: int = 4) -> Study:
    """Make a study in which each method ends at the accuracy given; 0.9 where none is."""
    data: list[NoisyDigits] = [noisy_digits(seed) for seed in range(seeds)]

    def runs(name: str) -> list[Run]:
        last = accuracy.get(name, 0.9)
        return [made_up_run(seed, epochs, data[seed].flipped, last) for seed in range(seeds)]

    return Study(
        Recipe(epochs=epochs),
        data,
        {method.name: runs(method.name) for method in METHODS},
        {method.name: runs(method.name) for method in REFERENCES},
    )
