"""Both sides of a step: padded, in parts and chunks, and cut down to the best rows."""

import itertools

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from lai_jax._curation.rows import best

import lai_core as lai
from tests.lai_jax.support import computed, cross_entropy, dense, drawn, squares, stepped, vectors, weights

MODEL, VALIDATION, BATCH = (dense, weights(w=(4, 6), o=(6, 3)), squares), vectors(11), vectors(5)


@pytest.mark.parametrize(("estimator", "rows"), [("lai", None), ("ghost", 3), ("preconditioned_lai", None)])
def test_parts_score_like_separate_validations(estimator, rows):
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


@pytest.mark.parametrize("scale_inputs", [False, True])
def test_running_second_moments_scale_inputs(scale_inputs):
    how = {"estimator": "preconditioned_lai", "exponent": 0.5, "decay": 0.5, "scale_inputs": scale_inputs}
    moments, sums = None if scale_inputs else jnp.zeros(3), None
    for draw in range(2):
        batch = drawn(5, 4) + draw, drawn(5)
        sides = [computed(lai_jax.trace, *MODEL, *side) for side in (VALIDATION, batch)]
        layers = sides[1].layers
        squared = [layers[-1].output_gradients, *(layer.activations for layer in layers)]
        news = [0.5 * (x**2).mean(0) for x in squared]
        sums = news if sums is None else [0.5 * one + new for one, new in zip(sums, news, strict=True)]
        report = stepped(MODEL, VALIDATION, batch, moments, **how)[2]
        moments = report.second_moment
        inputs = sums[1:] if scale_inputs else None
        expected = lai.preconditioned_lai_scores(*sides, sums[0], input_second_moments=inputs, exponent=0.5)
        np.testing.assert_allclose(report.scores, expected, rtol=1e-9)
    losses = squares(dense(MODEL[1], batch[0]), batch[1])
    np.testing.assert_allclose(report.losses, losses, rtol=1e-12)
    np.testing.assert_allclose(report.loss, (losses * report.weights).sum(), rtol=1e-12)


@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("number", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("estimator", ["lai", "ghost", "exact", "gate_lai", "calibrated_lai"])
def test_nonfinite_validation_samples_count_for_nothing(estimator, number, chunk):
    (inputs, targets), sound = VALIDATION, np.arange(11) != 4
    # behind an infinite input the loss is finite; exact scores need the gradient to be so, too
    broken = inputs.at[4, 0].set(jnp.nan if estimator == "exact" else number), targets
    side = {} if estimator == "gate_lai" else {"chunk": chunk}
    found = stepped(MODEL, broken, BATCH, estimator=estimator, side=side)[2]
    expected = stepped(MODEL, (inputs[sound], targets[sound]), BATCH, estimator=estimator)[2]
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9)


def test_keys_determine_sketches():
    first, again, other = (lai_jax.draw_sketch(jax.random.key(key), 50, 8) for key in (0, 0, 1))
    assert set(np.asarray(first.signs).tolist()) == {-1, 1}
    assert sorted(np.asarray(first.permutation).tolist()) == list(range(50))
    for left, right, third in zip(*map(jax.tree.leaves, (first, again, other)), strict=True):
        np.testing.assert_array_equal(left, right)
        assert not np.array_equal(left, third)
    assert len(jax.tree.leaves(first)) == 2  # so that a sketch is redrawn and nothing compiled again
    assert abs(np.corrcoef(first.signs, np.argsort(first.permutation))[0, 1]) < 0.5


LENGTH, FURTHER = 5, 9


def padded(samples, seed, length):
    """Draw samples of 1 to 5 positions; what is in the padding is noise."""
    generator = np.random.default_rng(seed)
    lengths, words = generator.integers(1, LENGTH + 1, samples), generator.normal(size=(samples, LENGTH, 4))
    noise = generator.normal(size=(samples, length - LENGTH, 4))
    kept = np.arange(length) < lengths[:, None]
    inputs = {"words": np.concatenate([words, noise], 1), "kept": kept.astype(np.int64)}
    return jax.tree.map(jnp.asarray, inputs), jnp.asarray(np.arange(samples) % 3)


def read_words(params, words, kept):
    hidden = jnp.tanh(words @ params["inner"]) * kept[..., None]
    return (hidden @ params["outer"] * kept[..., None]).sum(1)


READER = read_words, weights(inner=(4, 6), outer=(6, 3)), cross_entropy


@pytest.mark.parametrize(
    ("estimator", "positions", "rows"),
    [
        ("lai", "mean", None),
        ("lai", "tokens", None),
        ("lai", "flatten", 2),
        ("preconditioned_lai", "mean", None),
        ("calibrated_lai", "mean", 2),
    ],
)
def test_scores_do_not_depend_on_padding(estimator, positions, rows):
    more = (jnp.zeros(3),) if estimator == "preconditioned_lai" else ()
    how = {"estimator": estimator, "valid": lambda inputs: inputs["kept"], "rows": rows}
    how |= {"side": {"positions": positions}}
    reports = [
        stepped(READER, padded(4, 0, length), padded(6, 1, length), *more, **how)[2]
        for length in (LENGTH, FURTHER)
    ]
    np.testing.assert_allclose(*(report.scores for report in reports), rtol=1e-10)


@pytest.mark.parametrize(("samples", "chunk", "factored"), [(7, None, True), (7, 3, True), (70, 30, False)])
def test_chunks_stay_factors_or_are_summed(samples, chunk, factored):
    """A summary of many outputs stays factors while these are less than their sum."""
    model = dense, weights(w=(9, 50), o=(50, 1300)), squares
    (inputs, targets), batch = ((drawn(n, 9, seed=n), drawn(n, seed=n)) for n in (samples, 4))
    broken = inputs.at[3, 0].set(jnp.nan)
    side = computed(lai_jax.summarize, *model, broken, targets, chunk=chunk).side
    assert side.factored == factored
    assert int(side.samples) == samples - 1
    finite = np.arange(samples) != 3
    sides = (inputs[finite], targets[finite]), batch
    traces = [computed(lai_jax.trace, *model, *side) for side in sides]
    expected = lai.lai_scores(*traces)
    np.testing.assert_allclose(lai.lai_scores(side, traces[1]), expected, rtol=1e-9, atol=1e-12)


def test_best_rows_follow_stable_sorting():
    compiled = jax.jit(best, static_argnums=1)
    for scores in itertools.product([-1.0, -0.0, 0.0, 2.0, np.nan], repeat=4):
        scores = np.array(scores)
        ranked = np.argsort(np.where(np.isnan(scores), np.inf, -scores), kind="stable")
        for count in range(1, 5):
            chosen, seen = compiled(jnp.asarray(scores), count)
            np.testing.assert_array_equal(chosen, ranked[:count])
            np.testing.assert_array_equal(seen, np.where(np.isin(np.arange(4), chosen), scores, np.nan))


@pytest.mark.parametrize("rows", [2, 0.5])
@pytest.mark.parametrize("around", [lambda apply: apply, jax.checkpoint], ids=["kept", "run again"])
def test_excluded_best_rows_spoil_nothing(rows, around):
    def rooted(params, inputs):
        return jnp.sqrt(jnp.abs(inputs @ params["w"])) @ params["o"]

    model = around(rooted), {"w": jnp.eye(2), "o": jnp.ones((2, 2))}, squares
    inputs = jnp.array([[1.0, 2.0], [0.0, 0.0], [2.0, 1.0], [1.0, 1.0]])  # the root at 0 has no derivative
    how = {"rows": rows, "policy": lambda s: jnp.where(s < 0, 1.0, 0.0)}
    validation, batch = (inputs[2:], jnp.full(2, -9.0)), (inputs, jnp.full(4, 9.0))
    after, _, report = stepped(model, validation, batch, **how)
    assert np.argmax(report.scores) == 1
    assert report.weights[1] == 0
    assert not report.skipped
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
