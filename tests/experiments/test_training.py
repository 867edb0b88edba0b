"""The loop that every framework shares, run with a learner whose answers are known."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.noisy_labels.data import noisy_digits
from experiments.noisy_labels.recipe import METHODS, PLAIN, Recipe
from experiments.noisy_labels.training import batches, initial_parameters, train

from tests.experiments.runs import CountingLearner

RECIPE = Recipe(epochs=2)


def _train(**options):
    made = []

    def make(*args):
        made.append(CountingLearner(*args))
        return made[-1]

    run = train(make, METHODS[1], noisy_digits(0), RECIPE, 0, **options)
    return run, made[0]


def test_every_epoch_sees_every_sample_once_in_an_order_of_its_own():
    run, learner = _train()
    epochs = np.split(np.concatenate(learner.seen), 2)
    assert all(np.array_equal(np.sort(rows), np.arange(1024)) for rows in epochs)
    assert not np.array_equal(*epochs)
    assert all(len(rows) == RECIPE.batch for rows in learner.seen)
    assert np.array_equal(run.scores, np.tile(np.arange(1024), (2, 1)))
    assert np.array_equal(run.kept, run.scores % 2 == 0)


def test_accuracy_is_that_of_each_epoch_on_clean_labels():
    run, _ = _train()
    digits = noisy_digits(0)
    assert run.test_accuracy.tolist() == [np.mean(digits.test.labels == 8), 0.0]  # 8 steps, then 16
    assert run.validation_accuracy.tolist() == [np.mean(digits.validation.labels == 8), 0.0]


def test_all_methods_meet_the_same_samples_from_the_same_parameters():
    (_, one), (_, two) = _train(), _train()
    assert np.array_equal(one.seen, two.seen)
    for (weight, bias), (same_weight, same_bias) in zip(one.parameters, two.parameters, strict=True):
        assert np.array_equal(weight, same_weight)
        assert np.array_equal(bias, same_bias)


def test_a_smaller_set_is_trained_on_for_as_many_steps():
    digits = noisy_digits(0)
    run, learner = _train(on=digits.validation)
    assert learner.training is digits.validation
    assert len(learner.seen) == 16
    assert run.kept.shape == (2, 300)


def test_batches_go_over_the_samples_as_often_as_it_takes():
    rows = np.concatenate(list(batches(10, 5, replace(RECIPE, batch=6), np.random.default_rng(0))))
    assert np.bincount(rows).tolist() == [3] * 10


def test_parameters_are_within_the_bound_of_their_layer():
    drawn = initial_parameters(0, (64, 128, 10))
    assert [(weight.shape, bias.shape) for weight, bias in drawn] == [((128, 64), (128,)), ((10, 128), (10,))]
    for weight, bias in drawn:
        bound = weight.shape[1] ** -0.5
        assert np.abs(weight).max() <= bound
        assert np.abs(weight).max() > 0.95 * bound
        assert np.abs(bias).max() <= bound


def test_progress_is_reported_once_an_epoch():
    calls = []
    _train(after_epoch=lambda: calls.append(1))
    assert len(calls) == 2


@pytest.mark.parametrize("estimator", ["ghost", "lai", "lli", "preconditioned_lai"])
def test_every_estimator_is_among_the_methods(estimator):
    assert estimator in {method.name for method in METHODS if method.estimator == estimator}
    assert METHODS[0] is PLAIN
