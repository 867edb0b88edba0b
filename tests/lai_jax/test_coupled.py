"""Exact scores of samples that see one another are refused, in a jitted step too; of others they are not."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest

N = 6


def draw(*shape):
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape))


PARAMS = {"w": draw(4, 5), "head": draw(5, 3)}
BATCH = draw(N, 4), jnp.arange(N) % 3


def plain(params, inputs):
    return jnp.tanh(inputs @ params["w"]) @ params["head"]


def entropy(outputs, targets):
    return optax.losses.softmax_cross_entropy_with_integer_labels(outputs, targets)


def normalised(params, inputs):
    hidden = inputs @ params["w"]
    return jnp.tanh((hidden - hidden.mean(0)) / (hidden.std(0) + 0.1)) @ params["head"]


def contrastive(outputs, targets):
    similar = outputs @ outputs.T
    return optax.losses.softmax_cross_entropy_with_integer_labels(similar, jnp.arange(len(outputs)))


@jax.custom_vjp
def centred_gradient(hidden):
    return hidden


centred_gradient.defvjp(lambda h: (h, None), lambda _, g: (g - g.mean(0),))


def sorted_within(params, inputs):
    """Send rows through in another order and back: no rule follows it, and nothing is coupled."""
    order = jnp.argsort(inputs[:, 0])
    hidden = jnp.tanh(inputs[order] @ params["w"]) @ params["head"]
    return hidden[jnp.argsort(order)]


COUPLED = {
    "a centred loss": (plain, lambda o, t: entropy(o - o.mean(0), t)),
    "batch normalisation": (normalised, entropy),
    "a softmax over the batch": (plain, lambda o, t: -jax.nn.log_softmax(o, 0)[:, 0]),
    "contrasts": (plain, contrastive),
    "pairs": (plain, lambda o, t: jax.nn.softplus(o - o[::-1]).sum(1)),
    "a mean loss": (plain, lambda o, t: entropy(o, t) + 0.1 * (o**2).mean()),
    "a centred gradient": (lambda p, x: centred_gradient(plain(p, x)), entropy),
}


QUICK = {"a centred loss", "a centred gradient"}
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(COUPLED)]


@pytest.mark.parametrize("name", NAMES)
def test_coupled_samples_have_no_exact_scores(name):
    apply, loss = COUPLED[name]
    with pytest.raises(ValueError, match=r"samples are coupled|contradict each other"):
        lai_jax.exact_scores(apply, PARAMS, loss, BATCH, BATCH)


@pytest.mark.parametrize("name", sorted(COUPLED))
def test_nor_have_they_in_a_jitted_step(name):
    apply, loss = COUPLED[name]
    tx = optax.sgd(0.1)
    update = lai_jax.curated_update(apply, loss, tx, estimator="exact")
    summary = lai_jax.summarize(plain, PARAMS, entropy, *BATCH, estimator="exact")
    with pytest.raises(ValueError, match="samples are coupled"):
        jax.eval_shape(update, PARAMS, tx.init(PARAMS), summary, *BATCH)


@pytest.mark.parametrize("jitted", [False, True])
def test_what_no_rule_follows_is_tried(jitted):
    def scores(params):
        return lai_jax.exact_scores(sorted_within, params, entropy, BATCH, BATCH)

    expected = lai_jax.exact_scores(plain, PARAMS, entropy, BATCH, BATCH)
    found = (jax.jit(scores) if jitted else scores)(PARAMS)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
