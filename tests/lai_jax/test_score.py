"""Scores for a training step of one's own: those of a curated step, with state and keys left to its owner."""

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

import lai_core as lai
from tests.lai_jax.oracle import drawn, labels

LOSS = optax.softmax_cross_entropy_with_integer_labels


def apply(params, inputs):
    return jnp.tanh(inputs @ params["w"]) @ params["o"]


PARAMS = {"w": drawn(4, 6), "o": drawn(6, 3)}
BATCH, HELD = (drawn(8, 4), labels(8)), (drawn(5, 4), labels(5))


@pytest.mark.parametrize("estimator", ["lai", "ghost", "preconditioned_lai", "exact"])
def test_a_step_of_ones_own_is_the_curated_step(estimator):
    tx = optax.sgd(0.1)
    moment = jnp.zeros(3) if estimator == "preconditioned_lai" else None
    update = lai_jax.curated_update(apply, LOSS, tx, estimator=estimator)
    summary = jax.jit(lambda params: lai_jax.summarize(apply, params, LOSS, *HELD, estimator=estimator))(
        PARAMS
    )

    @jax.jit
    def step(params, state):
        weights, report = lai_jax.score(
            apply, params, LOSS, summary, *BATCH, estimator=estimator, second_moment=moment
        )
        gradient = jax.grad(lambda at: (weights * LOSS(apply(at, BATCH[0]), BATCH[1])).sum())(params)
        updates, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, updates), report

    given = () if moment is None else (moment,)
    expected, _, told = update(PARAMS, tx.init(PARAMS), summary, *BATCH, *given)
    found, report = step(PARAMS, tx.init(PARAMS))
    for name in PARAMS:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-15)
    for field in ("scores", "weights", "losses", "loss", "kept", "skipped"):
        np.testing.assert_allclose(getattr(report, field), getattr(told, field), rtol=1e-12)
    if moment is not None:
        np.testing.assert_allclose(report.second_moment, told.second_moment, rtol=1e-12)


def test_a_policy_that_names_losses_sees_them():
    def below(scores, losses):
        return lai.keep_positive(jnp.where(losses < 1.1, scores, jnp.nan))

    summary = jax.jit(lambda: lai_jax.summarize(apply, PARAMS, LOSS, *HELD))()

    def score(policy):
        return jax.jit(lambda: lai_jax.score(apply, PARAMS, LOSS, summary, *BATCH, policy=policy))()

    plain, (weights, _) = score(lai.keep_positive)[1], score(below)
    np.testing.assert_array_equal(weights > 0, (plain.scores > 0) & (plain.losses < 1.1))
    assert 0 < int((weights > 0).sum()) < int(plain.kept)
    given = functools.partial(below, losses=jnp.zeros(8))
    weights, _ = score(given)
    np.testing.assert_array_equal(weights, plain.weights)
    tx = optax.sgd(0.1)
    update = lai_jax.curated_update(apply, LOSS, tx, policy=below)
    report = update(PARAMS, tx.init(PARAMS), summary, *BATCH)[2]
    assert int(report.kept) < int(plain.kept)


def test_what_is_scored_may_close_over_state():
    """Batch statistics that a step carries are constants to the scores."""

    def with_state(params, state, inputs):
        return jnp.tanh((inputs @ params["w"] - state["mean"]) / state["scale"]) @ params["o"]

    @jax.jit
    def scores(params, state):
        def closed(params, inputs):
            return with_state(params, state, inputs)

        summary = lai_jax.summarize(closed, params, LOSS, *HELD, estimator="ghost")
        return lai_jax.score(closed, params, LOSS, summary, *BATCH, estimator="ghost")[1].scores

    state = {"mean": drawn(6), "scale": 1.5 + jnp.abs(drawn(6))}

    def loss_of(params, inputs, target):
        return LOSS(with_state(params, state, inputs), target)

    def gradients(batch):
        found = jax.vmap(jax.grad(loss_of), in_axes=(None, 0, 0))(PARAMS, *batch)
        return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(found)], axis=1)

    expected = gradients(BATCH) @ gradients(HELD).sum(0)
    np.testing.assert_allclose(scores(PARAMS, state), expected, rtol=1e-10, atol=1e-12)


def gradient_at(params, weights, batch):
    """Return the gradient that a step takes, by jax alone."""
    return jax.grad(lambda at: (weights * LOSS(apply(at, batch[0]), batch[1])).sum())(params)


def test_accumulation_is_the_optimizers():
    """Two curated batches under `optax.MultiSteps`: one step on the mean of their gradients."""
    tx = optax.MultiSteps(optax.sgd(0.1), every_k_schedule=2, accumulator_dtype=jnp.float64)
    update = lai_jax.curated_update(apply, LOSS, tx)
    summary = jax.jit(lambda: lai_jax.summarize(apply, PARAMS, LOSS, *HELD))()
    batches = [tuple(part[rows] for part in BATCH) for rows in (slice(4), slice(4, 8))]
    params, state, reports = PARAMS, tx.init(PARAMS), []
    for batch in batches:
        params, state, report = update(params, state, summary, *batch)
        reports.append(report)
    gradients = [
        gradient_at(PARAMS, report.weights, batch) for report, batch in zip(reports, batches, strict=True)
    ]
    for name in PARAMS:
        expected = PARAMS[name] - 0.1 * (gradients[0][name] + gradients[1][name]) / 2
        np.testing.assert_allclose(params[name], expected, rtol=1e-12, atol=1e-15)


def test_micro_batches_of_a_batch_that_is_scored_whole_are_one_step():
    """In a scan over parts, with the weights of the whole batch: what a loop does to save memory."""
    summary = jax.jit(lambda: lai_jax.summarize(apply, PARAMS, LOSS, *HELD))()

    @jax.jit
    def accumulated(params):
        weights, _ = lai_jax.score(apply, params, LOSS, summary, *BATCH)
        parts = jax.tree.map(lambda part: part.reshape(4, 2, *part.shape[1:]), (weights, BATCH))
        total, _ = jax.lax.scan(
            lambda total, part: (jax.tree.map(jnp.add, total, gradient_at(params, *part)), None),
            jax.tree.map(jnp.zeros_like, params),
            parts,
        )
        return total, weights

    total, weights = accumulated(PARAMS)
    expected = gradient_at(PARAMS, weights, BATCH)
    for name in PARAMS:
        np.testing.assert_allclose(total[name], expected[name], rtol=1e-12, atol=1e-15)


def test_the_guides_step_with_batch_statistics_skips_a_batch_with_a_row_that_is_nan():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "curate-jax.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```python\n(@jax\.jit\ndef step.*?)```", page, re.DOTALL)

    def model(params, state, inputs, *, train, key=None):
        hidden = inputs @ params["w"]
        mean = hidden.mean(0) if train else state
        return jnp.tanh(hidden - mean) @ params["o"], 0.9 * state + 0.1 * mean

    def scored(*given, train, **key):  # what the recipe scores returns outputs alone
        outputs, moved = model(*given, train=train, **key)
        return (outputs, moved) if train else outputs

    names = {"jax": jax, "jnp": jnp, "optax": optax, "lai_jax": lai_jax, "loss": LOSS, "validation": HELD}
    names |= {"model": scored, "tx": optax.adam(0.1)}
    exec(compile(recipe, "curate-jax.md", "exec"), names)  # the page's own text
    given = PARAMS, jnp.zeros(6), names["tx"].init(PARAMS)
    inputs, targets = BATCH
    *after, report = names["step"](*given, jax.random.key(0), inputs.at[2].set(jnp.nan), targets)
    assert int(report.kept) > 0
    for old, new in zip(jax.tree.leaves(given), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old, new)
    moved = names["step"](*given, jax.random.key(0), inputs, targets)[:3]
    for old, new in zip(jax.tree.leaves(given), jax.tree.leaves(moved), strict=True):
        assert not np.array_equal(old, new)


def test_a_report_is_printed_in_a_line():
    """While a program is traced, its numbers are none yet."""
    summary = lai_jax.summarize(apply, PARAMS, LOSS, *HELD)
    printed = []

    def scored(inputs):
        _, report = lai_jax.score(apply, PARAMS, LOSS, summary, inputs, BATCH[1])
        printed.append(repr(report))
        return report

    report = jax.jit(scored)(BATCH[0])
    kept, loss, skipped = report.kept.item(), report.loss.item(), report.skipped.item()
    assert repr(report) == f"Report(samples=8, kept={kept}, loss={loss:.4g}, skipped={skipped})"
    assert re.fullmatch(r"Report\(samples=8, kept=\w+, loss=\w+, skipped=\w+\)", printed[0])
