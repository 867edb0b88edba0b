"""What a curated JAX step is given wrong is named by it, before anything changes; nothing is compiled."""

import jax
import jax.numpy as jnp
import lai_jax
import optax
import pytest

import lai_core as lai
from tests.lai_jax.oracle import drawn
from tests.lai_jax.support import classified, cross_entropy

PARAMS, TX = {"w": drawn(4, 5), "o": drawn(5, 3)}, optax.sgd(0.1)
BATCH = classified(4)


def dense(params, inputs):
    return jnp.tanh(inputs @ params["w"]) @ params["o"]


def step(*, tx=TX, state=None, loss=cross_entropy, parts=None, **options):
    def run(params, inputs, targets):
        summary = lai_jax.summarize(dense, params, cross_entropy, inputs, targets, parts=parts)
        update = lai_jax.curated_update(dense, loss, tx, **options)
        return update(params, TX.init(params) if state is None else state, summary, inputs, targets)

    return jax.eval_shape(run, PARAMS, *BATCH)


def weights(**options):
    def run(params, inputs, targets):
        summary = lai_jax.summarize(dense, params, cross_entropy, inputs, targets)
        return lai_jax.score(dense, params, cross_entropy, summary, inputs, targets, **options)

    return jax.eval_shape(run, PARAMS, *BATCH)


RETURNED = {
    "a mask": (lambda s: s > 0, r"got bool of shape \(4,\)"),
    "indices": (jnp.argsort, r"got int(32|64) of shape \(4,\)"),
    "some": (lambda s: s[:2], r"got float(32|64) of shape \(2,\)"),
    "one for all": (lambda s: s.sum(), r"got float(32|64) of shape \(\)"),
    "a column": (lambda s: s[:, None], r"got float(32|64) of shape \(4, 1\)"),
    "nothing": (lambda _: None, "got NoneType"),
    "a pair": (lambda s: (s, s), "got tuple"),
}


@pytest.mark.parametrize("call", [step, weights])
@pytest.mark.parametrize("what", RETURNED)
def test_a_policy_returns_one_weight_a_sample(what, call):
    policy, got = RETURNED[what]
    with pytest.raises(TypeError, match=r"policy: expected floating-point weights of shape \(4,\).*" + got):
        call(policy=policy)


ADAM = optax.adam(0.1)
WRONG = {
    "a policy's name": (
        lambda: step(policy="keep_positive"),
        "policy: expected a function .* 'keep_positive'",
    ),
    "a policy of one part": (lambda: step(parts=2), "policy: expected one that takes sizes=.*keep_positive"),
    "another state": (lambda: step(state=ADAM.init(PARAMS)), r"opt_state: expected what tx.init\(params\)"),
    "no state": (lambda: step(tx=ADAM), r"opt_state: expected what tx.init\(params\)"),
    "rows in words": (lambda: step(rows="half"), "rows: expected a number of rows.* 'half'"),
    "rows by a flag": (lambda: step(rows=True), "rows: expected a number of rows.* True"),
    "losses and more": (lambda: step(loss=lambda o, t: (cross_entropy(o, t), o)), "loss: .* got tuple"),
    "no losses": (lambda: step(loss=lambda *_: None), "loss: expected an array.* got NoneType"),
    "a width as a sketch": (
        lambda: lai_jax.summarize(dense, PARAMS, cross_entropy, *BATCH, sketch=8),
        "sketch: expected what lai_jax.draw_sketch returned, got int",
    ),
    "a seed as a key": (lambda: lai_jax.draw_sketch(0, 5, 2), "key: expected one of jax.random.key"),
    "no whole width": (lambda: lai_jax.draw_sketch(jax.random.key(0), 5.0, 2), "outputs: expected a whole"),
    "inputs alone": (
        lambda: lai_jax.score_dataset(dense, PARAMS, cross_entropy, BATCH[0], BATCH, "unmade"),
        "dataset: expected a pair",
    ),
    "checkpoints without names": (
        lambda: lai_jax.score_dataset(
            dense, PARAMS, cross_entropy, BATCH, BATCH, "unmade", checkpoints=[PARAMS]
        ),
        "checkpoints: expected a mapping",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(case):
    call, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize("tx", [optax.lbfgs(), optax.polyak_sgd()], ids=["lbfgs", "polyak"])
def test_a_transformation_that_asks_for_more_than_gradients_is_named(tx):
    params, batch = {"w": jnp.ones((4, 3))}, (jnp.ones((2, 4)), jnp.array([0, 1]))
    given = lambda params, inputs: inputs @ params["w"], optax.softmax_cross_entropy_with_integer_labels
    update = lai_jax.curated_update(*given, tx)
    summary = lai_jax.summarize(given[0], params, given[1], *batch)
    with pytest.raises(
        TypeError, match="tx: expected one whose update takes gradients, state and parameters"
    ):
        update(params, tx.init(params), summary, *batch)


ESTIMATORS = ("ghost", "lai", "lli", "preconditioned_lai", "gate_lai", "calibrated_lai", "exact")
USES = {
    "positions": ("mean", {"lai", "preconditioned_lai", "calibrated_lai"}),
    "calibration": (3, {"calibrated_lai"}),
    "last": ("w", {*ESTIMATORS} - {"exact"}),
    "decay": (0.5, {"preconditioned_lai"}),
    "exponent": (0.5, {"preconditioned_lai"}),
    "scale_inputs": (True, {"preconditioned_lai"}),
}
"""Of each option a value that is not the usual one, and the estimators that have a use for it."""

OF_SUMMARIES, OF_BOTH = ("positions", "calibration"), ("last",)
UNUSED = [(option, name) for option, (_, users) in USES.items() for name in ESTIMATORS if name not in users]


@pytest.mark.parametrize(("option", "estimator"), UNUSED)
def test_an_option_that_an_estimator_has_no_use_for_is_refused(option, estimator):
    """By each call that takes it, before anything is read."""
    given = {"estimator": estimator, option: USES[option][0]}
    calls = [
        lambda: lai_jax.curated_update(dense, cross_entropy, TX, **given),
        lambda: lai_jax.score(dense, PARAMS, cross_entropy, None, *BATCH, **given),
    ]
    if option in (*OF_SUMMARIES, *OF_BOTH):
        summarized = [lambda: lai_jax.summarize(dense, PARAMS, cross_entropy, *BATCH, **given)]
        calls = summarized + (calls if option in OF_BOTH else [])
    for call in calls:
        with pytest.raises(ValueError, match=f"{option}: expected the estimator to be .*, got '{estimator}'"):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: step(policy=lai.keep_top),
            "asks for more .missing a required argument: 'fraction'",
        ),
        (lambda: step(recompute=True), "recompute: expected rows= beside it, .* got None; leave it out"),
        (
            lambda: lai_jax.score(dense, PARAMS, cross_entropy, None, *BATCH, second_moment=1.0),
            "second_moment: expected the estimator to be one of 'preconditioned_lai', got 'lai'",
        ),
        (
            lambda: lai_jax.summarize(dense, PARAMS, cross_entropy, *BATCH, chunk=2, parts=2),
            "chunk: expected None beside parts=2, which are traced one after the other, got 2",
        ),
    ],
)
def test_an_option_that_needs_another_is_refused_without_it(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
