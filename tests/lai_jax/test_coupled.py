"""Models in which samples see one another are refused by traces and by exact scores; others are not."""

from itertools import product

import jax
import jax.numpy as jnp
import lai_jax
import optax
import pytest
from jax import lax

from tests.lai_jax.support import cross_entropy, dense, drawn, ruled_by, squares, vectors, weights

N = 6
LOGISTIC = optax.softmax_cross_entropy_with_integer_labels
PARAMS = weights(w=(4, 5), o=(5, 3), rows=(6, 4))
BATCH = drawn(N, 4), jnp.arange(N) % 3
PIXELS = jnp.arange(4 * N).reshape(N, 4) * 7 % 256, BATCH[1]
SWAPPED = jnp.array([1, 0, 2, 3, 4, 5])


def between(function):
    return lambda params, inputs: jnp.tanh(function(inputs @ params["w"])) @ params["o"]


@ruled_by(lambda hidden, _, g: (g - g.mean(0),))
def centred_gradient(hidden):
    return hidden


@ruled_by(lambda square, _, g: (g.T,))
def turned_gradient(square):
    return square


@ruled_by(lambda values, _, g: (g / (1 + jnp.abs(g).sum()),))
def damped(values):
    return jnp.tanh(values)


def gather_moved(hidden, move):
    """Read by numbers of rows that count the samples until they are moved."""
    rows = jnp.concatenate([jnp.arange(N)[:, None], (hidden[:, :1] > 0).astype(int)], 1)
    numbers = lax.GatherDimensionNumbers((), (0, 1), (0, 1))
    return jnp.pad(move(rows, lambda rows: lax.gather(hidden, rows, numbers, (1, 1))), ((0, 0), (0, 3)))


def shift_in_a_loop(rows, read):
    return lax.scan(lambda rows, _: (rows + jnp.array([1, 0]), read(rows)), rows, None, length=2)[1].T


def convert(rows, read):
    return jnp.stack([read(rows.astype(bool).astype(int))] * 2, 1)


def normalised(params, inputs):
    hidden = inputs @ params["w"]
    return jnp.tanh((hidden - hidden.mean(0)) / (hidden.std(0) + 0.1)) @ params["o"]


REDUCES, RULE = (
    r"reduce_sum .*reduces over the samples",
    "the derivative rule of {} could not be followed: .*",
)
HIDDEN = {
    "against each other": (lambda h: h @ h.T @ h, r"dot_general .*multiplies every sample with every other"),
    "sorted": (lambda h: jnp.sort(h, axis=0), r"sort .*runs along the samples"),
    "shifted": (lambda h: jnp.roll(h, 1, axis=0), "takes some samples of the batch"),
    "first of merged rows": (
        lambda h: jnp.stack([h, 2 * h], 1).reshape(-1, 5)[jnp.arange(N)],
        "picks samples of the batch by index",
    ),
    "first of stacked rows": (
        lambda h: jnp.stack([h, 2 * h]).reshape(-1, 5)[jnp.arange(N)],
        "picks samples of the batch by index",
    ),
    "picked": (lambda h: h[SWAPPED], r"gather .*picks samples of the batch by index"),
    "written": (lambda h: h.at[SWAPPED].add(1.0 * h), "writes to samples of the batch by index"),
    "taken off": (lambda h: h.at[SWAPPED].subtract(1.0 * h), "writes to samples of the batch by index"),
    "shifted in a loop": (lambda h: gather_moved(h, shift_in_a_loop), "picks samples of the batch by index"),
    "converted": (lambda h: gather_moved(h, convert), "picks samples of the batch by index"),
    "branched": (lambda h: lax.cond(h.sum() > 0, jnp.tanh, lambda h: h, h), REDUCES),
    "a centred gradient": (centred_gradient, RULE.format("centred_gradient")),
    "a turned gradient": (
        lambda h: turned_gradient(jnp.pad(h, ((0, 0), (0, 1))))[:, :5],
        r"derivative rule \(turned_gradient\) that mixes samples",
    ),
    "a damped gradient": (damped, RULE.format("damped") + "reduces over the samples"),
}
"""What couples samples between two layers."""
LOSSES = {
    "a softmax over the batch": (lambda o, t: -jax.nn.log_softmax(o, 0)[:, 0], "reduces over the samples"),
    "contrasts": (
        lambda o, t: cross_entropy(o @ o.T, jnp.arange(N)),
        "multiplies every sample with every other",
    ),
}
COUPLED = {"batch normalisation": (normalised, cross_entropy, REDUCES)}
COUPLED |= {name: (between(function), cross_entropy, said) for name, (function, said) in HIDDEN.items()}
COUPLED |= {name: (dense, loss, said) for name, (loss, said) in LOSSES.items()}


@pytest.mark.parametrize("gradients", ["output", "all"])
@pytest.mark.parametrize("name", COUPLED)
def test_coupled_samples_have_no_trace(name, gradients):
    apply, loss, message = COUPLED[name]

    def traced(params):
        return lai_jax.trace(apply, params, loss, *BATCH, gradients=gradients, partial=True)

    for call in (lambda: traced(PARAMS), lambda: jax.eval_shape(traced, PARAMS)):
        with pytest.raises(ValueError, match=message) as refusal:
            call()
        assert "test_coupled.py" in str(refusal.value)
        assert "evaluation mode" in str(refusal.value)


def halved_together(params, inputs):
    """Halve until all samples are small: how often that is depends on the largest, if not all are large."""
    bounded = lax.stop_gradient(jnp.tanh(10 * inputs))
    small = lax.while_loop(lambda h: jnp.abs(h).max() > 0.1, lambda h: h / 2, bounded)
    return dense(params, inputs) + small[:, :3]


def beside_its_neighbour(params, inputs):
    """Send rows around a ring of so many that a batch of another size has none."""
    ring = [(i, (i + 1) % N) for i in range(N)]

    def one(row):
        return dense(params, row + lax.ppermute(row, "samples", ring))

    return jax.vmap(one, axis_name="samples")(inputs)


def crowded(params, inputs):
    """Let two of three samples, but always one, into one of five places."""
    hidden = jnp.tanh(inputs @ params["w"])
    places = jax.nn.one_hot(jnp.argmax(hidden, -1), 5)
    taken = (jnp.cumsum(places, 0) * places).sum(-1) > max(1, 2 * len(inputs) / 3)
    return jnp.where(taken[:, None], 0, hidden) @ params["o"]


def overfull(params, tokens):
    """Let so many tokens into one of five places as random ones never are."""
    hidden = jnp.tanh(tokens.reshape(-1, 4) @ params["w"])
    places = jax.nn.one_hot(jnp.argmax(hidden, -1), 5)
    taken = (jnp.cumsum(places, 0) * places).sum(-1) > 30
    return jnp.where(taken[:, None], 0, hidden).reshape(N, -1, 5).mean(1) @ params["o"]


def saturated(params, inputs):
    """Shrink the batch once one number in it is large."""
    hidden = inputs @ params["w"]
    return (hidden / jnp.maximum(1, jnp.abs(hidden).max() / 60)) @ params["o"]


def balanced(outputs, targets):
    """Weigh classes by how often they are in the batch."""
    return cross_entropy(outputs, targets) / (targets[:, None] == targets).sum(1)


def counted(outputs, targets):
    """Divide by how many of the batch's classes count."""
    counts = targets != -100
    return jnp.where(counts, cross_entropy(outputs, jnp.where(counts, targets, 0)), 0) / counts.mean()


def far(params, inputs):
    """Give no finite loss to random numbers."""
    order = jnp.argsort(inputs[:, 0])
    return jnp.sqrt(dense(params, inputs[order])[jnp.argsort(order)] - 1e6)


def of_bytes(params, pixels):
    """Take what is never above 1 for numbers that are scaled already."""
    return dense(params, jnp.where(pixels.max() > 1, pixels / 255, pixels))


def set_apart(params, one, other):
    """Normalise the difference of two inputs of one shape."""
    return normalised(params, one - other)


@pytest.mark.parametrize(
    ("apply", "loss", "batch"),
    [
        (crowded, cross_entropy, BATCH),
        (overfull, cross_entropy, (drawn(N, 8, 4), BATCH[1])),
        (saturated, cross_entropy, BATCH),
        (far, cross_entropy, BATCH),
        (of_bytes, cross_entropy, PIXELS),
        (dense, balanced, BATCH),
        (dense, counted, BATCH),
        (halved_together, cross_entropy, BATCH),
        (beside_its_neighbour, cross_entropy, BATCH),
        (set_apart, cross_entropy, ((BATCH[0], 2 * BATCH[0]), BATCH[1])),
    ],
)
def test_tracing_detects_coupling_by_trials(apply, loss, batch):
    def scores(params, *batch):
        return lai_jax.exact_scores(apply, params, loss, batch, batch)

    def traced(params, *batch):
        return lai_jax.trace(apply, params, loss, *batch, gradients="all")

    for found in (scores, traced):
        with pytest.raises(ValueError, match=r"samples are coupled|on other samples|of unknown length"):
            jax.eval_shape(found, PARAMS, *batch)


def test_tracing_trusts_no_fitted_probe():
    """Of one, of two samples, nothing but roundings is left."""

    def bags(params, words):
        samples = jnp.repeat(jnp.arange(len(words)), words.shape[1])
        return jax.ops.segment_sum(params["e"][words.flatten()], samples, len(words)) @ params["o"]

    batch = jnp.arange(10).reshape(2, 5) % 7, jnp.arange(2)

    def last(params, *batch):
        return lai_jax.trace(bags, params, cross_entropy, *batch).layers[-1].activations

    assert jax.eval_shape(last, weights(e=(7, 4), o=(4, 3)), *batch).shape == (2, 4)


def test_saturated_units_of_one_row(optimised):
    """Of a slope roundings are left where the trial's data are large, as compiled programs have them."""
    traced = jax.jit(lambda params, *batch: lai_jax.trace(dense, params, LOGISTIC, *batch))
    for inner, width in product((5, 7, 10), (4, 8)):
        given = {"w": drawn(inner, width), "b": drawn(width), "o": drawn(width, 3)}, drawn(1, inner)
        params, inputs = jax.tree.map(lambda leaf: leaf.astype("float32"), given)
        assert len(traced(params, inputs, jnp.zeros(1, "int32")).layers) == 2


@pytest.mark.parametrize("estimator", ["exact", "ghost", "lai"])
def test_traced_constants_hide_no_coupling(estimator):
    def summarized(held, params):
        def apply(params, inputs):
            return normalised({**params, "w": params["w"] * (held[0] - held[1])}, inputs)

        return lai_jax.summarize(apply, params, cross_entropy, *BATCH, estimator=estimator)

    with pytest.raises(ValueError, match=r"samples are coupled|depends on other samples"):
        jax.eval_shape(summarized, (2.0, 1.0), PARAMS)


def while_loop(params, inputs):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] @ params["w"][:, :4]), (0, inputs))[1]


def entry_a_sample(params, inputs):
    return dense(params, inputs + params["rows"])


def kernel_from_samples(params, inputs):
    maps = lax.conv_general_dilated(params["w"][None, None], inputs[:, None, :1, None], (1, 1), "SAME")
    return maps.reshape(N, -1)[:, :5] @ params["o"]


def written_to(params, inputs):
    held = jax.new_ref(jnp.zeros((N, 5)))
    held[...] = (inputs @ params["w"])[::-1]
    return jnp.tanh(inputs @ params["w"] + held[...]) @ params["o"]


UNFOLLOWED = {
    written_to: "new_ref .*an array that is written to",
    kernel_from_samples: "a convolution of a parameter with a kernel that depends on the sample",
    while_loop: r"while .*a loop of unknown length; use lax.scan",
    entry_a_sample: r"add .*one entry for each sample of the batch",
}


@pytest.mark.parametrize("apply", UNFOLLOWED, ids=lambda apply: apply.__name__)
def test_unfollowed_operations_are_refused_by_name(apply):
    with pytest.raises(ValueError, match=UNFOLLOWED[apply] + ".*exact_scores works"):
        lai_jax.trace(apply, PARAMS, cross_entropy, *BATCH)


def test_partial_coverage_reports_omitted_layers():
    def traced(params):
        options = {"gradients": "all", "partial": True}
        return lai_jax.trace(entry_a_sample, params, cross_entropy, *BATCH, **options)

    assert jax.eval_shape(traced, PARAMS).layers[-1].name == "o"
    found = lai_jax.coverage(entry_a_sample, PARAMS, cross_entropy, *BATCH)
    assert set(found.unexplained) == {"rows"}
    missing = PARAMS["rows"].size
    assert found.fraction == pytest.approx(1 - missing / sum(leaf.size for leaf in PARAMS.values()))


def test_oversized_gradients_are_refused_or_omitted(monkeypatch):
    monkeypatch.setattr("lai_jax._recording.plan.GRADIENT_BUDGET", 100)

    def apply(params, inputs):
        return inputs @ (2 * params["o"])

    params, given = weights(o=(4, 2)), (squares, *vectors(N))
    with pytest.raises(ValueError, match=r"the gradient of 'o' has no factors .* 6 x 8 numbers"):
        lai_jax.trace(apply, params, *given, gradients="all")
    assert lai_jax.coverage(apply, params, *given).fraction == 0.0
