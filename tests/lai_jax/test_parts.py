"""A validation set summarized in parts: their scores, and the policy that tests them, in one program."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

import lai_core as lai
from tests.lai_jax.support import computed, dense, drawn, squares, stepped, vectors, weights

MODEL, VALIDATION, BATCH = (dense, weights(w=(4, 6), o=(6, 3)), squares), vectors(11), vectors(5)


@pytest.mark.parametrize(("estimator", "rows"), [("lai", None), ("ghost", 3), ("preconditioned_lai", None)])
def test_scores_of_parts_are_those_against_each_part_alone(estimator, rows):
    extra = (jnp.zeros(3),) if estimator == "preconditioned_lai" else ()

    def report_on(validation, policy=lai.keep_positive, **side):
        how = {"estimator": estimator, "policy": policy, "rows": rows, "side": side}
        return stepped(MODEL, validation, BATCH, *extra, **how)[2]

    report = report_on(VALIDATION, lai.drop_harmful, parts=4)
    np.testing.assert_array_equal(report.sizes, [2, 3, 3, 3])
    np.testing.assert_allclose(report.parts.sum(0), report.scores, rtol=1e-9)
    for end, size, scores in zip(np.cumsum(report.sizes), report.sizes, report.parts, strict=True):
        alone = report_on(tuple(side[end - size : end] for side in VALIDATION))
        np.testing.assert_allclose(scores, alone.scores, rtol=1e-9)
    if rows is None:
        expected = lai.drop_harmful(report.parts, sizes=report.sizes)
        np.testing.assert_allclose(report.weights, expected)
    else:
        assert int(report.kept) <= rows


def test_inputs_are_scaled_by_their_running_second_moments_where_asked():
    how = {"estimator": "preconditioned_lai", "exponent": 0.5, "decay": 0.5, "scale_inputs": True}
    moments = sums = None
    for draw in range(2):
        batch = drawn(5, 4) + draw, drawn(5)
        sides = [computed(lai_jax.trace, *MODEL, *side) for side in (VALIDATION, batch)]
        layers = sides[1].layers
        squared = [layers[-1].output_gradients, *(layer.activations for layer in layers)]
        news = [0.5 * (x**2).mean(0) for x in squared]
        sums = news if sums is None else [0.5 * one + new for one, new in zip(sums, news, strict=True)]
        report = stepped(MODEL, VALIDATION, batch, moments, **how)[2]
        moments = report.second_moment
        expected = lai.preconditioned_lai_scores(*sides, sums[0], input_second_moments=sums[1:], exponent=0.5)
        np.testing.assert_allclose(report.scores, expected, rtol=1e-9)


def test_numpy_arrays_are_summarized_in_parts_outside_of_jit():
    found = lai_jax.summarize(*MODEL, *map(np.asarray, VALIDATION), parts=4)
    expected = computed(lai_jax.summarize, *MODEL, *VALIDATION, parts=4)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-12), found, expected)
