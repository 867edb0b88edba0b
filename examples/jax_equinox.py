"""An equinox model with BatchNorm and dropout on batches from a grain loader, by an optax schedule."""

import sys

import equinox as eqx
import grain
import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
from sklearn.datasets import load_digits

LOSS = optax.softmax_cross_entropy_with_integer_labels


class Network(eqx.Module):
    """Two layers with batch statistics and dropout between them; like equinox's, it sees one sample."""

    body: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key)
        self.body = eqx.nn.Linear(64, 64, key=keys[0])
        self.norm = eqx.nn.BatchNorm(64, axis_name="batch", mode="batch")
        self.drop = eqx.nn.Dropout(0.2)
        self.head = eqx.nn.Linear(64, 10, key=keys[1])

    def __call__(self, pixels, state, key=None):
        """Return the logits, and the statistics as they are then."""
        hidden, state = self.norm(self.body(pixels), state)
        return self.head(self.drop(jax.nn.relu(hidden), key=key)), state


def make_step(tx, static, validation):
    """Return a jitted step: it scores with running statistics and no dropout, and trains with both."""

    @jax.jit
    def step(params, carried, opt_state, key, inputs, targets, curates):
        def scored(params, inputs):
            model = eqx.nn.inference_mode(eqx.combine(params, static))
            return jax.vmap(lambda pixels: model(pixels, carried)[0])(inputs)

        summary = lai_jax.summarize(scored, params, LOSS, *validation)
        weights, _ = lai_jax.score(scored, params, LOSS, summary, inputs, targets)
        weights = jnp.where(curates, weights, 1 / len(targets))

        def objective(params):
            model = eqx.combine(params, static)
            run = jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
            outputs, moved = run(inputs, carried, jax.random.split(key, len(targets)))
            return (weights * LOSS(outputs, targets)).sum(), moved

        gradient, moved = jax.grad(objective, has_aux=True)(params)
        updates, stepped = tx.update(gradient, opt_state, params)
        after = optax.apply_updates(params, updates), moved, stepped
        used = (weights > 0).any() & jnp.isfinite(optax.tree.norm(gradient))
        return jax.tree.map(lambda old, new: jnp.where(used, new, old), (params, carried, opt_state), after)

    return step


def batches(pixels, labels, epochs):
    """Return a loader of shuffled batches of 60, each pass over the rows in an order of its own."""
    rows = [{"pixels": image, "label": label} for image, label in zip(pixels, labels, strict=True)]
    loader = grain.MapDataset.source(rows).seed(0).shuffle().repeat(epochs)
    return loader.batch(60, drop_remainder=True).to_iter_dataset()


def main(epochs=30):
    """Train on digits with 40% wrong labels; return accuracies on clean images, without curation and with."""
    pixels, digits = load_digits(return_X_y=True)
    pixels = (pixels / 16).astype(np.float32)
    draw = np.random.default_rng(0)
    training, validating, testing = np.split(draw.permutation(len(digits)), (1200, 1400))
    labels = np.where(draw.random(1200) < 0.4, draw.integers(10, size=1200), digits[training])
    tx = optax.adam(optax.cosine_decay_schedule(1e-2, epochs * 20))
    found = []
    for curates in (False, True):
        model, carried = eqx.nn.make_with_state(Network)(jax.random.key(1))
        params, static = eqx.partition(model, eqx.is_inexact_array)
        opt_state = tx.init(params)
        step = make_step(tx, static, (pixels[validating], digits[validating]))
        for count, batch in enumerate(batches(pixels[training], labels, epochs)):
            given = jax.random.key(count), batch["pixels"], batch["label"], curates and count >= 40
            params, carried, opt_state = step(params, carried, opt_state, *given)
        model = eqx.nn.inference_mode(eqx.combine(params, static))
        guessed = jax.vmap(lambda image: model(image, carried)[0])(pixels[testing]).argmax(1)  # noqa: B023
        found.append(float((guessed == digits[testing]).mean()))
    print("plain {:.1%}, curated {:.1%}".format(*found))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
