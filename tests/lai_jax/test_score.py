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
from tests.lai_jax.support import (
    classified,
    computed,
    cross_entropy,
    dense,
    run_compiled,
    stepped,
    weights,
)

PARAMS, BATCH, HELD = weights(w=(4, 6), o=(6, 3)), classified(8), classified(5, seed=1)
MODEL = dense, PARAMS, cross_entropy


def scored(summary, **options):
    return run_compiled(
        lambda params, side: lai_jax.score(dense, params, cross_entropy, side, *BATCH, **options),
        PARAMS,
        summary,
    )


@pytest.mark.parametrize("estimator", ["lai", "ghost", "preconditioned_lai", "exact"])
def test_custom_steps_match_curated_steps(estimator):
    moment = jnp.zeros(3) if estimator == "preconditioned_lai" else None
    summary = computed(lai_jax.summarize, *MODEL, *HELD, estimator=estimator)
    extra = () if moment is None else (moment,)
    told = stepped(MODEL, summary, BATCH, *extra, estimator=estimator)[2]
    report = scored(summary, estimator=estimator, second_moment=moment)[1]
    for field in ("scores", "weights", "losses", "loss", "kept", "skipped"):
        np.testing.assert_allclose(getattr(report, field), getattr(told, field), rtol=1e-12)
    if moment is not None:
        np.testing.assert_allclose(report.second_moment, told.second_moment, rtol=1e-12)
        nothing, options = jnp.full_like(BATCH[0], jnp.nan), {"estimator": estimator}
        options["second_moment"] = moment + 1
        score = lambda side: lai_jax.score(*MODEL, side, nothing, BATCH[1], **options)  # noqa: E731
        seen = run_compiled(score, summary)[1]
        np.testing.assert_array_equal(seen.second_moment, jnp.ones(3))


def test_policies_may_receive_losses():
    def below(scores, losses):
        return lai.keep_positive(jnp.where(losses < 1.1, scores, jnp.nan))

    summary = computed(lai_jax.summarize, *MODEL, *HELD)
    plain, (weights, _) = scored(summary)[1], scored(summary, policy=below)
    np.testing.assert_array_equal(weights > 0, (plain.scores > 0) & (plain.losses < 1.1))
    assert 0 < int((weights > 0).sum()) < int(plain.kept)
    given = functools.partial(below, losses=jnp.zeros(8))
    np.testing.assert_array_equal(scored(summary, policy=given)[0], plain.weights)
    assert int(stepped(MODEL, summary, BATCH, policy=below)[2].kept) < int(plain.kept)


def test_batch_statistics_recipe_skips_nan_batches():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "curate-jax.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```python\n(@jax\.jit\ndef step.*?)```", page, re.DOTALL)

    def model(params, state, inputs, *, train, key=None):
        hidden = inputs @ params["w"]
        mean = hidden.mean(0) if train else state
        return jnp.tanh(hidden - mean) @ params["o"], 0.9 * state + 0.1 * mean

    def outputs_alone(*given, train, **key):  # which is what the recipe scores
        outputs, moved = model(*given, train=train, **key)
        return (outputs, moved) if train else outputs

    names = {"jax": jax, "jnp": jnp, "optax": optax, "lai_jax": lai_jax, "loss": cross_entropy}
    names |= {"validation": HELD, "model": outputs_alone, "tx": optax.adam(0.1)}
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
