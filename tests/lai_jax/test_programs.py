"""A JAX model is exact however its function is written: by rules, or read off the program of one sample."""

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.programs import ONE_SAMPLE, RULED, TWO, VECTORS, N, rounded, sharded, through
from tests.lai_jax.support import computed, dense, drawn, explained, gradients, kernel_error, squares, stepped


def loss(outputs, targets):
    return squares(outputs["logits"] if isinstance(outputs, dict) else outputs, targets)


@pytest.mark.parametrize("name", RULED | ONE_SAMPLE)
def test_ghost_and_exact_scores_are_exact_and_lai_says_which_layers_it_reads(name):
    apply, params, inputs, layers = (RULED | ONE_SAMPLE)[name]
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
        with pytest.raises(ValueError, match=r"no last layer to read|at least one layer that LAI sees"):
            lai.lai_kernel(trace, trace)


@pytest.mark.parametrize("name", ["sharded", "ragged", "without one row"])
def test_outside_of_jit_so_it_is(name):
    apply, params, inputs, _ = (ONE_SAMPLE | {"sharded": through(sharded, None)})[name]
    assert lai_jax.selfcheck(apply, params, squares, inputs, drawn(N)).relative_error < 1e-12


@pytest.mark.parametrize("name", ["rounded", "without a layer"])
def test_a_step_of_ghost_takes_it_too(name):
    apply, params, inputs, _ = ONE_SAMPLE[name]
    model, batch = (apply, params, squares), (inputs, drawn(N))
    rows = gradients(*model, batch)
    report = stepped(model, batch, batch, estimator="ghost")[2]
    np.testing.assert_allclose(report.scores, rows @ rows.sum(0), rtol=1e-9)
    assert lai_jax.coverage(*model, *batch).share == 1.0


def put_back(params, inputs):
    order = jnp.argsort(inputs[:, 0])
    return jnp.take_along_axis(dense(params, inputs[order]), jnp.argsort(order)[:, None], 0)


def rolled(params, inputs):
    return jnp.roll(dense(params, jnp.roll(inputs, 1, 0)), -1, 0)


def one_by_one(params, inputs):
    return lax.map(lambda row: dense(params, row), inputs)


def written(params, inputs):
    def row(place, found):
        return found.at[place].set(dense(params, inputs[place]))

    return lax.fori_loop(0, len(inputs), row, jnp.zeros((len(inputs), 2)))


def among_all_pairs(params, inputs):
    return jnp.einsum("ij,jk->ik", jnp.eye(len(inputs)), dense(params, inputs))


@pytest.mark.parametrize("apply", [put_back, one_by_one, rolled, written, among_all_pairs])
def test_lai_and_exact_scores_read_samples_that_only_seem_to_meet(apply):
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
    "solved for each": lambda p, h: jnp.linalg.solve(
        jnp.einsum("ni,nj->nij", h, h) + jnp.eye(4), h[..., None]
    )[..., 0],
    "added in logarithms": lambda p, h: jnp.logaddexp(h, p["w"][0]),
    "until small": until_small,
}
"""What no rule follows between two layers."""


@pytest.mark.filterwarnings("ignore:apply. LAI has no readout")
@pytest.mark.parametrize("name", BETWEEN)
def test_every_estimator_takes_what_no_rule_follows_between_two_layers(name):
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
    moved = np.concatenate([(params[key] - after[key]).ravel() for key in sorted(params)])
    np.testing.assert_allclose(moved, 0.1 * rows.sum(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["solved by factors", "rounded"])
def test_a_matrix_in_it_is_named(name):
    def apply(params, inputs):
        return BETWEEN[name](params, jnp.tanh(inputs @ params["v"])) @ params["o"]

    with pytest.warns(UserWarning, match="no readout from the input of 'w'"):
        computed(lai_jax.summarize, apply, TWO | {"v": TWO["w"]}, squares, VECTORS, drawn(N))
