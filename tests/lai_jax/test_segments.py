"""Scores of packed documents, against the batch in which each is a row of its own."""

import re

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

from tests.lai_jax.oracle import drawn
from tests.lai_jax.support import cross_entropy as loss

ESTIMATORS = ["lai", "lli", "ghost", "exact"]
PARAMS = {"e": drawn(7, 4), "w": drawn(4, 4, seed=1), "o": drawn(4, 5, seed=2)}
SEGMENTS = jnp.array([[0, 0, 1, 1, 1], [2, 2, 2, 3, 3]])


def apart(params, ids, segment_ids):
    """Read a document's mean: of the row's, where no segments are given."""
    read = params["e"][ids]
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    mixed = same @ read / same.sum(-1, keepdims=True)
    return jnp.tanh((read + mixed) @ params["w"]) @ params["o"]


def together(params, ids, segment_ids):
    return apart(params, ids, jnp.zeros_like(segment_ids))


def batch(seed, segments):
    generator = np.random.default_rng(seed)
    ids, targets = (jnp.asarray(generator.integers(0, most, segments.shape)) for most in (7, 5))
    return {"ids": ids, "segment_ids": segments}, targets


VALIDATION = batch(0, jnp.array([[0, 0, 0]]))
TRAINING = batch(1, SEGMENTS)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_documents_score_as_rows_of_their_own(estimator):
    found = lai_jax.segment_scores(
        apart, PARAMS, loss, VALIDATION, TRAINING, SEGMENTS, 4, estimator=estimator
    )
    expected = []
    for k in range(4):
        own = jax.tree.map(lambda leaf, k=k: leaf[k == SEGMENTS][None], TRAINING)
        alone = jnp.zeros_like(own[1])
        expected += [
            lai_jax.segment_scores(apart, PARAMS, loss, VALIDATION, own, alone, 1, estimator=estimator)
        ]
    np.testing.assert_allclose(found, jnp.concatenate(expected), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_segments_that_see_one_another_are_refused_but_by_exact(estimator):
    arguments = together, PARAMS, loss, VALIDATION, TRAINING, SEGMENTS, 4
    if estimator == "exact":
        found = lai_jax.segment_scores(*arguments, estimator=estimator)
        rows = lai_jax.exact_scores(together, PARAMS, lambda o, t: loss(o, t).sum(1), VALIDATION, TRAINING)
        np.testing.assert_allclose(found.reshape(2, 2).sum(1), rows, rtol=1e-10)
        return
    message = "segments: expected ones that do not see one another, got a loss at position 0 of row 0 that "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        lai_jax.segment_scores(*arguments, estimator=estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_compiled_program_gives_the_same(estimator):
    def scores(params, segments):
        return lai_jax.segment_scores(
            apart, params, loss, VALIDATION, TRAINING, segments, 4, estimator=estimator
        )

    np.testing.assert_allclose(
        jax.jit(scores)(PARAMS, SEGMENTS), scores(PARAMS, SEGMENTS), rtol=1e-10, atol=1e-13
    )


def test_wrong_segments_are_refused_by_name():
    for estimator in ESTIMATORS:
        with pytest.raises(ValueError, match=r"^segments: expected shape \(n, t\) = \(2, 5\), got \(5,\)"):
            lai_jax.segment_scores(
                apart, PARAMS, loss, VALIDATION, TRAINING, SEGMENTS[0], 4, estimator=estimator
            )


def test_a_head_that_is_zero_so_far_hides_no_leak():
    params = PARAMS | {"o": jnp.zeros((4, 5))}
    with pytest.raises(ValueError, match="segments: expected ones that do not see one another"):
        lai_jax.segment_scores(together, params, loss, VALIDATION, TRAINING, SEGMENTS, 4)


def test_segments_may_be_numpys():
    found, expected = (
        lai_jax.segment_scores(apart, PARAMS, loss, VALIDATION, TRAINING, kind(SEGMENTS), 4)
        for kind in (np.asarray, jnp.asarray)
    )
    np.testing.assert_array_equal(found, expected)
