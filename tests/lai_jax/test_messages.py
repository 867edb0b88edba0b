"""Mistakes with the JAX adapter are named, with the way out; most rows compile nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import lai_jax
import optax
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.support import SGD, classified, cross_entropy, dense, drawn, squares, vectors, weights
from tests.support.refusals import check_refusal

BATCH, SIX, PARAMS = classified(4), vectors(6), weights(w=(4, 5), o=(5, 3))


def computed(params, inputs):
    return dense(params | {"w": params["w"] * 2}, inputs)


GIVEN = dense, PARAMS, cross_entropy
summarized = partial(lai_jax.summarize, *GIVEN)


def updated(side=None, *, state=None, tx=SGD, loss=cross_entropy, batch=BATCH, more=(), **options):
    """Trace a step against what holds the validation side."""

    def run(params, batch):
        summary = (side or of())(params)
        update = lai_jax.curated_update(dense, loss, tx, **options)
        return update(params, SGD.init(params) if state is None else state, summary, *batch, *more)

    return jax.eval_shape(run, PARAMS, batch)


def of(**options):
    """Return what makes a validation side with options."""
    return lambda params: lai_jax.summarize(dense, params, cross_entropy, *BATCH, **options)


def scored(**options):
    def run(params, inputs, targets):
        summary = lai_jax.summarize(dense, params, cross_entropy, inputs, targets)
        return lai_jax.score(dense, params, cross_entropy, summary, inputs, targets, **options)

    return jax.eval_shape(run, PARAMS, *BATCH)


def traced(apply=dense, params=None, loss=squares, inputs=SIX[0], targets=SIX[1], **options):
    return lai_jax.trace(apply, PARAMS if params is None else params, loss, inputs, targets, **options)


def exact(validation=SIX, **options):
    return lai_jax.exact_scores(dense, PARAMS, squares, validation, SIX, **options)


def weighted(params):
    return lai_jax.Validation(of()(params).side, layer_weights=jnp.ones(2))


def mapped(inputs):
    def samples(inputs):
        loss = lambda outputs, _: outputs.sum(-1)  # noqa: E731
        return lai_jax.summarize(lambda p, x: x @ p, jnp.ones((2, 1)), loss, inputs, inputs).side.samples

    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    return jax.shard_map(samples, mesh=mesh, in_specs=spec("data"), out_specs=spec())(inputs)


SKETCH = lai_jax.draw_sketch(jax.random.key(0), 3, 2)
WIDTH = "summary: output gradients have width"
WHOLE = "expected a whole number"
KEPT = drawn(6, 5, 4), jnp.ones((6, 5))
POLICY = "policy: expected floating-point weights of shape (4,)"
SCALAR = "loss: expected one number a sample, shape (6,), got shape"
RETURNED = {
    "bool of shape (4,)": lambda s: s > 0,
    "float…of shape (2,)": lambda s: s[:2],
    "float…of shape ()": lambda s: s.sum(),
    "float…of shape (4, 1)": lambda s: s[:, None],
    "NoneType": lambda _: None,
}
MESSAGES = {
    **{
        f"TypeError: {POLICY}…got {got}": [partial(call, policy=policy) for call in (updated, scored)]
        for got, policy in RETURNED.items()
    },
    "TypeError: policy: expected a function …'keep_positive'": lambda: updated(policy="keep_positive"),
    "TypeError: policy: …asks for more (missing a required argument: 'fraction'": (
        lambda: updated(policy=lai.keep_top)
    ),
    "TypeError: policy: expected one that takes sizes=…keep_positive": lambda: updated(of(parts=2)),
    "TypeError: opt_state: expected what tx.init(params)": [
        lambda: updated(state=optax.adam(0.1).init(PARAMS)),
        lambda: updated(tx=optax.adam(0.1)),
    ],
    "TypeError: tx: expected an optax gradient transformation, got float": lambda: updated(tx=0.1),
    "TypeError: tx: expected one whose update takes gradients, state and parameters": [
        lambda tx=tx: updated(tx=tx, state=tx.init(PARAMS)) for tx in (optax.lbfgs(), optax.polyak_sgd())
    ],
    "ValueError: rows: expected a number of rows": [
        lambda rows=rows: updated(rows=rows) for rows in (0, 0.0, 1.5, -2)
    ],
    "ValueError: rows: expected a number of rows…True": lambda: updated(rows=True),
    "ValueError: rows: expected at most the 4 rows of the batch, got 9": lambda: updated(rows=9),
    "TypeError: loss: …got tuple": lambda: updated(loss=lambda o, t: (cross_entropy(o, t), o)),
    "TypeError: loss: expected an array…got NoneType": lambda: updated(loss=lambda *_: None),
    "ValueError: estimator: expected one of 'ghost', 'lai', 'lli'": [
        lambda call=call: call(estimator="best") for call in (updated, partial(summarized, *BATCH))
    ],
    "ValueError: second_moment: expected an array": lambda: updated(estimator="preconditioned_lai"),
    "ValueError: second_moment: expected the estimator to be one of 'preconditioned_lai', got 'lai'": (
        lambda: scored(second_moment=1.0)
    ),
    **{
        f"ValueError: {option}: expected the estimator to be one of 'preconditioned_lai', got 'lai'": [
            partial(call, **{option: value}) for call in (updated, scored)
        ]
        for option, value in {"decay": 0.5, "exponent": 0.5, "scale_inputs": True}.items()
    },
    "ValueError: last: …'ghost', 'lai', 'lli', 'preconditioned_lai', 'gate_lai', 'calibrated_lai', got": [
        partial(call, estimator="exact", last="w") for call in (updated, scored, partial(summarized, *BATCH))
    ],
    "ValueError: positions: …to be one of 'lai', 'preconditioned_lai', 'calibrated_lai', got 'ghost'": (
        lambda: summarized(*BATCH, estimator="ghost", positions="mean")
    ),
    "ValueError: calibration: expected the estimator to be one of 'calibrated_lai', got 'lai'": (
        lambda: summarized(*BATCH, calibration=3)
    ),
    "ValueError: …expected a summary for 'lli', got one for 'lai'": lambda: updated(estimator="lli"),
    "ValueError: …'exact' expects a ValidationGradient, got ValidationSummary; use": (
        lambda: updated(estimator="exact")
    ),
    "ValueError: …'gate_lai' expects a GateTrace, got ValidationSummary; use lai_jax": (
        lambda: updated(estimator="gate_lai")
    ),
    "ValueError: …'lai' expects a ValidationSummary or a Trace, got GateTrace": (
        lambda: updated(of(estimator="gate_lai"))
    ),
    "ValueError: …'calibrated_lai' expects a Validation with layer weights; use lai_": (
        lambda: updated(estimator="calibrated_lai")
    ),
    "ValueError: layer_weights: expected the estimator to be one of 'lai'": (
        lambda: updated(weighted, estimator="lli")
    ),
    "ValueError: targets: expected 4 samples as in inputs": (
        lambda: updated(of(estimator="exact"), estimator="exact", batch=(BATCH[0], BATCH[1][:3]))
    ),
    "TypeError: valid: expected a function from a batch's inputs": lambda: updated(valid=BATCH[0]),
    "TypeError: sharding: expected a jax.sharding.NamedSharding …, got str": lambda: updated(sharding="data"),
    "ValueError: sketch: expected the estimator to be one of 'lai', 'calibrated_lai'": [
        lambda: summarized(*BATCH, estimator="ghost", sketch=SKETCH),
        lambda: updated(of(sketch=SKETCH), estimator="ghost"),
        lambda: updated(of(sketch=SKETCH), estimator="preconditioned_lai", more=(jnp.zeros(3),)),
    ],
    f"ValueError: {WIDTH} 2, the step's 3 (the step does not sketch); pass the object": (
        lambda: updated(lambda params: of(sketch=SKETCH)(params).side)
    ),
    f"ValueError: {WIDTH} 3, the step's 2 (the step sketches to 2); pass the object": (
        lambda: updated(lambda params: lai_jax.Validation(of()(params).side, SKETCH))
    ),
    "TypeError: sketch: expected what lai_jax.draw_sketch returned, got int": (
        lambda: summarized(*BATCH, sketch=8)
    ),
    "TypeError: key: expected one of jax.random.key": lambda: lai_jax.draw_sketch(0, 5, 2),
    "ValueError: outputs: expected a whole": lambda: lai_jax.draw_sketch(jax.random.key(0), 5.0, 2),
    "ValueError: width: expected a whole number in [1, 6], got": [
        lambda width=width: lai_jax.draw_sketch(jax.random.key(0), 6, width) for width in (0, 7, 2.0)
    ],
    f"ValueError: chunk: {WHOLE}, 1 or more, got 0": lambda: summarized(*BATCH, chunk=0),
    "ValueError: chunk: expected an estimator and positions that have a summary": [
        lambda: lai_jax.summarize(dense, PARAMS, squares, KEPT[0], SIX[1], positions="flatten", chunk=2),
        lambda: summarized(*BATCH, estimator="gate_lai", chunk=2),
    ],
    "ValueError: chunk: expected None beside parts=2, which are traced one after the other, got 2": (
        lambda: summarized(*BATCH, chunk=2, parts=2)
    ),
    "ValueError: parts: expected an estimator and positions that have": (
        lambda: summarized(*BATCH, estimator="exact", parts=2)
    ),
    "ValueError: parts: expected a number from 2 to …(4), got 6": lambda: summarized(*BATCH, parts=6),
    "ValueError: …'calibrated_lai' expects layers whose weight is a parameter, 'w'": (
        lambda: lai_jax.summarize(computed, PARAMS, cross_entropy, *BATCH, estimator="calibrated_lai")
    ),
    "ValueError: …is calibrated on at least two samples, got 1": (
        lambda: summarized(*classified(1), estimator="calibrated_lai")
    ),
    "ValueError: summarize: expected a batch that is whole…use jax.jit": lambda: mapped(jnp.ones((4, 2))),
    "ValueError: valid: expected the estimator to be one of 'lai', …got 'ghost'": (
        lambda: summarized(*BATCH, estimator="ghost", valid=lambda inputs: inputs)
    ),
    "ValueError: valid: expected shape (n, t) with the t positions of a layer (here [5]), got (6, 2)": (
        lambda: traced(inputs=KEPT[0], valid=jnp.ones((6, 2)))
    ),
    "TypeError: dataset: expected a pair": lambda: lai_jax.score_dataset(*GIVEN, BATCH[0], BATCH, "unmade"),
    "ValueError: …expected one that scores a sample by itself": (
        lambda: lai_jax.score_dataset(*GIVEN, BATCH, BATCH, "unmade", estimator="preconditioned_lai")
    ),
    "TypeError: checkpoints: expected a mapping": (
        lambda: lai_jax.score_dataset(*GIVEN, BATCH, BATCH, "unmade", checkpoints=[PARAMS])
    ),
    "ValueError: loss: expected each sample's loss to be its own, got one that depends on how many": (
        lambda: traced(loss=lambda outputs, targets: squares(outputs, targets) / len(targets))
    ),
    "ValueError: …expected a sample to have the same loss and gradient in a batch of one": (
        lambda: traced(lambda p, x: dense(p, x) / len(x), inputs=SIX[0][:1], targets=SIX[1][:1])
    ),
    f"ValueError: {SCALAR} (); leave out the mean": lambda: traced(loss=lambda o, y: squares(o, y).mean()),
    f"ValueError: {SCALAR} (6, 3); sum or average each sample's own positions": (
        lambda: traced(loss=lambda o, _: o)
    ),
    "TypeError: loss: expected real floating-point numbers, got int": (
        lambda: traced(loss=lambda _, y: jnp.arange(y.shape[0]))
    ),
    "ValueError: …losses that depend on inputs or targets": lambda: traced(loss=lambda _, y: jnp.ones(6)),
    "TypeError: loss: expected a function, got int": lambda: traced(loss=3),
    "TypeError: apply: expected a function, got dict": lambda: traced(apply=PARAMS),
    "ValueError: …at least one product of a parameter": lambda: traced(lambda p, x: x * p["w"][0, 0]),
    "TypeError: params: expected at least one array of floating-point": (
        lambda: traced(params={"w": jnp.ones((4, 2), int), "o": jnp.ones((2, 2), int)})
    ),
    "ValueError: inputs: expected arrays of one batch": lambda: traced(inputs={"flag": True}),
    "ValueError: …got first axes of sizes [2, 6]": lambda: traced(inputs=(SIX[0], SIX[0][:2])),
    "ValueError: …at least one sample, got 0": lambda: traced(inputs=SIX[0][:0], targets=SIX[1][:0]),
    "ValueError: targets: expected 6 samples as in inputs": lambda: traced(targets=SIX[1][:2]),
    "ValueError: …the last layer is in a scan whose next iteration uses its output": (
        lambda: traced(
            lambda p, x: lax.scan(lambda h, _: (h @ p["s"], None), x, None, length=2)[0],
            {"s": drawn(4, 4)},
        )
    ),
    "ValueError: learning_rate: at='midpoint' needs an optimizer, or": lambda: exact(at="midpoint"),
    "TypeError: optimizer: expected a pair (tx, state) of optax": lambda: exact(optimizer=SGD),
    "TypeError: validation: expected a pair (inputs, targets)": lambda: exact(SIX[0]),
    "TypeError: batch: expected a pair (inputs, targets)": [
        partial(call, *GIVEN, BATCH[0])
        for call in (lai_jax.per_sample_norms, lai_jax.check_per_sample_gradients)
    ],
    "TypeError: second: expected a pair (inputs, targets)": (
        partial(lai_jax.per_sample_inner_products, *GIVEN, BATCH, BATCH[0])
    ),
}


@pytest.mark.parametrize("said", MESSAGES)
def test_a_mistake_is_named(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refusal(said, MESSAGES[said])
    assert not any(tmp_path.iterdir())
