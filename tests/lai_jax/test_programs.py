"""A JAX model is exact however its function is written: by rules, or read off the program of one sample."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

import lai_core as lai
from tests.lai_jax.programs import IDS, RULED, TWO, VECTORS, WO, N
from tests.lai_jax.support import (
    computed,
    dense,
    drawn,
    explained,
    flat,
    gradients,
    kernel_error,
    ruled_by,
    squares,
    stepped,
    weights,
)


@jax.custom_jvp
def forwards(weight, values):
    return jnp.tanh(values @ weight)


forwards.defjvp(lambda p, t: (forwards(*p), (1 - forwards(*p) ** 2) * (t[1] @ p[0] + p[1] @ t[0])))


def back(weight, values, g):
    return values.T @ g, g @ weight.T


backwards = ruled_by(lambda w, v, out, g: back(w, v, g * (1 - out**2)))(lambda w, v: jnp.tanh(v @ w))
rounded = ruled_by(lambda w, v, _, g: back(w, v, g))(lambda w, v: jnp.round(v @ w))
sloped = ruled_by(lambda w, v, _, g: (2 * v.T @ g, 2 * g @ w.T))(lambda w, v: v @ w)
looped = ruled_by(lambda w, v, _, g: (v.T @ (g @ w.T) + (v @ w).T @ g, g @ w.T @ w.T))(
    lambda w, v: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] @ w), (0, v))[1]
)  # with a rule for reverse mode, which takes no loop
passed_through = ruled_by(lambda w, v, _, g: (jnp.zeros_like(w), g))(lambda w, v: jnp.round(v))


def through(function, layers, before=lambda x: x, **shapes):
    params = weights(**shapes) if shapes else TWO
    return lambda params, inputs: function(params["w"], before(inputs)) @ params["o"], params, VECTORS, layers


def ruled_reads(params, ids):
    """Read outside of a table, before a function with a rule for reverse mode alone."""
    return passed_through(0.0, params["table"][ids].sum(1)) @ params["o"]


FOLLOWED = RULED | {
    "passed through": through(lambda w, x: passed_through(0.0, 3 * x @ w), WO),
    "ruled reads": (ruled_reads, weights(table=(6, 4), o=(4, 2)), IDS, ["o"]),
}


def sharded(weight, inputs):
    mesh, spec = jax.make_mesh((1,), ("data",)), PartitionSpec()
    return jnp.tanh(jax.shard_map(jnp.dot, mesh=mesh, in_specs=(spec, spec), out_specs=spec)(inputs, weight))


def ragged(weight, inputs):
    return lax.ragged_dot(inputs, weight[None], jnp.array([len(inputs)]))


def routed(weight, inputs):
    """Sort samples by expert, multiply each run of them with its expert's matrix, and sort them back."""
    experts = (inputs[:, 0] > 0).astype(int)
    order, sizes = jnp.argsort(experts), jnp.bincount(experts, length=2)
    return lax.ragged_dot(inputs[order], jnp.stack([weight, weight.T]), sizes)[jnp.argsort(order)]


def called_twice(params, inputs):
    """Call one function on two parameters: what is kept of one call is not of the other."""
    return jnp.tanh(sloped(params["o"], jnp.tanh(sloped(params["w"], inputs)))) @ params["z"]


ONE_SAMPLE = {
    "forwards": through(forwards, ["o"]),
    "backwards": through(backwards, ["o"]),
    "a rule with a loop": through(looped, ["o"]),
    "rounded": through(rounded, ["o"], lambda x: 3 * x),
    "ragged": through(ragged, ["o"]),
    "routed": through(routed, ["o"]),
    "called twice": (called_twice, TWO | weights(z=(2, 3)), VECTORS, ["z"]),
    "an unread head": (
        lambda p, x: rounded(p["o"], jnp.tanh(x @ p["w"])),
        TWO,
        VECTORS,
        "without another layer behind it",
    ),
    "without a layer": (lambda p, x: x * p["w"][0, 0], TWO, VECTORS, r"\(a layer\), got none"),
    "towers": (lambda p, x: x @ p["o"] + jnp.tanh(x @ p["w"])[:, :2], TWO, VECTORS, "several"),
}
"""Programs that none follows, or whose last layer LAI does not read."""


def loss(outputs, targets):
    return squares(outputs["logits"] if isinstance(outputs, dict) else outputs, targets)


@pytest.mark.parametrize("name", FOLLOWED | ONE_SAMPLE)
def test_followed_programs_give_exact_scores(name):
    apply, params, inputs, layers = (FOLLOWED | ONE_SAMPLE)[name]
    model, batch = (apply, params, loss), (inputs, drawn(N))
    rows = gradients(*model, batch)
    trace = computed(lai_jax.trace, *model, *batch, gradients="all")
    assert kernel_error(trace, rows) < 1e-12
    scores = computed(lai_jax.exact_scores, *model, batch, batch)
    np.testing.assert_allclose(scores, rows @ rows.sum(0), rtol=1e-9, atol=1e-9 * np.abs(scores).max())
    if isinstance(layers, list):
        assert explained(*model, batch) == layers
    elif layers is not None:
        with pytest.raises(ValueError, match=layers):
            explained(*model, batch)
        with pytest.raises(ValueError, match="no last layer to read"):
            lai.lai_kernel(trace, trace)


@pytest.mark.parametrize("name", ["sharded", "ragged", "complex parameters", "complex samples"])
def test_outside_of_jit_so_it_is(name):
    apply, params, inputs, _ = (FOLLOWED | ONE_SAMPLE | {"sharded": through(sharded, None)})[name]
    assert lai_jax.selfcheck(apply, params, squares, inputs, drawn(N)).relative_error < 1e-12


@pytest.mark.parametrize("estimator", ["ghost", "exact"])
@pytest.mark.parametrize(
    "name", ["rounded", "without a layer", "complex parameters", "ending in a parameter, 1"]
)
def test_steps_go_down_by_scored_gradients(name, estimator):
    apply, params, inputs, _ = (FOLLOWED | ONE_SAMPLE)[name]
    model, batch = (apply, params, squares), (inputs, drawn(N))
    rows = gradients(*model, batch)
    after, _, report = stepped(model, batch, batch, estimator=estimator, policy=lai.reweight)
    np.testing.assert_allclose(report.scores, rows @ rows.sum(0), rtol=1e-9)
    moved = flat(params) - flat(after)
    np.testing.assert_allclose(moved, 0.1 * report.weights @ rows, rtol=1e-9, atol=1e-12)
    assert lai_jax.coverage(*model, *batch).fraction == 1.0


def put_back(params, inputs):
    order = jnp.argsort(inputs[:, 0])
    return jnp.take_along_axis(dense(params, inputs[order]), jnp.argsort(order)[:, None], 0)


def one_by_one(params, inputs):
    return lax.map(lambda row: dense(params, row), inputs)


def among_all_pairs(params, inputs):
    return jnp.einsum("ij,jk->ik", jnp.eye(len(inputs)), dense(params, inputs))


@pytest.mark.parametrize("apply", [put_back, one_by_one, among_all_pairs])
def test_seemingly_coupled_samples_are_scored(apply):
    batch = VECTORS, drawn(N)
    found, expected = (computed(lai_jax.trace, own, TWO, squares, *batch) for own in (apply, dense))
    kernel = lai.lai_kernel(expected, expected)
    np.testing.assert_allclose(lai.lai_kernel(found, expected), kernel, rtol=1e-9)
    rows = gradients(dense, TWO, squares, batch)
    scores = computed(lai_jax.exact_scores, apply, TWO, squares, batch, batch)
    np.testing.assert_allclose(scores, rows @ rows.sum(0), rtol=1e-9)
    if apply is put_back:
        outside = jax.tree.map(np.asarray, lai_jax.trace(apply, TWO, squares, *batch))
        np.testing.assert_allclose(lai.lai_kernel(outside, expected), kernel, rtol=1e-9)
        scores = lai_jax.exact_scores(apply, TWO, squares, batch, batch)
        np.testing.assert_allclose(scores, rows @ rows.sum(0), rtol=1e-9)


def until_small(params, hidden):
    def halved(row):
        return lax.while_loop(lambda h: jnp.abs(h).max() > 0.5, lambda h: h / 2, lax.stop_gradient(row))

    return hidden + jax.vmap(halved)(hidden)


BETWEEN = {
    "rounded": lambda p, h: rounded(p["w"], h),
    "solved": lambda p, h: jnp.linalg.solve(p["w"] @ p["w"].T + jnp.eye(4), h.T).T,
    "solved by factors": lambda p, h: jax.scipy.linalg.solve_triangular(p["w"] + 9 * jnp.eye(4), h.T).T,
    "until small": until_small,
}
"""What no rule follows between two layers."""


@pytest.mark.filterwarnings("ignore:apply. LAI has no readout")
@pytest.mark.parametrize("name", BETWEEN)
def test_estimators_accept_unfollowed_middle_operations(name):
    def apply(params, inputs):
        return BETWEEN[name](params, jnp.tanh(inputs @ params["v"])) @ params["o"]

    params, batch = TWO | {"v": drawn(4, 4, seed=1)}, (VECTORS, drawn(N))
    model, hidden = (apply, params, squares), BETWEEN[name](params, jnp.tanh(VECTORS @ params["v"]))
    trace = computed(lai_jax.trace, *model, *batch, gradients="all")
    shifted = lambda shift, outputs: outputs + shift  # noqa: E731
    last = gradients(shifted, jnp.zeros(2), squares, (hidden @ params["o"], batch[1]))
    alpha = sum(rows @ rows.T for rows in (VECTORS, hidden))
    found = lai.Trace([layer for layer in trace.layers if layer.name in ("v", "o")])
    np.testing.assert_allclose(lai.lai_kernel(found, found), alpha * (last @ last.T), rtol=1e-9)
    rows = gradients(*model, batch)
    assert kernel_error(trace, rows) < 1e-12
    scores = computed(lai_jax.exact_scores, *model, batch, batch)
    np.testing.assert_allclose(scores, rows @ rows.sum(0), rtol=1e-9)
    after = stepped(model, batch, batch, policy=jnp.ones_like)[0]
    np.testing.assert_allclose(flat(params) - flat(after), 0.1 * rows.sum(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["solved by factors", "rounded"])
def test_a_matrix_in_it_is_named(name):
    def apply(params, inputs):
        return BETWEEN[name](params, jnp.tanh(inputs @ params["v"])) @ params["o"]

    with pytest.warns(UserWarning, match="no readout from the input of 'w'"):
        computed(lai_jax.summarize, apply, TWO | {"v": TWO["w"]}, squares, VECTORS, drawn(N))
