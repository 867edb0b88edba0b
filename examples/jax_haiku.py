"""A haiku model with BatchNorm and dropout, by an optax schedule; curation, too, begins after a warm-up."""

import sys

import haiku as hk
import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
from sklearn.datasets import load_digits

LOSS = optax.softmax_cross_entropy_with_integer_labels


@hk.transform_with_state
def network(inputs, training):
    """Return the logits of two layers with batch statistics and dropout between them."""
    hidden = hk.Linear(64)(inputs)
    hidden = hk.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)(hidden, training)
    hidden = jax.nn.relu(hidden)
    if training:
        hidden = hk.dropout(hk.next_rng_key(), 0.2, hidden)
    return hk.Linear(10)(hidden)


def make_step(tx, validation):
    """Return a jitted step: it scores by running statistics, where it curates, and trains as ever."""

    @jax.jit
    def step(params, carried, opt_state, key, inputs, targets, curates):
        def scored(params, inputs):
            return network.apply(params, carried, None, inputs, False)[0]

        def weigh():
            summary = lai_jax.summarize(scored, params, LOSS, *validation)
            return lai_jax.score(scored, params, LOSS, summary, inputs, targets)[0]

        alike = jnp.full(len(targets), 1 / len(targets), inputs.dtype)
        weights = jax.lax.cond(curates, weigh, lambda: alike)

        def objective(params):
            outputs, moved = network.apply(params, carried, key, inputs, True)
            return (weights * LOSS(outputs, targets)).sum(), moved

        gradient, moved = jax.grad(objective, has_aux=True)(params)
        updates, stepped = tx.update(gradient, opt_state, params)
        after = optax.apply_updates(params, updates), moved, stepped
        used = (weights > 0).any() & jnp.isfinite(optax.tree.norm(gradient))
        return jax.tree.map(lambda old, new: jnp.where(used, new, old), (params, carried, opt_state), after)

    return step


def main(epochs=30):
    """Train on digits with 40% wrong labels; return accuracies on clean images, without curation and with."""
    pixels, digits = load_digits(return_X_y=True)
    pixels = (pixels / 16).astype(np.float32)
    draw = np.random.default_rng(0)
    training, validating, testing = np.split(draw.permutation(len(digits)), (1200, 1400))
    labels = np.where(draw.random(1200) < 0.4, draw.integers(10, size=1200), digits[training])
    tx = optax.adam(optax.warmup_cosine_decay_schedule(1e-3, 1e-2, 40, epochs * 20))
    found = []
    for curates in (False, True):
        params, carried = network.init(jax.random.key(1), pixels[:2], True)
        opt_state = tx.init(params)
        step = make_step(tx, (pixels[validating], digits[validating]))
        shuffle = np.random.default_rng(1)
        orders = [shuffle.permutation(1200).reshape(20, 60) for _ in range(epochs)]
        for count, rows in enumerate(np.concatenate(orders)):
            given = jax.random.key(count), pixels[training[rows]], labels[rows], curates and count >= 40
            params, carried, opt_state = step(params, carried, opt_state, *given)
        guessed = network.apply(params, carried, None, pixels[testing], False)[0].argmax(1)
        found.append(float((guessed == digits[testing]).mean()))
    print("plain {:.1%}, curated {:.1%}".format(*found))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
