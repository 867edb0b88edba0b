"""Every method on every seed."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from experiments.noisy_labels.data import NoisyDigits, Samples, noisy_digits
from experiments.noisy_labels.recipe import METHODS, REFERENCES, Method, Recipe
from experiments.noisy_labels.training import MakeLearner, Run, train

BACKENDS = ("torch", "jax")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """The data of each seed, and one run per method and seed.

    Attributes
    ----------
    recipe
        How all of them were trained.
    data
        By seed, from 0.
    methods, references
        By name of the method, then by seed.
    """

    recipe: Recipe
    data: list[NoisyDigits]
    methods: dict[str, list[Run]]
    references: dict[str, list[Run]]


def learner_of(backend: str) -> MakeLearner:
    """Return what makes a learner in the module of a framework, which is imported only now."""
    return importlib.import_module(f"experiments.noisy_labels.{backend}_learner").make_learner


def run_study(make: MakeLearner, recipe: Recipe, seeds: int, progress: Progress = lambda text: None) -> Study:
    """Train every method once per seed, seed after seed, so that slow moments of the machine hit all alike.

    Parameters
    ----------
    make
        Builds learners.
    recipe
        How to train.
    seeds
        How many; they are 0, 1, ...
    progress
        Called after every epoch of every run with what is being trained.

    Returns
    -------
    Study
        All runs.
    """
    data = [noisy_digits(seed) for seed in range(seeds)]
    study = Study(recipe, data, {m.name: [] for m in METHODS}, {m.name: [] for m in REFERENCES})
    _warm_up(make, data[0], recipe)
    for seed in range(seeds):
        for method in (*METHODS, *REFERENCES):
            text = f"seed {seed + 1}/{seeds}, {method.title}"
            run = train(
                make,
                method,
                data[seed],
                recipe,
                seed,
                on=_samples(method, data[seed]),
                after_epoch=lambda text=text: progress(text),
            )
            (study.references if method in REFERENCES else study.methods)[method.name].append(run)
    return study


def n_epochs(recipe: Recipe, seeds: int) -> int:
    """Return how often `run_study` calls `progress`."""
    return recipe.epochs * seeds * len((*METHODS, *REFERENCES))


def _samples(method: Method, data: NoisyDigits) -> Samples | None:
    """Return what a reference trains on; None: the noisy training set."""
    return {"unflipped_only": data.unflipped, "validation_only": data.validation}.get(method.name)


def _warm_up(make: MakeLearner, data: NoisyDigits, recipe: Recipe) -> None:
    """Train each method for one epoch, so that lazy imports and compilations are in nobody's seconds."""
    for method in METHODS:
        train(make, method, data, replace(recipe, epochs=1), seed=0)
