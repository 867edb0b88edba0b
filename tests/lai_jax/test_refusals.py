"""What JAX cannot be followed through is refused by name, with the way out."""

import jax
import jax.numpy as jnp
import lai_jax
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from tests.lai_jax.oracle import drawn, squares

X, Y, W = drawn(6, 4), drawn(6), drawn(4, 4)


def head(hidden, params):
    return hidden @ params["o"]


PARAMS = {"w": W, "o": drawn(4, 2), "rows": drawn(6, 4)}


def normalised(params, inputs):
    hidden = inputs @ params["w"]
    return head((hidden - hidden.mean(0)) / hidden.std(0), params)


def against_each_other(params, inputs):
    hidden = inputs @ params["w"]
    return head(hidden @ hidden.T @ hidden, params)


def sorted_batch(params, inputs):
    return head(jnp.sort(inputs @ params["w"], axis=0), params)


def shifted(params, inputs):
    return head(jnp.roll(inputs, 1, axis=0) @ params["w"], params)


def picked(params, inputs):
    return head((inputs @ params["w"])[jnp.array([1, 0, 2, 3, 4, 5])], params)


def branched(params, inputs):
    hidden = inputs @ params["w"]
    return head(lax.cond(hidden.sum() > 0, jnp.tanh, lambda h: h, hidden), params)


COUPLED = {
    normalised: r"reduce_sum .*reduces over the samples",
    against_each_other: r"dot_general .*multiplies every sample with every other",
    sorted_batch: r"sort .*runs along the samples",
    shifted: r"takes some samples of the batch",
    picked: r"gather .*picks samples of the batch by index",
    branched: r"reduce_sum .*reduces over the samples",
}


@pytest.mark.parametrize("gradients", ["output", "all"])
@pytest.mark.parametrize("apply", COUPLED, ids=lambda apply: apply.__name__)
def test_what_couples_samples_is_refused_in_both_modes(apply, gradients):
    with pytest.raises(ValueError, match=COUPLED[apply]) as refusal:
        lai_jax.trace(apply, PARAMS, squares, X, Y, gradients=gradients, partial=True)
    assert "test_refusals.py" in str(refusal.value)
    assert "evaluation mode" in str(refusal.value)


def test_a_loss_that_couples_samples_is_refused():
    def loss(outputs, targets):
        each = squares(outputs, targets)
        return each / each.sum()

    with pytest.raises(ValueError, match="reduces over the samples"):
        lai_jax.trace(lambda p, x: x @ p["o"], PARAMS, loss, X, Y)


def while_loop(params, inputs):
    hidden = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] @ params["w"]), (0, inputs))[1]
    return head(hidden, params)


def sharded(params, inputs):
    mesh = jax.make_mesh((1,), ("data",))
    spec = PartitionSpec()
    body = jax.shard_map(jnp.dot, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
    return head(body(inputs, params["w"]), params)


def ragged(params, inputs):
    return head(lax.ragged_dot(inputs, params["w"][None], jnp.array([6])), params)


def entry_a_sample(params, inputs):
    return head(inputs + params["rows"], params)


def kernel_from_samples(params, inputs):
    maps = lax.conv_general_dilated(params["w"][None, None], inputs[:, None, :1, None], (1, 1), "SAME")
    return head(maps.reshape(6, -1)[:, :4], params)


@jax.custom_vjp
def damped(values):
    return jnp.tanh(values)


damped.defvjp(lambda v: (jnp.tanh(v), None), lambda _, g: (g / (1 + jnp.abs(g).sum()),))


def mixing_rule(params, inputs):
    return head(damped(inputs @ params["w"]), params)


@jax.custom_vjp
def padded(table, ids):
    return table[ids]


def padded_rule(kept, g):
    table, ids = kept
    return jnp.zeros_like(table).at[ids].add(jnp.where((ids == 5)[:, None], 0.0, g)), None


padded.defvjp(lambda t, i: (t[i], (t, i)), padded_rule)


def without_one_row(params, inputs):
    return head(padded(params["rows"], jnp.argmax(inputs, 1) + 1), params)


@jax.custom_vjp
def clipped(weight, values):
    return values @ weight


clipped.defvjp(
    lambda w, v: (v @ w, (w, v)), lambda kept, g: (kept[1].T @ jnp.clip(g, -1e4, 1e4), g @ kept[0].T)
)


def clipping_what_is_large(params, inputs):
    return head(clipped(params["w"], inputs), params)


@jax.custom_jvp
def rectified(weight, values):
    return jnp.maximum(values @ weight, 0)


rectified.defjvp(
    lambda given, moved: (
        rectified(*given),
        jnp.where(given[1] @ given[0] > 0, moved[1] @ given[0] + given[1] @ moved[0], 0),
    )
)


def another_slope_at_zero(params, inputs):
    return head(rectified(params["w"], inputs), params)


NO_RULE_SAYS = [without_one_row, clipping_what_is_large, another_slope_at_zero, ragged, sharded]


@pytest.mark.parametrize("apply", NO_RULE_SAYS, ids=lambda apply: apply.__name__)
def test_what_no_rule_follows_is_read_off_one_sample(apply):
    assert lai_jax.trace(apply, PARAMS, squares, X, Y).layers[-1].name == "o"
    assert lai_jax.selfcheck(apply, PARAMS, squares, X, Y).relative_error < 1e-4


REFUSED = {
    kernel_from_samples: "a convolution of a parameter with a kernel that depends on the sample",
    while_loop: r"while .*parameters enter a while loop; use lax.scan",
    entry_a_sample: r"add .*one entry for each sample of the batch",
    mixing_rule: r"the derivative rule of damped could not be followed: .*reduces over the samples",
}


@pytest.mark.parametrize("apply", REFUSED, ids=lambda apply: apply.__name__)
def test_what_cannot_be_followed_is_refused_by_name(apply):
    with pytest.raises(ValueError, match=REFUSED[apply]) as refusal:
        lai_jax.trace(apply, PARAMS, squares, X, Y)
    assert any(way in str(refusal.value) for way in ("exact_scores works", "a loss of each sample alone"))


@pytest.mark.parametrize("apply", [while_loop, entry_a_sample])
def test_partial_leaves_out_what_it_cannot_explain_and_coverage_says_so(apply):
    trace = lai_jax.trace(apply, PARAMS, squares, X, Y, gradients="all", partial=True)
    assert trace.layers[-1].name == "o"
    found = lai_jax.coverage(apply, PARAMS, squares, X, Y)
    left_out = "rows" if apply is entry_a_sample else "w"
    assert set(found.unexplained) == {left_out}
    missing = PARAMS[left_out].size
    assert found.share == pytest.approx(1 - missing / sum(leaf.size for leaf in PARAMS.values()))


def test_a_gradient_that_would_be_too_large_is_refused_and_partial_leaves_it_out(monkeypatch):
    monkeypatch.setattr("lai_jax._recording.plan.GRADIENT_BUDGET", 100)

    def apply(params, inputs):
        return inputs @ (2 * params["o"])

    with pytest.raises(ValueError, match=r"the gradient of 'o' has no factors .* 6 x 8 numbers"):
        lai_jax.trace(apply, PARAMS, squares, X, Y, gradients="all")
    assert lai_jax.coverage(apply, {"o": PARAMS["o"]}, squares, X, Y).share == 0.0
