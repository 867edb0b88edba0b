"""The same samples, padded further, have the same scores; torch and JAX agree on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.lai_jax.support import cross_entropy as loss
from tests.lai_jax.support import stepped, weights

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


PARAMS = weights(inner=(4, 6), outer=(6, 3))


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
    more = (jnp.zeros(3),) if estimator == "preconditioned_lai" else ()
    how = {"estimator": estimator, "valid": lambda inputs: inputs["kept"], "rows": rows}
    how |= {"recompute": rows is not None, "side": {"positions": positions}}
    reports = [
        stepped((apply, PARAMS, loss), padded(4, 0, length), padded(6, 1, length), *more, **how)[2]
        for length in (LENGTH, FURTHER)
    ]
    np.testing.assert_allclose(*(report.scores for report in reports), rtol=1e-10)
