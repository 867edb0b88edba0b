"""Both frameworks from the same parameters on the same rows: the same network, step by step."""

from dataclasses import replace

import numpy as np
import pytest
from experiments.noisy_labels.data import noisy_digits
from experiments.noisy_labels.recipe import METHODS, Recipe
from experiments.noisy_labels.study import learner_of
from experiments.noisy_labels.training import initial_parameters

RECIPE = Recipe(widths=(64, 16, 16, 10), learning_rate=1e-3)
DIGITS = noisy_digits(0)
ROWS = np.random.default_rng(0).permutation(1024)[: 3 * 128].reshape(3, 128)


def _learner(backend, method, recipe=RECIPE):
    parameters = initial_parameters(0, recipe.widths)
    return learner_of(backend)(method, DIGITS.training, DIGITS.validation, parameters, recipe)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_the_frameworks_score_keep_and_predict_alike(method):
    torch, jax = (_learner(backend, method) for backend in ("torch", "jax"))
    for rows in ROWS:
        (scores, kept), (jax_scores, jax_kept) = torch.step(rows), jax.step(rows)
        if method.estimator is None:
            assert scores is None
            assert jax_scores is None
        else:
            assert np.abs(scores - jax_scores).max() < 1e-3 * np.abs(scores).max()
        assert np.mean(kept != jax_kept) <= 2 / 128  # rounding turns the sign of scores near 0
    predictions = [learner.predict(DIGITS.test.inputs) for learner in (torch, jax)]
    assert np.mean(predictions[0] != predictions[1]) < 0.02


def _forward(parameters, inputs):
    """Return what every layer receives, and the outputs."""
    received = []
    for weight, bias in parameters:
        received.append(inputs)
        outputs = inputs @ weight.T + bias
        inputs = np.maximum(outputs, 0)
    return received, outputs


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_first_step_keeps_what_lai_by_hand_keeps(backend):
    parameters = initial_parameters(0, RECIPE.widths)

    def parts(samples, rows):
        received, outputs = _forward(parameters, samples.inputs[rows].astype(np.float64))
        odds = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return received, odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[samples.labels[rows]]

    training, gradients = parts(DIGITS.training, ROWS[0])
    validation, validation_gradients = parts(DIGITS.validation, slice(None))
    alpha = sum(1 + b @ a.T for a, b in zip(training, validation, strict=True))
    expected = (alpha * (validation_gradients @ gradients.T)).sum(axis=0)
    by_name = {method.name: method for method in METHODS}
    scores, kept = _learner(backend, by_name["lai"]).step(ROWS[0])
    assert np.allclose(scores, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert np.array_equal(kept, scores > 0)
    scores, kept = _learner(backend, by_name["lai_as_printed"]).step(ROWS[0])
    assert np.array_equal(kept, scores < 0)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_plain_training_keeps_all_and_learns(backend):
    learner = _learner(backend, METHODS[0], replace(RECIPE, learning_rate=0.01))
    before = learner.predict(DIGITS.test.inputs)
    for _ in range(60):
        _, kept = learner.step(np.flatnonzero(~DIGITS.flipped)[:128])
        assert kept.all()
    right = [np.mean(p == DIGITS.test.labels) for p in (before, learner.predict(DIGITS.test.inputs))]
    assert right[1] > right[0] + 0.3
