"""The same samples, padded further, have the same scores; torch and JAX agree on them."""

import jax
import jax.numpy as jnp
import lai_jax
import lai_torch
import numpy as np
import optax
import pytest
import torch

from tests.lai_jax.support import cross_entropy as loss

LENGTH, FURTHER = 5, 9


def padded(samples, seed, length):
    """Draw samples of 1 to 5 positions; what is in the padding is noise."""
    generator = np.random.default_rng(seed)
    lengths, words = generator.integers(1, LENGTH + 1, samples), generator.normal(size=(samples, LENGTH, 4))
    noise = generator.normal(size=(samples, length - LENGTH, 4))
    kept = np.arange(length) < lengths[:, None]
    inputs = {"words": np.concatenate([words, noise], 1), "kept": kept.astype(np.int64)}
    return jax.tree.map(jnp.asarray, inputs), jnp.asarray(np.arange(samples) % 3)


def apply(params, words, kept):
    hidden = jnp.tanh(words @ params["inner"]) * kept[..., None]
    return (hidden @ params["outer"] * kept[..., None]).sum(1)


PARAMS = {
    name: jnp.asarray(np.random.default_rng(3).normal(size=shape))
    for name, shape in {"inner": (4, 6), "outer": (6, 3)}.items()
}


def kept(inputs):
    return inputs["kept"]


@pytest.mark.parametrize(
    ("estimator", "positions", "rows"),
    [
        ("lai", "mean", None),
        ("lai", "tokens", None),
        ("lai", "flatten", 2),
        ("preconditioned_lai", "mean", None),
        ("calibrated_lai", "mean", 2),
    ],
)
def test_scores_do_not_depend_on_padding(estimator, positions, rows):
    found = []
    for length in (LENGTH, FURTHER):
        options = {"estimator": estimator, "valid": kept}
        side = lai_jax.summarize(apply, PARAMS, loss, *padded(4, 0, length), positions=positions, **options)
        tx = optax.sgd(0.1)
        update = lai_jax.curated_update(apply, loss, tx, rows=rows, recompute=rows is not None, **options)
        more = (jnp.zeros(3),) if estimator == "preconditioned_lai" else ()
        found.append(update(PARAMS, tx.init(PARAMS), side, *padded(6, 1, length), *more)[2].scores)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10)


def test_torch_and_jax_agree_on_a_mask():
    inputs, targets = padded(6, 1, FURTHER)
    by_jax = lai_jax.trace(apply, PARAMS, loss, inputs, targets, valid=inputs["kept"])

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in PARAMS.items():
                self.register_parameter(name, torch.nn.Parameter(torch.from_numpy(np.array(value))))

        def forward(self, words, kept):
            hidden = torch.tanh(words @ self.inner) * kept.unsqueeze(-1)
            return (hidden @ self.outer * kept.unsqueeze(-1)).sum(1)

    batch = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
    model, labels = Model(), torch.from_numpy(np.array(targets))
    each = torch.nn.CrossEntropyLoss(reduction="none")
    by_torch = lai_torch.trace(model, each, batch, labels, valid=batch["kept"])
    for one, other in zip(by_jax.layers, by_torch.layers, strict=True):
        np.testing.assert_array_equal(one.valid, other.valid)
        np.testing.assert_allclose(one.activations, other.activations, rtol=1e-12)
