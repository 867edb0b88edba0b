"""Which method trains on what, from what, for each seed."""

import numpy as np
from experiments.noisy_labels.data import noisy_digits
from experiments.noisy_labels.recipe import METHODS, REFERENCES, Recipe
from experiments.noisy_labels.study import n_epochs, run_study

from tests.experiments.runs import CountingLearner

N_RUNS = len(METHODS) + len(REFERENCES)


def _study():
    made, calls = [], []

    def make(*args):
        made.append(CountingLearner(*args))
        return made[-1]

    recipe = Recipe(epochs=1)
    study = run_study(make, recipe, 2, calls.append)
    warm, rest = made[: len(METHODS)], made[len(METHODS) :]
    return study, warm, (rest[:N_RUNS], rest[N_RUNS:]), calls


def test_seeds_differ_in_data_parameters_and_order_and_methods_do_not():
    _, _, by_seed, _ = _study()
    for seed, learners in enumerate(by_seed):
        digits = noisy_digits(seed)
        for learner in learners:
            assert np.array_equal(learner.validation.inputs, digits.validation.inputs)
            assert np.array_equal(learner.parameters[0][0], learners[0].parameters[0][0])
        for learner in learners[: len(METHODS)]:
            assert np.array_equal(learner.training.labels, digits.training.labels)
            assert np.array_equal(learner.seen, learners[0].seen)
    one, other = (learners[0] for learners in by_seed)
    assert not np.array_equal(one.parameters[0][0], other.parameters[0][0])
    assert not np.array_equal(one.seen, other.seen)


def test_references_train_on_right_labels_and_on_the_validation_set():
    _, _, by_seed, _ = _study()
    for seed, learners in enumerate(by_seed):
        digits = noisy_digits(seed)
        unflipped, validation = (learner.training for learner in learners[-2:])
        assert np.array_equal(unflipped.labels, digits.true_labels[~digits.flipped])
        assert np.array_equal(unflipped.inputs, digits.training.inputs[~digits.flipped])
        assert np.array_equal(validation.labels, digits.validation.labels)


def test_every_epoch_of_every_run_is_reported_and_the_warm_up_is_not():
    study, warm, _, calls = _study()
    assert [learner.method for learner in warm] == list(METHODS)
    assert len(calls) == n_epochs(study.recipe, 2) == 2 * N_RUNS
    assert [len(runs) for runs in (study.methods | study.references).values()] == [2] * N_RUNS
