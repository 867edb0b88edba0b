"""A curated JAX step: one program, the gradient of the kept rows, nothing lost."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest
from jax import lax
from lai_jax._program.leaves import all_finite

import lai_core as lai
from tests.lai_jax.oracle import drawn, labels, squares
from tests.lai_jax.support import HALF, compiled
from workloads import jax_models, jax_parts


def dense(params, inputs):
    return jnp.tanh(inputs @ params["w"] + params["b"]) @ params["o"]


def params_of_dense():
    return {"w": drawn(4, 6), "b": drawn(6), "o": drawn(6, 3)}


def summary_of(apply, params, loss, batch, estimator="lai"):
    gradients = "all" if estimator == "ghost" else "output"

    def summary(params, batch):
        trace = lai_jax.trace(apply, params, loss, *batch, gradients=gradients)
        return lai.summarize(trace, estimator, positions="mean")

    return jax.jit(summary)(params, batch)


def weighted_gradient(model, batch, weights):
    def total(params):
        return (model.loss(model.apply(params, batch[0]), batch[1]) * weights).sum()

    return jax.jit(jax.grad(total, allow_int=True))(model.params)


SOME = {"rows": 0.5}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(("mlp", how) for how in ({}, SOME, {"rows": 3}, SOME | {"recompute": True})),
        *((name, SOME) for name in ("grouped_cnn", "gpt_scan", "rnn", "equinox_cnn", "tied_head")),
    ],
    ids=str,
)
def test_a_step_follows_the_gradient_of_the_weighted_losses(name, how):
    model, draw = jax_models.MODELS[name](), np.random.default_rng(3)
    training, validation = model.batch(draw, 8), model.batch(draw, 5)
    tx = optax.sgd(1.0)
    summary = summary_of(model.apply, model.params, model.loss, validation)
    update = lai_jax.curated_update(model.apply, model.loss, tx, policy=HALF, **how)
    after, _, report = update(model.params, tx.init(model.params), summary, *training)
    gradient = weighted_gradient(model, training, report.weights)
    assert int(report.kept) == (3 if how.get("rows") == 3 else 4)
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(gradient))
    for old, new, own in zip(*map(jax.tree.leaves, (model.params, after, gradient)), strict=True):
        np.testing.assert_allclose(new, old - own, atol=1e-12 * largest)


@pytest.mark.parametrize("estimator", ["ghost", "lai", "lli", "preconditioned_lai"])
def test_scores_are_those_of_the_core(estimator):
    params, batch, tx = params_of_dense(), (drawn(8, 4), drawn(8)), optax.sgd(0.1)
    summary = summary_of(dense, params, squares, (drawn(5, 4, seed=1), drawn(5)), estimator)
    update = lai_jax.curated_update(dense, squares, tx, estimator=estimator)
    extra = (jnp.zeros(3),) if estimator == "preconditioned_lai" else ()
    report = update(params, tx.init(params), summary, *batch, *extra)[2]
    trace = compiled(lai_jax.trace, dense, params, squares, *batch, gradients="all")
    if extra:
        moment = lai.update_second_moment(extra[0], trace.layers[-1].output_gradients)
        expected = lai.preconditioned_lai_scores(summary, trace, moment)
        np.testing.assert_allclose(report.second_moment, moment, rtol=1e-5)
    else:
        expected = getattr(lai, f"{estimator}_scores")(summary, trace)
    np.testing.assert_allclose(report.scores, expected, rtol=2e-4, atol=1e-3)
    np.testing.assert_allclose(report.weights, lai.keep_positive(report.scores))
    losses = squares(dense(params, batch[0]), batch[1])
    np.testing.assert_allclose(report.losses, losses, rtol=1e-5)
    np.testing.assert_allclose(report.loss, (losses * report.weights).sum(), rtol=1e-5)


@pytest.mark.parametrize("how", [{}, {"rows": 0.5}, {"rows": 0.5, "recompute": True}], ids=str)
def test_one_program_for_two_hundred_steps(how):
    tx, traced = optax.adamw(1e-3), []

    def apply(params, inputs):
        traced.append(inputs.shape)
        return dense(params, inputs)

    params = params_of_dense()
    state = tx.init(params)
    summarize = jax.jit(functools.partial(summary_of, dense, loss=squares))
    update = lai_jax.curated_update(apply, squares, tx, **how)
    for step in range(200):
        if step % 50 == 0:
            summary = summarize(params=params, batch=(drawn(5, 4, seed=step), drawn(5)))
        params, state, report = update(params, state, summary, drawn(8, 4, seed=step), drawn(8, seed=step))
        if step == 0:
            first = len(traced)
    assert update._cache_size() == 1
    assert len(traced) == first
    assert "callback" not in str(jax.make_jaxpr(update)(params, state, summary, drawn(8, 4), drawn(8)))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(params))
    assert not report.skipped


def test_metrics_are_finite_floats_outside_of_jit():
    scores = jnp.array([2.0, -1.0, jnp.nan, 0.5, 4.0, -jnp.inf])
    weights = lai.keep_positive(jnp.where(jnp.isfinite(scores), scores, 0.0))
    of_losses = scores, jnp.array(0.25)
    report = lai_jax.Report(scores, weights, *of_losses, (weights > 0).sum(), jnp.array(False), None)
    found = report.metrics()
    assert {type(value) for value in found.values()} == {float}
    assert found == pytest.approx(
        {
            "curation/kept": 0.5,
            "curation/loss": 0.25,
            "curation/not_finite": 2.0,
            "curation/skipped": 0.0,
            "curation/score_low": -1.0 + 0.15 * 1.5,  # 5% of the three intervals of -1, 0.5, 2, 4
            "curation/score_median": 1.25,
            "curation/score_high": 2.0 + 0.85 * 2.0,
        }
    )
    nothing = dataclasses.replace(report, loss=jnp.array(jnp.nan), skipped=jnp.array(True)).metrics()
    assert "curation/loss" not in nothing
    assert nothing["curation/skipped"] == 1.0


def test_training_learns_what_validation_asks_for():
    rule = drawn(4, 3, seed=7)
    inputs, clean = drawn(240, 4), jnp.argmax(drawn(240, 4) @ rule, axis=1)
    wrong = jnp.where(jnp.arange(240) % 5 < 2, (clean + 1) % 3, clean)
    held = drawn(60, 4, seed=9)

    def loss(outputs, targets):
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets)

    tx, params = optax.sgd(0.5), {"w": 0.1 * drawn(4, 6), "b": jnp.zeros(6), "o": 0.1 * drawn(6, 3)}
    state, update = tx.init(params), lai_jax.curated_update(dense, loss, tx, rows=0.75)
    summarize = jax.jit(functools.partial(summary_of, dense, loss=loss))
    kept_wrong, kept = 0, 0
    for step in range(60):
        summary = summarize(params=params, batch=(held, jnp.argmax(held @ rule, axis=1)))
        part = slice(40 * (step % 6), 40 * (step % 6) + 40)
        params, state, report = update(params, state, summary, inputs[part], wrong[part])
        if step >= 30:
            kept += int(report.kept)
            kept_wrong += int(((report.weights > 0) & (wrong[part] != clean[part])).sum())
    assert kept_wrong / kept < 0.25  # 0.4 of all labels are wrong
    assert float((jnp.argmax(dense(params, held), axis=1) == jnp.argmax(held @ rule, axis=1)).mean()) > 0.85


@pytest.mark.parametrize("how", [{}, {"rows": 4}, {"rows": 4, "recompute": True}], ids=str)
def test_nothing_kept_means_no_update(how):
    params, tx = params_of_dense(), optax.adam(0.1)
    state = tx.init(params)
    update = lai_jax.curated_update(dense, squares, tx, policy=jnp.zeros_like, **how)
    summary = summary_of(dense, params, squares, (drawn(5, 4), drawn(5)))
    after, new_state, report = update(params, state, summary, drawn(8, 4), drawn(8))
    assert report.skipped
    assert int(report.kept) == 0
    for old, new in zip(jax.tree.leaves((params, state)), jax.tree.leaves((after, new_state)), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("scale_inputs", [False, True])
def test_a_skipped_step_leaves_the_second_moments(scale_inputs):
    params, tx = params_of_dense(), optax.adam(0.1)
    summary = summary_of(dense, params, squares, (drawn(5, 4), drawn(5)))

    def moments(policy, before):
        options = {"estimator": "preconditioned_lai", "scale_inputs": scale_inputs, "policy": policy}
        update = lai_jax.curated_update(dense, squares, tx, **options)
        report = update(params, tx.init(params), summary, drawn(8, 4), drawn(8), before)[2]
        assert bool(report.skipped) == (policy is jnp.zeros_like)
        return jax.tree.leaves(report.second_moment)

    first = None if scale_inputs else jnp.zeros(3)
    assert not any(np.asarray(one).any() for one in moments(jnp.zeros_like, first))
    update = lai_jax.curated_update(
        *(dense, squares, tx), estimator="preconditioned_lai", scale_inputs=scale_inputs
    )
    held = update(params, tx.init(params), summary, drawn(8, 4), drawn(8), first)[2].second_moment
    for old, new in zip(jax.tree.leaves(held), moments(jnp.zeros_like, held), strict=True):
        np.testing.assert_array_equal(old, new)
    for old, new in zip(jax.tree.leaves(held), moments(lai.keep_positive, held), strict=True):
        assert not np.array_equal(old, new)


@pytest.mark.parametrize(
    "how",
    [{}, {"rows": 8}, {"rows": 8, "recompute": True}, {"estimator": "preconditioned_lai"}],
    ids=str,
)
def test_a_sample_that_is_not_finite_is_left_out(how):
    params, tx = params_of_dense(), optax.sgd(0.1)
    inputs, targets, sound = drawn(8, 4), drawn(8), jnp.arange(8) != 2
    summary = summary_of(dense, params, squares, (drawn(5, 4), drawn(5)))
    extra = (jnp.ones(3),) if "estimator" in how else ()
    update = lai_jax.curated_update(dense, squares, tx, **how)
    broken = update(params, tx.init(params), summary, inputs.at[2, 1].set(jnp.nan), targets, *extra)
    without = lai_jax.curated_update(dense, squares, tx, **how | ({"rows": 7} if "rows" in how else {}))(
        params, tx.init(params), summary, inputs[sound], targets[sound], *extra
    )
    report = broken[2]
    assert float(report.weights[2]) == 0.0
    assert np.isnan(report.scores[2])
    assert not report.skipped
    for found, expected in zip(
        jax.tree.leaves((broken[0], report.weights[sound], report.loss, report.second_moment)),
        jax.tree.leaves((without[0], without[2].weights, without[2].loss, without[2].second_moment)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("how", [{}, {"rows": 3}, {"rows": 3, "recompute": True}], ids=str)
def test_a_finite_loss_with_an_infinite_gradient_skips_the_step(how):
    def rooted(params, inputs):  # the slope of a root is infinite at 0, where the inputs are 0
        return dense(params, jnp.sqrt(jnp.abs(inputs @ params["root"])))

    params, tx = {**params_of_dense(), "root": jnp.eye(4)}, optax.adam(0.1)
    inputs, targets = drawn(4, 4), drawn(4)
    summary = summary_of(rooted, params, squares, (jnp.abs(drawn(5, 4)) + 1, drawn(5)))
    update = lai_jax.curated_update(
        rooted, squares, tx, policy=lambda scores: jnp.where(jnp.isnan(scores), 0.0, 1.0), **how
    )
    state = tx.init(params)
    after, kept, report = update(params, state, summary, inputs.at[1].set(0.0), targets)
    assert bool(jnp.isfinite(report.losses).all())
    spoilt = bool(report.weights[1] > 0)
    assert bool(report.skipped) == spoilt
    if not how:
        assert spoilt
    if spoilt:
        for old, new in zip(jax.tree.leaves((params, state)), jax.tree.leaves((after, kept)), strict=True):
            np.testing.assert_array_equal(old, new)


def test_a_policy_that_keeps_everything_keeps_no_sample_that_is_not_finite():
    def barred(outputs, targets):  # an infinite loss with a finite gradient
        return squares(outputs, targets) + jnp.where(targets > 9.0, jnp.inf, 0.0)

    params, tx, (inputs, targets) = params_of_dense(), optax.sgd(0.1), (drawn(4, 4), drawn(4))
    summary = summary_of(dense, params, squares, (drawn(5, 4), drawn(5)))
    update = lai_jax.curated_update(dense, barred, tx, policy=lambda scores: jnp.full_like(scores, 0.25))
    report = update(params, tx.init(params), summary, inputs, targets.at[1].set(10.0))[2]
    np.testing.assert_array_equal(report.weights, [0.25, 0.0, 0.25, 0.25])
    assert np.isfinite(report.loss)
    assert not report.skipped


def test_rows_cap_what_the_policy_keeps_and_the_kept_share_the_weight():
    params, tx = params_of_dense(), optax.sgd(0.1)
    summary = summary_of(dense, params, squares, (drawn(5, 4), drawn(5)))
    arguments = params, tx.init(params), summary, drawn(32, 4), drawn(32)
    free = lai_jax.curated_update(dense, squares, tx)(*arguments)[2]
    capped = lai_jax.curated_update(dense, squares, tx, rows=5)(*arguments)[2]
    assert int(free.kept) > 5
    best = np.argsort(-np.asarray(free.scores))[:5]
    np.testing.assert_allclose(np.asarray(capped.weights)[best], 0.2)
    assert int(capped.kept) == 5


def divided_by_size(outputs, targets):
    return squares(outputs, targets) / targets.shape[0]


def masked_by_shape(params, inputs):
    return dense(params, inputs * jax.random.bernoulli(jax.random.key(0), 0.5, inputs.shape))


def branching(params, inputs):
    hidden = lax.cond(params["b"][0] > 0, jnp.tanh, jnp.sin, inputs @ params["w"])
    return hidden @ params["o"]


@pytest.mark.parametrize(
    ("apply", "loss", "message"),
    [
        (dense, divided_by_size, r"something else for a smaller batch \(div with 8.0 in place of 4.0\)"),
        (branching, squares, r"samples pass through cond \(test_update.py"),
    ],
)
def test_what_the_backward_pass_of_some_rows_cannot_do_is_refused(apply, loss, message):
    params, tx = params_of_dense(), optax.sgd(0.1)
    summary = summary_of(apply, params, loss, (drawn(5, 4), drawn(5)))
    arguments = params, tx.init(params), summary, drawn(8, 4), drawn(8)
    with pytest.raises(ValueError, match=message):
        lai_jax.curated_update(apply, loss, tx, rows=0.5)(*arguments)
    assert not lai_jax.curated_update(apply, loss, tx)(*arguments)[2].skipped


def test_a_mask_drawn_for_the_whole_batch_is_cut_to_its_rows():
    params, tx, batch = params_of_dense(), optax.sgd(1.0), (drawn(8, 4), drawn(8))
    summary = summary_of(dense, params, squares, (drawn(5, 4), drawn(5)))
    update = lai_jax.curated_update(masked_by_shape, squares, tx, policy=HALF, rows=0.5)
    after, _, report = update(params, tx.init(params), summary, *batch)
    model = jax_parts.Model(masked_by_shape, params, squares, None)
    gradient = weighted_gradient(model, batch, report.weights)
    np.testing.assert_allclose(after["w"], params["w"] - gradient["w"], rtol=1e-4, atol=1e-4)


def test_labels_picked_by_counting_rows_are_cut_to_their_rows():
    def loss(outputs, targets):
        return -jax.nn.log_softmax(outputs)[jnp.arange(targets.shape[0]), targets]

    params, tx, batch = params_of_dense(), optax.sgd(1.0), (drawn(8, 4), labels(8))
    summary = summary_of(dense, params, loss, (drawn(5, 4), labels(5)))
    after, _, report = lai_jax.curated_update(dense, loss, tx, policy=HALF, rows=0.5)(
        params, tx.init(params), summary, *batch
    )
    gradient = weighted_gradient(jax_parts.Model(dense, params, loss, None), batch, report.weights)
    np.testing.assert_allclose(after["w"], params["w"] - gradient["w"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *itertools.product((jnp.float16, jnp.bfloat16, jnp.float32), ((), (3,), (2, 30, 5))),
        (jnp.float16, (5000, 3400)),  # more numbers than one over the smallest of float16
    ],
    ids=str,
)
def test_what_is_not_finite_is_found_by_one_sum_and_the_largest_numbers_pass(kind, shape):
    finite, largest = jax.jit(lambda *leaves: all_finite(leaves)), jnp.full(shape, jnp.finfo(kind).max, kind)
    assert finite(largest, -largest)
    assert finite(jnp.zeros((0, 3), kind))
    for wrong in (jnp.nan, jnp.inf, -jnp.inf):
        for place in (0, -1):
            spoilt = largest.ravel().at[place].set(wrong).reshape(shape)
            assert not finite(largest, spoilt)
