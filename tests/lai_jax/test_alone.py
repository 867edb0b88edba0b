"""Ghost of what no rule follows: one sample at a time, where samples keep apart; without a last layer too."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import PartitionSpec

import lai_core as lai
from tests.lai_jax.oracle import drawn, ghost_error, squares

PARAMS = {"w": drawn(4, 4), "o": drawn(4, 2)}
BATCHES = [(drawn(5, 4), drawn(5)), (drawn(3, 4), drawn(3))]


def while_loop(params, inputs):
    """Multiply by one matrix until a count is reached, with a rule for reverse mode, which takes no loop."""

    @jax.custom_vjp
    def looped(hidden, weight):
        return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] @ weight), (0, hidden))[1]

    def backward(kept, g):
        hidden, weight = kept
        return g @ weight.T @ weight.T, hidden.T @ (g @ weight.T) + (hidden @ weight).T @ g

    looped.defvjp(lambda h, w: (looped(h, w), (h, w)), backward)
    return looped(inputs, params["w"]) @ params["o"]


@jax.custom_vjp
def rounded(values, weight):
    return jnp.round(values @ weight)


rounded.defvjp(lambda v, w: (rounded(v, w), (v, w)), lambda kept, g: (g @ kept[1].T, kept[0].T @ g))


def straight_through(params, inputs):
    return rounded(3 * inputs, params["w"]) @ params["o"]


def sharded(params, inputs):
    mesh, spec = jax.make_mesh((1,), ("data",)), PartitionSpec()
    body = jax.shard_map(jnp.dot, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    return jnp.tanh(body(inputs, params["w"])) @ params["o"]


def ragged(params, inputs):
    return lax.ragged_dot(inputs, params["w"][None], jnp.array([len(inputs)])) @ params["o"]


def routed(params, inputs):
    """Sort samples by expert, multiply each run of them with its expert's matrix, and sort them back."""
    experts = (inputs[:, 0] > 0).astype(int)
    order = jnp.argsort(experts)
    stacked = jnp.stack([params["w"], params["w"].T])
    made = lax.ragged_dot(inputs[order], stacked, jnp.bincount(experts, length=2))
    return made[jnp.argsort(order)] @ params["o"]


def recurrence(params, inputs):
    """End in a scan whose next iteration uses the last layer's output."""
    return lax.scan(lambda h, _: (jnp.tanh(h @ params["w"]), None), inputs, None, length=2)[0]


def without_a_layer(params, inputs):
    return inputs * params["w"][0]


def towers(params, inputs):
    return inputs @ params["o"] + jnp.tanh(inputs @ params["w"])[:, :2]


QUICK = [straight_through, recurrence, without_a_layer]
SLOW = [pytest.param(apply, marks=pytest.mark.slow) for apply in (while_loop, ragged, routed, towers)]


@pytest.mark.parametrize("apply", [*QUICK, *SLOW], ids=lambda apply: apply.__name__)
def test_ghost_is_exact(apply):
    with jax.enable_x64(True):
        params, batches = jax.tree.map(lambda leaf: leaf.astype(float), (PARAMS, BATCHES))
        assert ghost_error(apply, params, squares, *batches) < 1e-9


@pytest.mark.slow
def test_outside_of_jit_a_shard_map_is_one_too():
    assert lai_jax.selfcheck(sharded, PARAMS, squares, *BATCHES[0]).relative_error < 1e-4


def test_coverage_counts_what_is_explained_one_sample_at_a_time():
    assert lai_jax.coverage(straight_through, PARAMS, squares, *BATCHES[0]).share == 1.0
    assert lai_jax.selfcheck(ragged, PARAMS, squares, *BATCHES[0]).relative_error < 1e-4


@pytest.mark.parametrize("apply", [straight_through, pytest.param(without_a_layer, marks=pytest.mark.slow)])
def test_a_step_of_ghost_takes_it_too(apply):
    tx = optax.sgd(0.1)
    update = lai_jax.curated_update(apply, squares, tx, estimator="ghost")
    side = lai_jax.summarize(apply, PARAMS, squares, *BATCHES[1], estimator="ghost")
    report = update(PARAMS, tx.init(PARAMS), side, *BATCHES[0])[2]
    exact = lai_jax.exact_scores(apply, PARAMS, squares, BATCHES[1], BATCHES[0])
    np.testing.assert_allclose(report.scores, exact, rtol=1e-3, atol=1e-4)


def shuffled(params, inputs):
    """Send rows on in another order, as no rule can tell from one that is put back."""
    return jnp.tanh(inputs[jnp.argsort(inputs[:, 0])] @ params["w"]) @ params["o"]


def centred(params, inputs):
    hidden = inputs @ params["w"]
    return (hidden - hidden.mean(0)) @ params["o"]


@pytest.mark.parametrize("apply", [shuffled, centred], ids=lambda apply: apply.__name__)
@pytest.mark.parametrize("jitted", [False, True])
def test_samples_that_meet_are_still_refused(apply, jitted):
    def traced(params):
        return lai_jax.trace(apply, params, squares, *BATCHES[0], gradients="all")

    with pytest.raises(ValueError, match=r"runs along the samples|reduces over the samples"):
        (jax.jit(traced) if jitted else traced)(PARAMS)


@pytest.mark.parametrize(
    ("apply", "reason"), [(ragged, "a ragged product"), (without_a_layer, "got none"), (towers, "several")]
)
def test_lai_says_why_it_reads_none(apply, reason):
    with pytest.raises(ValueError, match=reason):
        lai_jax.trace(apply, PARAMS, squares, *BATCHES[0])
    trace = lai_jax.trace(apply, PARAMS, squares, *BATCHES[0], gradients="all")
    with pytest.raises(ValueError, match=r"no last layer to read|at least one layer that LAI sees"):
        lai.lai_kernel(trace, trace)
