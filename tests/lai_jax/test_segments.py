"""Scores of packed documents, against the batch in which each is a row of its own."""

import functools
import re

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

from tests.lai_jax.support import computed, drawn
from tests.lai_jax.support import cross_entropy as loss

ESTIMATORS = ["lai", "lli", "ghost", "exact"]
PARAMS = {"e": drawn(7, 4), "w": drawn(4, 4, seed=1), "o": drawn(4, 5, seed=2)}
SEGMENTS = jnp.array([[0, 1, 0, 1, 1], [2, 2, 3, 2, 3]])


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


def scores(apply, training, segments, count, estimator, params=PARAMS):
    """Score segments by a traced program, which tries nothing on numbers."""
    function = functools.partial(computed, lai_jax.segment_scores, apply, params, loss, VALIDATION)
    return function(training, segments, count, estimator=estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_documents_score_like_separate_rows(estimator):
    found = scores(apart, TRAINING, SEGMENTS, 4, estimator)
    expected = []
    for k in range(4):
        own = jax.tree.map(lambda leaf, k=k: leaf[k == SEGMENTS][None], TRAINING)
        expected += [scores(apart, own, jnp.zeros_like(own[1]), 1, estimator)]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-10, atol=1e-13)
    given = PARAMS, loss, VALIDATION, TRAINING, np.asarray(SEGMENTS), 4
    outside = lai_jax.segment_scores(apart, *given, estimator=estimator)
    np.testing.assert_allclose(outside, found, rtol=1e-10, atol=1e-13)


def test_exact_scores_allow_interacting_segments():
    found = scores(together, TRAINING, SEGMENTS, 4, "exact")
    rows = computed(
        lai_jax.exact_scores, together, PARAMS, lambda o, t: loss(o, t).sum(1), VALIDATION, TRAINING
    )
    np.testing.assert_allclose(found.reshape(2, 2).sum(1), rows, rtol=1e-10)


HEADLESS = PARAMS | {"o": jnp.zeros((4, 5))}
"""A head that is zero so far hides no leak."""


@pytest.mark.parametrize(
    ("estimator", "params"), [("lai", PARAMS), ("lli", PARAMS), ("ghost", PARAMS), ("lai", HEADLESS)]
)
def test_only_exact_accepts_interacting_segments(estimator, params):
    message = "segments: expected ones that do not see one another, got a loss at position "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        lai_jax.segment_scores(together, params, loss, VALIDATION, TRAINING, SEGMENTS, 4, estimator=estimator)


@pytest.mark.parametrize("name", ["Attention_Mask", "cu_seqlens", "position_ids"])
def test_segment_checks_need_content_inputs(name):
    training = {name: TRAINING[0]["ids"], "ids": TRAINING[0]["ids"][:, :4]}, TRAINING[1]
    with pytest.raises(ValueError, match=r"^inputs: expected an array of contents, .* \(2, 5, \.\.\.\)"):
        lai_jax.check_segments(lambda p, **inputs: p["e"][inputs[name]], PARAMS, loss, training, SEGMENTS)


@pytest.mark.parametrize(
    "reads", [lambda t: jnp.roll(t, -1, 1), lambda t: t.sum(1, keepdims=True) % 5 + 0 * t]
)
def test_losses_reading_other_targets_are_refused(reads):
    """As one that shifts by itself does, or divides by what the whole row has."""
    segments = jnp.array([[0, 0, 0, 1, 1]])
    with pytest.raises(ValueError, match="another segment's contents or targets"):
        lai_jax.check_segments(apart, PARAMS, lambda o, t: loss(o, reads(t)), batch(1, segments), segments)
