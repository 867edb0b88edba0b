"""Naming the row of a JAX program: numbers against the Jacobian of the losses, and planted rows."""

import json
import math

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

from tests.lai_jax.support import dense, squares, weights
from tests.lai_jax.support import vectors as data

N, T, WORDS = 16, 12, 20


def weighted(outputs, targets):
    words, weights = targets
    losses = -jnp.take_along_axis(jax.nn.log_softmax(outputs), words[..., None], -1)[..., 0]
    return (losses * weights).sum(1)


def sequence(params, words):
    hidden = params["words"][words]
    hidden = hidden + jnp.tanh(hidden @ params["mix"])
    hidden = hidden * jax.lax.rsqrt((hidden**2).mean(-1, keepdims=True) + 1e-6) * params["gain"]
    return hidden @ params.get("head", params["words"].T)


def vectors(seed=0):
    return dense, weights(w=(4, 8), b=(8,), o=(8, 1)), squares, *data(N, seed=seed)


def sentences(seed=0, tied=False):
    draw = np.random.default_rng(seed)
    params = weights(words=(WORDS, 8), mix=(8, 8)) | {"gain": jnp.ones(8)}
    params |= {} if tied else weights(head=(8, WORDS))
    words, targets = (jnp.asarray(draw.integers(WORDS, size=(N, T))) for _ in range(2))
    return sequence, params, weighted, words, (targets, jnp.ones((N, T)))


def tied(seed=0):
    return sentences(seed, tied=True)


def contrastive(seed=0):
    apply, params, _, inputs, targets = vectors(seed)
    rows = jnp.arange(N)
    return apply, params, lambda o, t: -jnp.log(jax.nn.softmax(o @ o.T)[rows, rows]), inputs, targets


def single(seed=0):
    apply, params, loss, inputs, targets = vectors(seed)
    return lambda own, rows: apply(own, rows) / len(rows), params, loss, inputs[:1], targets[:1]


def check(found, apply, params, loss, inputs, targets):
    whole = jax.jacrev(lambda own: loss(apply(own, inputs), targets))(params)
    leaves = jax.tree_util.tree_flatten_with_path(whole)[0]
    parts = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf).reshape(len(inputs), -1)
        for path, leaf in leaves
    }
    built = np.concatenate(list(parts.values()), 1)
    total, norms = built.sum(0), np.linalg.norm(built, axis=1)
    np.testing.assert_allclose(found.norms, norms, rtol=1e-9, atol=1e-10 * norms.max())
    np.testing.assert_allclose(found.shares, built @ total / (total @ total), rtol=1e-9, atol=1e-10)
    assert set(found.layer_norms) == set(parts)
    for name, part in parts.items():
        expected = np.linalg.norm(part, axis=1)
        np.testing.assert_allclose(found.layer_norms[name], expected, rtol=1e-9, atol=1e-10 * norms.max())
    left = [row for row in range(len(inputs)) if found.verdict != "rows" or row not in found.named]
    np.testing.assert_allclose(found.rest_norm, np.linalg.norm(built[left].sum(0)), rtol=1e-9)


@pytest.mark.parametrize("build", [vectors, sentences, tied, contrastive, single])
@pytest.mark.parametrize("seed", range(2))
def test_numbers_are_those_of_the_jacobian(build, seed):
    case = build(seed)
    check(lai_jax.diagnose(*case), *case)


@pytest.mark.parametrize("row", [0, 7])
@pytest.mark.parametrize("build", [vectors, sentences, tied])
def test_a_planted_row_is_named(build, row):
    apply, params, loss, inputs, targets = build()
    if build is vectors:
        targets = targets.at[row].set(500.0)
    else:
        targets = targets[0].at[row, 4].set((inputs[row, 4] + 1) % WORDS), targets[1].at[row, 4].set(200.0)
    found = lai_jax.diagnose(apply, params, loss, inputs, targets)
    assert (found.named, found.verdict) == ((row,), "rows"), found
    check(found, apply, params, loss, inputs, targets)
    if build is not vectors:
        assert found.rows()[0]["positions"] == (4, 4)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda inputs: inputs.at[4, 0].set(jnp.inf), "inputs or targets"),
        (lambda inputs: inputs.at[4].set(0.0), "div (test_diagnose.py:"),
    ],
)
def test_nonfinite_rows_name_the_operation(change, where):
    apply, params, loss, inputs, targets = vectors()

    def divided(own, given):
        return apply(own, given) / given[:, :1]

    found = lai_jax.diagnose(divided, params, loss, change(inputs), targets, ids=range(100, 116))
    assert (found.named, found.verdict) == ((4,), "not finite")
    assert found.nonfinite[4].startswith(where)
    kept = jnp.asarray([row for row in range(N) if row != 4])
    alone = lai_jax.diagnose(divided, params, loss, inputs[kept], targets[kept])
    np.testing.assert_allclose(found.norms[kept], alone.norms, rtol=1e-10)


def test_bad_rows_warn_of_no_precision():
    with jax.enable_x64(False):  # as JAX starts: there is no float64 to measure in
        apply, params, loss, inputs, targets = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float32) if isinstance(leaf, jax.Array) else leaf, vectors()
        )
        assert lai_jax.diagnose(apply, params, loss, inputs, targets.at[3].set(jnp.nan)).named == (3,)


def test_nonfinite_gradients_name_the_operation():
    apply, params, _, inputs, targets = vectors()
    found = lai_jax.diagnose(
        apply, params, lambda o, t: jnp.sqrt(jnp.abs(o[:, 0] * t)), inputs, targets.at[3].set(0.0)
    )
    assert (found.named, found.verdict) == ((3,), "not finite")
    assert found.nonfinite[3].startswith("the gradient, at ")


def test_params_without_floating_numbers_are_refused():
    _, _, loss, inputs, targets = vectors()
    with pytest.raises(ValueError, match=r"^params: expected at least one floating-point array, got none$"):
        lai_jax.diagnose(lambda _, given: given, {}, loss, inputs, targets)


def test_monitors_name_the_spiking_row(tmp_path):
    apply, params, loss, _, _ = vectors()
    path = tmp_path / "spikes.jsonl"
    monitor = lai_jax.SpikeMonitor(apply, loss, path=path, rule=lai_jax.SpikeRule(warmup=5))
    gradient = jax.jit(jax.grad(lambda own, *batch: loss(apply(own, batch[0]), batch[1]).mean()))
    found = []
    for step in range(12):
        inputs, targets = data(N, seed=step)
        targets = targets.at[3].add(500.0 * (step == 9))
        norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient(params, inputs, targets))))
        found.append(monitor.check(norm, params, inputs, targets, ids=range(N)))
    assert [None if one is None else one.named for one in found] == [None] * 9 + [(3,)] + [None] * 2
    line = json.loads(path.read_text())
    assert line["total_norm"] / N == pytest.approx(line["norm"], rel=1e-9)
    other = lai_jax.SpikeMonitor(apply, loss)
    other.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert other.state_dict() == monitor.state_dict()
    with pytest.warns(UserWarning, match=r"^SpikeMonitor: no diagnosis of a norm of nan: ids: expected one"):
        assert other.check(math.nan, params, inputs, targets, ids=[0]) is None  # the run goes on
