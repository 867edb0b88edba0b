"""What no rule follows is read off the program of one sample, where samples keep apart."""

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


def unread_head(params, inputs):
    """End in a product that LAI does not read."""
    return lax.ragged_dot(jnp.tanh(inputs @ params["w"]), params["o"][None], jnp.array([len(inputs)]))


def recurrence(params, inputs):
    """End in a scan whose next iteration uses the last layer's output."""
    return lax.scan(lambda h, _: (jnp.tanh(h @ params["w"]), None), inputs, None, length=2)[0]


def without_a_layer(params, inputs):
    return inputs * params["w"][0]


def towers(params, inputs):
    return inputs @ params["o"] + jnp.tanh(inputs @ params["w"])[:, :2]


QUICK = [straight_through, recurrence, without_a_layer]
SLOW = [
    pytest.param(apply, marks=pytest.mark.slow) for apply in (while_loop, ragged, routed, towers, unread_head)
]


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
    ("apply", "reason"),
    [(unread_head, "without another layer behind it"), (without_a_layer, "got none"), (towers, "several")],
)
def test_lai_says_why_it_reads_none(apply, reason):
    with pytest.raises(ValueError, match=reason):
        lai_jax.trace(apply, PARAMS, squares, *BATCHES[0])
    trace = lai_jax.trace(apply, PARAMS, squares, *BATCHES[0], gradients="all")
    with pytest.raises(ValueError, match=r"no last layer to read|at least one layer that LAI sees"):
        lai.lai_kernel(trace, trace)


def plain(params, inputs):
    return jnp.tanh(inputs @ params["w"]) @ params["o"]


def put_back(params, inputs):
    order = jnp.argsort(inputs[:, 0])
    return jnp.take_along_axis(plain(params, inputs[order]), jnp.argsort(order)[:, None], 0)


def rolled(params, inputs):
    return jnp.roll(plain(params, jnp.roll(inputs, 1, 0)), -1, 0)


def one_by_one(params, inputs):
    return lax.map(lambda row: plain(params, row), inputs)


def written(params, inputs):
    def row(place, found):
        return found.at[place].set(plain(params, inputs[place]))

    return lax.fori_loop(0, len(inputs), row, jnp.zeros((len(inputs), 2)))


def among_all_pairs(params, inputs):
    return jnp.einsum("ij,jk->ik", jnp.eye(len(inputs)), plain(params, inputs))


REWRITTEN = [
    put_back,
    one_by_one,
    *(pytest.param(one, marks=pytest.mark.slow) for one in (rolled, written, among_all_pairs)),
]


@pytest.mark.parametrize("apply", REWRITTEN, ids=lambda apply: apply.__name__)
@pytest.mark.parametrize("jitted", [False, True])
def test_lai_reads_samples_that_only_seem_to_meet(apply, jitted):
    def trace(apply, params, inputs, targets):
        return lai_jax.trace(apply, params, squares, inputs, targets)

    found = (jax.jit(trace, static_argnums=0) if jitted else trace)(apply, PARAMS, *BATCHES[0])
    expected = trace(plain, PARAMS, *BATCHES[0])
    np.testing.assert_allclose(
        lai.lai_kernel(found, expected), lai.lai_kernel(expected, expected), rtol=1e-4, atol=1e-4
    )


def solved(params, hidden):
    return jnp.linalg.solve(params["w"] @ params["w"].T + jnp.eye(4), hidden.T).T


def solved_by_factors(params, hidden):
    return jax.scipy.linalg.solve_triangular(params["w"] + 9 * jnp.eye(4), hidden.T).T


def solved_for_each(params, hidden):
    return jnp.linalg.solve(jnp.einsum("ni,nj->nij", hidden, hidden) + jnp.eye(4), hidden[..., None])[..., 0]


def added_in_logarithms(params, hidden):
    return jnp.logaddexp(hidden, params["w"][0])


def rounded_products(params, hidden):
    return rounded(hidden, params["w"])


def until_small(params, hidden):
    def halved(row):
        return lax.while_loop(lambda h: jnp.abs(h).max() > 0.5, lambda h: h / 2, lax.stop_gradient(row))

    return hidden + jax.vmap(halved)(hidden)


QUICK_BETWEEN = [rounded_products]
SLOW_BETWEEN = [solved, solved_by_factors, solved_for_each, added_in_logarithms, until_small]
BETWEEN = QUICK_BETWEEN + [pytest.param(one, marks=pytest.mark.slow) for one in SLOW_BETWEEN]


@pytest.mark.filterwarnings("ignore:apply. LAI has no readout")
@pytest.mark.parametrize("between", BETWEEN, ids=lambda one: one.__name__)
def test_every_estimator_takes_what_no_rule_follows_between_two_layers(between):
    def apply(params, inputs):
        return between(params, jnp.tanh(inputs @ params["v"])) @ params["o"]

    params, (inputs, targets) = {**PARAMS, "v": drawn(4, 4, seed=1)}, BATCHES[0]
    trace = lai_jax.trace(apply, params, squares, inputs, targets)
    hidden = between(params, jnp.tanh(inputs @ params["v"]))
    last = jax.vmap(jax.grad(lambda out, y: squares(out[None], y[None])[0]))(hidden @ params["o"], targets)
    alpha = sum(rows @ rows.T for rows in (inputs, hidden))
    found = [layer for layer in trace.layers if layer.name in ("v", "o")]
    np.testing.assert_allclose(
        lai.lai_kernel(lai.Trace(found), lai.Trace(found)), alpha * (last @ last.T), rtol=1e-3
    )
    tx = optax.sgd(0.1)
    moved = {}
    for estimator in ("ghost", "exact", "lai"):
        policy = jnp.ones_like if estimator == "lai" else lai.keep_positive
        update = lai_jax.curated_update(apply, squares, tx, estimator=estimator, policy=policy)
        side = lai_jax.summarize(apply, params, squares, *BATCHES[1], estimator=estimator)
        moved[estimator] = update(params, tx.init(params), side, inputs, targets)
    np.testing.assert_allclose(moved["ghost"][2].scores, moved["exact"][2].scores, rtol=1e-3, atol=1e-3)
    gradient = jax.grad(lambda params: squares(apply(params, inputs), targets).sum())(params)
    stepped = optax.apply_updates(params, jax.tree.map(lambda leaf: -0.1 * leaf, gradient))
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4), moved["lai"][0], stepped
    )


@pytest.mark.parametrize("between", [solved_by_factors, rounded_products])
def test_a_matrix_in_it_is_named(between):
    def apply(params, inputs):
        return between(params, jnp.tanh(inputs @ params["v"])) @ params["o"]

    with pytest.warns(UserWarning, match="no readout from the input of 'w'"):
        lai_jax.summarize(apply, {**PARAMS, "v": PARAMS["w"]}, squares, *BATCHES[0])


@jax.custom_vjp
def with_a_slope(values, weight):
    return values @ weight


with_a_slope.defvjp(lambda v, w: (v @ w, (v, w)), lambda kept, g: (2 * g @ kept[1].T, 2 * kept[0].T @ g))


def twice(params, inputs):
    """Call one function on two parameters: what is kept of one call is not of the other."""
    return jnp.tanh(with_a_slope(jnp.tanh(with_a_slope(inputs, params["w"])), params["o"])) @ params["z"]


def test_two_operations_of_one_kind_are_told_apart():
    params = {**PARAMS, "z": drawn(2, 3)}
    assert lai_jax.selfcheck(twice, params, squares, *BATCHES[0]).relative_error < 1e-4
