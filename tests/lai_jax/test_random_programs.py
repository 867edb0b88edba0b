"""Random programs: judged by `jax.grad` of one sample; `tests.random_jax` tries more of them."""

import jax
import jax.numpy as jnp
import lai_jax
import pytest

from tests.random_jax import verdict
from tests.support.jax_programs import BLOCKS, program

PROGRAMS, GROUPS = 20, 4


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs_are_exact(group):
    for seed in range(group, PROGRAMS, GROUPS):
        outcome, word = verdict(seed, steps=True)
        if "samples pass through cond" in word:  # no step on some of the rows
            outcome, word = verdict(seed)
        assert outcome == "exact", (seed, outcome, word, program(seed).made_of)


def test_every_block_is_drawn_often():
    drawn = [name for seed in range(200) for name in program(seed).made_of]
    assert min(drawn.count(name) for name in set(BLOCKS.split())) > 8


def test_wrong_gradients_are_detected(monkeypatch):
    right = lai_jax.trace

    def slightly_wrong(*given, **options):
        moved = {jnp.dtype(float): lambda leaf: leaf.at[0].multiply(1 + 1e-6)}
        return jax.tree.map(
            lambda leaf: moved.get(leaf.dtype, lambda same: same)(leaf), right(*given, **options)
        )

    monkeypatch.setattr(lai_jax, "trace", slightly_wrong)
    assert verdict(1)[0] == "wrong"
