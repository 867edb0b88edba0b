"""Random programs: judged by `jax.grad` of one sample, and run by numpy as compiled ones run.

`tests.random_jax` tries more of them.
"""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

from tests.random_jax import verdict
from tests.support.jax_programs import BLOCKS, losses, program
from tests.support.workloads import numpy_primitives
from tests.support.workloads.jax_by_numpy import by_numpy

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


SEEDS = (2, 5)  # between them loops, branches, convolutions, tables, sorts and rules of their own


@pytest.mark.parametrize("seed", SEEDS)
def test_interpreted_gradients_match_compiled_ones(seed):
    drawn = program(seed)

    def total(params, inputs, targets):
        return losses(drawn.apply(params, inputs), targets).sum()

    gradient = jax.grad(total)
    given = drawn.params, drawn.inputs, drawn.targets
    expected = jax.tree.leaves(jax.jit(gradient)(*given))
    for found, wanted in zip(jax.tree.leaves(by_numpy(gradient, *given)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def everything(values, places, half):
    """Read and write by index, in and out of bounds; pad, scan backwards, and round to half precision."""
    read = values.at[places].get(mode="clip").sum(0) + values[:, places % 3].sum(1).sum()
    written = values.at[places % 4, jnp.arange(3)].add(2.0).at[places].mul(3.0, mode="drop")
    least = values.at[1].min(jnp.ones(3)).at[::2].max(0.5)
    padded = lax.pad(values, 1.0, ((1, 2, 1), (0, 1, 0)))
    moved = lax.dynamic_update_slice(values, jnp.ones((2, 2)), (places[0], 1))
    carried, stacked = lax.scan(lambda c, row: (c + row.sum(), c * row), 0.0, values, reverse=True)
    counted = lax.while_loop(lambda k: k < 5, lambda k: k + 2, places[1])
    chosen = lax.switch(places[2], [jnp.sin, jnp.cos, jnp.tanh], read)
    kinds = jnp.cumsum(values, 0, dtype=values.dtype), lax.cummax(values, 1, reverse=True), half @ half.T
    return read, written, least, padded, moved, carried, stacked, counted, chosen, kinds, values[::-1, ::2]


def test_so_do_operations_one_by_one():
    draw = np.random.default_rng(0)
    half = jnp.asarray(draw.standard_normal((3, 4)), jnp.bfloat16)
    given = jnp.asarray(draw.standard_normal((4, 3))), jnp.array([3, 0, 2]), half
    found, expected = by_numpy(everything, *given), jax.jit(everything)(*given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(one, np.ndarray)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one.astype(float), np.asarray(other, float), rtol=1e-2)


def test_jax_computes_what_numpy_lacks():
    assert "erf_inv" not in numpy_primitives.PRIMITIVES
    np.testing.assert_allclose(by_numpy(lax.erf_inv, jnp.array([0.5])), lax.erf_inv(jnp.array([0.5])))
