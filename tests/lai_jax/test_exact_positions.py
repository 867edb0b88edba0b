"""Exact scores of positions, against one reverse pass a position."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

from tests.lai_jax.support import computed, drawn, ruled_by, run_compiled
from tests.lai_jax.support import cross_entropy as loss

PARAMS = {"e": drawn(5, 4), "w": drawn(4, 4, seed=1), "o": drawn(4, 5, seed=2)}
scores = partial(computed, lai_jax.exact_scores)


def causal(params, ids):
    """Predict each next token from the mean of those before."""
    read = params["e"][ids]
    count = jnp.arange(1, ids.shape[1] + 1)[:, None]
    return jnp.tanh(jnp.cumsum(read, 1) / count @ params["w"]) @ params["o"]


def same(outputs):
    return outputs


RULES = {
    "none": same,
    "scaled": ruled_by(lambda x, _, g: (3 * g,))(same),
    "clipped": ruled_by(lambda x, _, g: (jnp.clip(g, -0.1, 0.1),))(same),
}


def batches(samples, length):
    generator = np.random.default_rng(samples)
    return [tuple(jnp.asarray(generator.integers(0, 5, (2, samples, length)))) for _ in range(2)]


def summed(outputs, targets):
    return loss(outputs, targets).sum(1)


def one_pass_each(apply, validation, training):
    direction = run_compiled(jax.grad(lambda p: loss(apply(p, validation[0]), validation[1]).sum()), PARAMS)
    own = jax.jit(jax.grad(lambda p, ids, targets, t: loss(apply(p, ids), targets)[0, t]))
    rows = [(training[0][j : j + 1], training[1][j : j + 1]) for j in range(len(training[0]))]
    found = [[own(PARAMS, *row, t) for t in range(training[0].shape[1])] for row in rows]
    return [[sum(np.vdot(one[name], direction[name]) for name in PARAMS) for one in row] for row in found]


@pytest.mark.equation("position-score")
@pytest.mark.parametrize("rule", RULES)
def test_positions_score_by_their_own_loss(rule):
    """By forward mode, and by one gradient a position."""

    def apply(params, ids):
        return RULES[rule](causal(params, ids))

    for sizes in ((1, 3), (3, 4)):
        sides = batches(*sizes)
        found = scores(apply, PARAMS, loss, *sides, per_position=True)
        np.testing.assert_allclose(found, one_pass_each(apply, *sides), rtol=1e-10, atol=1e-13)
    outside = lai_jax.exact_scores(apply, PARAMS, loss, *sides, per_position=True)
    np.testing.assert_allclose(outside, found, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"at": "midpoint", "learning_rate": 0.3}], ids=str)
def test_positions_add_up_to_samples(options):
    sides = batches(3, 4)
    found = scores(causal, PARAMS, loss, *sides, per_position=True, **options)
    np.testing.assert_allclose(found.sum(1), scores(causal, PARAMS, summed, *sides, **options), rtol=1e-10)


SHAPE = "loss: expected one number a position, shape (3, t), where per_position=True, got shape (3,)"


@pytest.mark.parametrize(
    ("own", "message"),
    [(lambda o, t: loss(o - o.sum(0), t), "apply, loss: expected the losses of a batch"), (summed, SHAPE)],
    ids=["coupled samples", "no positions"],
)
def test_losses_without_position_values_are_refused(own, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        lai_jax.exact_scores(causal, PARAMS, own, *batches(3, 4), per_position=True)
