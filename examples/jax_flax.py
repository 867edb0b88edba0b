"""A flax nnx model with BatchNorm, dropout and an optax schedule: scored in eval mode, trained in its own."""

import sys

import jax
import jax.numpy as jnp
import lai_jax
import optax
from flax import nnx
from sklearn.datasets import load_digits

LOSS = optax.softmax_cross_entropy_with_integer_labels


class Network(nnx.Module):
    """Two layers with batch statistics and dropout between them."""

    def __init__(self, rngs):
        self.body = nnx.Linear(64, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, inputs):
        return self.head(self.drop(nnx.relu(self.norm(self.body(inputs)))))


def split(model):
    """Return a model's structure, its parameters, and what else it carries: statistics and keys."""
    return nnx.split(model, nnx.Param, ...)


def make_step(tx, training, scoring, validation):
    """Return a jitted step: `training` and `scoring` are the model's structures in its two modes."""

    @jax.jit
    def step(params, rest, state, inputs, targets, curates):
        def apply(params, inputs):  # what is scored: running statistics, no dropout
            return nnx.merge(scoring, params, rest)(inputs)

        summary = lai_jax.summarize(apply, params, LOSS, *validation)
        weights, _ = lai_jax.score(apply, params, LOSS, summary, inputs, targets)
        weights = jnp.where(curates, weights, 1 / len(targets))

        def objective(params):
            model = nnx.merge(training, params, rest, copy=True)
            total = (weights * LOSS(model(inputs), targets)).sum()
            return total, split(model)[2]

        gradient, moved = jax.grad(objective, has_aux=True)(params)
        updates, stepped = tx.update(gradient, state, params)
        after = optax.apply_updates(params, updates), moved, stepped
        used = (weights > 0).any() & jnp.isfinite(optax.tree.norm(gradient))
        return jax.tree.map(lambda old, new: jnp.where(used, new, old), (params, rest, state), after)

    return step


def main(epochs=40):
    """Train on digits with 40% wrong labels; return accuracies on clean images, without curation and with."""
    pixels, digits = (jnp.asarray(part) for part in load_digits(return_X_y=True))
    pixels = (pixels / 16).astype(jnp.float32)
    keys = jax.random.split(jax.random.key(0), 3)
    training, validating, testing = jnp.split(jax.random.permutation(keys[0], len(digits)), (1200, 1400))
    replaced = jax.random.uniform(keys[1], (1200,)) < 0.4
    labels = jnp.where(replaced, jax.random.randint(keys[2], (1200,), 0, 10), digits[training])
    tx = optax.adam(optax.cosine_decay_schedule(1e-2, epochs * 20))
    found = []
    for curates in (False, True):
        model = Network(nnx.Rngs(1))
        model.eval()
        scoring = split(model)[0]
        model.train()
        structure, params, rest = split(model)
        state = tx.init(params)
        step = make_step(tx, structure, scoring, (pixels[validating], digits[validating]))
        for epoch in range(epochs):
            for rows in jax.random.permutation(jax.random.key(epoch), 1200).reshape(20, 60):
                params, rest, state = step(
                    params, rest, state, pixels[training[rows]], labels[rows], curates and epoch > 1
                )
        guessed = nnx.merge(scoring, params, rest)(pixels[testing]).argmax(1)
        found.append(float((guessed == digits[testing]).mean()))
    print("plain {:.1%}, curated {:.1%}".format(*found))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
