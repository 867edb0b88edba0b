"""Exact scores of samples that see one another are refused, in a jitted step too; of others they are not."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest
from jax import lax

from tests.lai_jax.support import cross_entropy as entropy

N = 6


def draw(*shape):
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape))


PARAMS = {"w": draw(4, 5), "head": draw(5, 3)}
BATCH = draw(N, 4), jnp.arange(N) % 3


def plain(params, inputs):
    return jnp.tanh(inputs @ params["w"]) @ params["head"]


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


@pytest.mark.parametrize("name", sorted(QUICK))
def test_nor_has_a_validation_set_of_such_samples_a_gradient(name):
    def summarized(params):
        return lai_jax.summarize(*COUPLED[name][:1], params, COUPLED[name][1], *BATCH, estimator="exact")

    with pytest.raises(ValueError, match="samples are coupled"):
        jax.eval_shape(summarized, PARAMS)


def halved_together(params, inputs):
    """Halve until all samples are small: how often that is depends on the largest, if not all are large."""
    bounded = lax.stop_gradient(jnp.tanh(10 * inputs))
    small = lax.while_loop(lambda h: jnp.abs(h).max() > 0.1, lambda h: h / 2, bounded)
    return jnp.tanh(inputs @ params["w"]) @ params["head"] + small[:, :3]


def beside_its_neighbour(params, inputs):
    """Send rows around a ring of so many that a batch of another size has none."""
    ring = [(i, (i + 1) % N) for i in range(N)]

    def one(row):
        return jnp.tanh((row + lax.ppermute(row, "samples", ring)) @ params["w"]) @ params["head"]

    return jax.vmap(one, axis_name="samples")(inputs)


def crowded(params, inputs):
    """Let two of three samples, and no more, into one of two places."""
    hidden = jnp.tanh(inputs @ params["w"])
    places = jax.nn.one_hot(jnp.argmax(hidden[:, :2], -1), 2)
    taken = (jnp.cumsum(places, 0) * places).sum(-1) > 2 * len(inputs) / 3
    return jnp.where(taken[:, None], 0, hidden) @ params["head"]


def balanced(outputs, targets):
    """Weigh classes by how often they are in the batch."""
    return entropy(outputs, targets) / (targets[:, None] == targets).sum(1)


@pytest.mark.parametrize("given", [(crowded, entropy), (plain, balanced)])
def test_traced_samples_are_tried_alone_in_a_crowd_and_with_several_targets(given):
    apply, loss = given

    def scores(params, inputs, targets):
        return lai_jax.exact_scores(apply, params, loss, (inputs, targets), (inputs, targets))

    def traced(params, inputs, targets):
        return lai_jax.trace(apply, params, loss, inputs, targets)

    for found in (scores, traced):
        with pytest.raises(ValueError, match=r"samples are coupled|depends on other samples"):
            jax.eval_shape(found, PARAMS, BATCH[0][:4], BATCH[1][:4])


@pytest.mark.parametrize("estimator", ["exact", "ghost", "lai"])
def test_what_a_model_holds_and_is_traced_hides_no_coupling(estimator):
    def summarized(held, params):
        def apply(params, inputs):
            return normalised({**params, "w": params["w"] * held}, inputs)

        return lai_jax.summarize(apply, params, entropy, *BATCH, estimator=estimator)

    with pytest.raises(ValueError, match=r"samples are coupled|depends on other samples"):
        jax.eval_shape(summarized, 1.0, PARAMS)


@pytest.mark.parametrize("apply", [halved_together, beside_its_neighbour])
def test_traced_samples_are_tried_at_several_scales_and_alone(apply):
    def traced(params, inputs):
        return lai_jax.trace(apply, params, entropy, inputs, BATCH[1], gradients="all")

    with pytest.raises(ValueError, match="depends on other samples"):
        jax.eval_shape(traced, PARAMS, BATCH[0])


@pytest.mark.parametrize("jitted", [False, True])
def test_what_no_rule_follows_is_tried(jitted):
    def scores(params):
        return lai_jax.exact_scores(sorted_within, params, entropy, BATCH, BATCH)

    expected = lai_jax.exact_scores(plain, PARAMS, entropy, BATCH, BATCH)
    found = (jax.jit(scores) if jitted else scores)(PARAMS)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
