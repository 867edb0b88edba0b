"""A curated JAX step: one program, the gradient of the kept rows, nothing lost."""

import dataclasses

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.support import (
    HALF,
    computed,
    dense,
    flat,
    run_compiled,
    squares,
    stepped,
    vectors,
    weights,
)
from tests.support.workloads import jax_models

PARAMS, VALIDATION, BATCH = weights(w=(4, 6), b=(6,), o=(6, 3)), vectors(5, seed=1), vectors(8)
MODEL, ONE, ADAM = (dense, PARAMS, squares), optax.sgd(1.0), optax.adam(0.1)
WAYS = pytest.mark.parametrize("how", [{}, {"rows": 4}], ids=str)


def weighted_gradient(model, batch, weights):
    apply, params, loss = model
    gradient = jax.grad(lambda at: (loss(apply(at, batch[0]), batch[1]) * weights).sum(), allow_int=True)
    return run_compiled(gradient, params)


def check_unmoved(before, after):
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *(("mlp", how) for how in ({}, {"rows": 0.5}, {"rows": 3})),
        *(("mlp", {"estimator": "exact"} | how) for how in ({}, {"rows": 0.5})),
        ("mlp", {"checkpoint": True, "rows": 0.5, "estimator": "ghost"}),
        *((name, {"rows": 0.5}) for name in ("gpt_scan", "resnet")),
    ],
    ids=str,
)
def test_steps_follow_weighted_loss_gradients(name, how):
    built, draw = jax_models.MODELS[name](), np.random.default_rng(3)
    how = dict(how)
    apply = jax.checkpoint(built.apply) if how.pop("checkpoint", False) else built.apply
    model, batch = (apply, built.params, built.loss), built.batch(draw, 8)
    validation = built.batch(draw, 5)
    policy = lambda scores: HALF(scores) * jnp.arange(1.0, 9.0)  # noqa: E731
    after, _, report = stepped(model, validation, batch, tx=ONE, policy=policy, **how)
    gradient = weighted_gradient(model, batch, report.weights)
    assert int(report.kept) == (3 if how.get("rows") == 3 else 4)
    largest = np.abs(flat(gradient)).max()
    for old, new, own in zip(*map(jax.tree.leaves, (built.params, after, gradient)), strict=True):
        np.testing.assert_allclose(new, old - own, atol=1e-12 * largest)


@pytest.mark.parametrize("estimator", ["ghost", "lai", "lli", "exact"])
def test_scores_are_those_of_the_core(estimator):
    report = stepped(MODEL, VALIDATION, BATCH, estimator=estimator)[2]
    sides = [computed(lai_jax.trace, *MODEL, *side, gradients="all") for side in (VALIDATION, BATCH)]
    scores = lai.ghost_scores if estimator == "exact" else getattr(lai, f"{estimator}_scores")
    np.testing.assert_allclose(report.scores, scores(*sides), rtol=1e-11)
    np.testing.assert_allclose(report.weights, lai.keep_positive(report.scores))


@WAYS
def test_one_program_for_all_steps(how):
    tx, traced = optax.adamw(1e-3), []

    def apply(params, inputs):
        traced.append(inputs.shape)
        return dense(params, inputs)

    params, state = PARAMS, tx.init(PARAMS)
    summarize = jax.jit(lambda params, batch: lai_jax.summarize(dense, params, squares, *batch))
    update = lai_jax.curated_update(apply, squares, tx, **how)
    for step in range(20):
        if step % 5 == 0:
            summary = summarize(params, vectors(5, seed=step))
        params, state, report = update(params, state, summary, *vectors(8, seed=step))
        if step == 0:
            first = len(traced)
    assert update._cache_size() == 1
    assert len(traced) == first
    assert "callback" not in str(jax.make_jaxpr(update)(params, state, summary, *BATCH))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(params))
    assert not report.skipped


def test_metrics_are_finite_floats():
    scores = jnp.array([2.0, -1.0, jnp.nan, 0.5, 4.0, -jnp.inf])
    weights = lai.keep_positive(jnp.where(jnp.isfinite(scores), scores, 0.0))
    of_losses = scores, jnp.array(0.25)
    report = lai_jax.Report(scores, weights, *of_losses, (weights > 0).sum(), jnp.array(False), None)
    found = report.metrics()
    assert {type(value) for value in found.values()} == {float}
    assert report.dropped == 2
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


@pytest.mark.parametrize("scale_inputs", [False, True])
def test_skipped_steps_keep_second_moments(scale_inputs):
    def moments(before, policy=lai.keep_positive):
        options = {"estimator": "preconditioned_lai", "scale_inputs": scale_inputs, "policy": policy}
        report = stepped(MODEL, VALIDATION, BATCH, before, **options)[2]
        assert bool(report.skipped) == (policy is jnp.zeros_like)
        return report.second_moment

    first = None if scale_inputs else jnp.zeros(3)
    assert not any(one.any() for one in jax.tree.leaves(moments(first, jnp.zeros_like)))
    held = moments(first)
    check_unmoved(held, moments(held, jnp.zeros_like))
    for old, new in zip(jax.tree.leaves(held), jax.tree.leaves(moments(held)), strict=True):
        assert not np.array_equal(old, new)


SPOILT = [{}, {"rows": 8}]
SPOILT += [{"estimator": name} for name in ("exact", "preconditioned_lai")]


@pytest.mark.parametrize("how", SPOILT, ids=str)
def test_nonfinite_samples_are_left_out(how):
    (inputs, targets), sound = BATCH, np.arange(8) != 2
    extra = (jnp.ones(3),) if how.get("estimator") == "preconditioned_lai" else ()
    broken = stepped(MODEL, VALIDATION, (inputs.at[2, 1].set(jnp.nan), targets), *extra, **how)
    fewer = how | ({"rows": 7} if "rows" in how else {})
    without = stepped(MODEL, VALIDATION, (inputs[sound], targets[sound]), *extra, **fewer)
    report, expected = broken[2], without[2]
    assert float(report.weights[2]) == 0.0
    assert np.isnan(report.scores[2])
    assert not report.skipped
    pairs = (
        (broken[0], report.weights[sound], report.loss, report.second_moment),
        (without[0], expected.weights, expected.loss, expected.second_moment),
    )
    for one, other in zip(*map(jax.tree.leaves, pairs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


@pytest.mark.parametrize("how", [{}, {"rows": 3}], ids=str)
def test_infinite_gradients_skip_the_step(how):
    def rooted(params, inputs):  # the slope of a root is infinite at 0, where the inputs are 0
        return dense(params, jnp.sqrt(jnp.abs(inputs @ params["root"])))

    params, (inputs, targets) = {**PARAMS, "root": jnp.eye(4)}, vectors(4)
    validation, batch = (jnp.abs(VALIDATION[0]) + 1, VALIDATION[1]), (inputs.at[1].set(0.0), targets)
    policy = lambda scores: jnp.where(jnp.isnan(scores), 0.0, 1.0)  # noqa: E731
    *after, report = stepped((rooted, params, squares), validation, batch, tx=ADAM, policy=policy, **how)
    assert np.isfinite(report.losses).all()
    spoilt = bool(report.weights[1] > 0)
    assert bool(report.skipped) == spoilt
    assert spoilt or how
    if spoilt:
        check_unmoved((params, ADAM.init(params)), after)


@pytest.mark.parametrize("estimator", ["lai", "exact"])
def test_policies_cannot_keep_nonfinite_samples(estimator):
    def barred(outputs, targets):  # an infinite loss with a finite gradient
        return squares(outputs, targets) + jnp.where(targets > 9.0, jnp.inf, 0.0)

    inputs, targets = vectors(4)
    batch, policy = (inputs, targets.at[1].set(10.0)), lambda scores: jnp.full_like(scores, 0.25)
    how = {"policy": policy, "estimator": estimator}
    report = stepped((dense, PARAMS, barred), VALIDATION, batch, **how)[2]
    np.testing.assert_array_equal(np.isnan(report.scores), np.arange(4) == 1)
    np.testing.assert_array_equal(report.weights, [0.25, 0.0, 0.25, 0.25])
    assert np.isfinite(report.loss)
    assert not report.skipped


def test_losses_of_negative_weights():
    policy = lambda scores: jnp.array([1.0, -0.5, 0.25, 0.0])  # noqa: E731
    report = stepped((dense, PARAMS, squares), VALIDATION, vectors(4), policy=policy)[2]
    np.testing.assert_allclose(report.loss, report.weights @ report.losses)


def divided_by_size(params, inputs):
    return dense(params, inputs) / inputs.shape[0]


def branching(params, inputs):
    hidden = lax.cond(params["b"][0] > 0, jnp.tanh, jnp.sin, inputs @ params["w"])
    return hidden @ params["o"]


def numbered(params, inputs):
    return dense(params, inputs * jnp.arange(1.0, 1 + len(inputs))[:, None])


SAVED = jax.checkpoint_policies.everything_saveable


@jax.custom_vjp
def ruled(hidden):
    return hidden


ruled.defvjp(lambda hidden: (hidden, None), lambda _, cotangent: (cotangent / len(cotangent),))


def with_rule(params, inputs):
    return ruled(jnp.tanh(inputs @ params["w"])) @ params["o"]


SMALLER = "something else for a smaller batch"
ALONE = "something else for a sample alone"


@pytest.mark.parametrize(
    ("apply", "estimator", "message"),
    [
        (divided_by_size, "lai", rf"{SMALLER} \(div with 8.0 in place of 4.0\)"),
        (branching, "lai", r"samples pass through cond \(test_update.py"),
        (jax.checkpoint(branching, policy=SAVED), "lai", "samples pass through cond"),
        (jax.checkpoint(numbered), "lai", r"mul \(test_update.py.* one entry a sample.* that jax.checkpoint"),
        (with_rule, "ghost", SMALLER),
        *((apply, "exact", ALONE) for apply in (divided_by_size, numbered)),  # whose rows run forward again
    ],
)
def test_unsupported_row_subsets_are_refused(apply, estimator, message):
    model = apply, PARAMS, squares
    with pytest.raises(ValueError, match=message):
        stepped(model, VALIDATION, BATCH, rows=0.5, estimator=estimator)
    assert not stepped(model, VALIDATION, BATCH, estimator=estimator)[2].skipped


def test_checkpointed_branches_run_on_rows():
    model = jax.checkpoint(branching), PARAMS, squares
    after, _, report = stepped(model, VALIDATION, BATCH, tx=ONE, policy=HALF, rows=0.5)
    gradient = weighted_gradient(model, BATCH, report.weights)
    for name, moved in after.items():
        np.testing.assert_allclose(moved, PARAMS[name] - gradient[name], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("samples", "rows"), [(8, 0.5), (8, 8), (2, 1)])
def test_batch_masks_are_cut_to_rows(samples, rows):
    def masked_by_shape(params, inputs):
        hidden = jnp.tanh(inputs @ params["w"])
        return (hidden * np.random.default_rng(0).integers(0, 2, hidden.shape)) @ params["o"]

    model = masked_by_shape, PARAMS | {"a flag": jnp.asarray(1)}, squares
    batch = tuple(part[::-1] for part in vectors(samples))
    after, _, report = stepped(model, VALIDATION, batch, tx=ONE, policy=HALF, rows=rows)
    gradient = weighted_gradient(model, batch, report.weights)
    np.testing.assert_allclose(after["w"], PARAMS["w"] - gradient["w"], rtol=1e-11, atol=1e-12)
