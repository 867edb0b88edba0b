"""Sketched output gradients: unbiased, with the variance that `sketch_variance` says.

The oracle draws nothing: it builds every sketch as a matrix, multiplies it onto the output gradients
in numpy, and lists the scores of gradients built entry by entry.
"""

import itertools
import re
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs, sketch_variance
from tests.core.estimators.test_contraction import multiply_adds, peak, products
from tests.support import explicit
from tests.support.backends import BACKENDS
from tests.support.draws import GENERATORS
from tests.support.inequalities import hunt
from tests.support.traces import Layer, Layout, trace

FEW = settings(max_examples=3)  # one shape a case: the numbers are generic
NUMPY = BACKENDS[0]
LAYOUTS = {
    "vectors": (Layout(((2, 3), (3, 4)), bias=(False, True)), "tokens"),
    "tokens, few positions": (Layout(((2, 3), (3, 4)), positions=2), "tokens"),
    "tokens, few outputs": (Layout(((2, 3), (2, 2)), positions=4, bias=(True, True)), "tokens"),
    "mean": (Layout(((3, 2), (2, 3)), positions=3, bias=(True, False)), "mean"),
    "flatten": (Layout(((3, 2), (2, 3)), positions=2, bias=(True, True)), "flatten"),
}


def all_signs(d):
    return [np.array(signs) for signs in itertools.product((-1.0, 1.0), repeat=d)]


def matrix(signs, permutation, width):
    """Build the sketch, `(width, d)`: entry (b, i) is s_i where output i is in group b."""
    size = -(-len(signs) // width)
    built = np.zeros((width, len(signs)))
    for place, output in enumerate(permutation):
        built[place // size, output] = signs[output]
    return built


def listed_scores(sides, positions, sketches, weights=None):
    """Return LAI's scores under each sketch, `(sketches, n)`."""
    scores = []
    for sketch in sketches:
        validation, training = (
            [*side[:-1], replace(side[-1], output_gradients=side[-1].output_gradients @ sketch.T)]
            for side in sides
        )
        scores.append(explicit.lai_kernel(validation, training, positions, weights).sum(0))
    return np.array(scores)


def drawn(layout, seed, sizes=(3, 2)):
    return [layout.draw(n, seed + index) for index, n in enumerate(sizes)]


@pytest.mark.equation("sketch-unbiased", "sketch-variance")
@pytest.mark.parametrize("positions", ["tokens", "mean", "flatten"])
@settings(max_examples=2)
@given(seed=GENERATORS)
def test_over_all_signs_the_mean_is_the_exact_score_and_the_variance_as_said(backend, positions, seed):
    d, width = 3, 2  # the last group is half full
    sides = [trace(side, backend) for side in drawn(Layout(((2, 2), (2, d)), positions=2), seed)]
    permutation = backend.array(np.random.default_rng(seed).permutation(d))
    scores = []
    for signs in all_signs(d):
        sketched = [sketch_outputs(side, backend.array(signs), permutation, width=width) for side in sides]
        scores.append(backend.numpy(lai.lai_scores(*sketched, positions=positions)))
    exact = backend.numpy(lai.lai_scores(*sides, positions=positions))
    np.testing.assert_allclose(np.mean(scores, axis=0), exact, rtol=1e-9, atol=1e-9)
    variance = sketch_variance(*sides, width=width, permutation=permutation, positions=positions)
    np.testing.assert_allclose(backend.numpy(variance), np.var(scores, axis=0), rtol=1e-8, atol=1e-9)


@pytest.mark.equation("sketch-unbiased", "sketch-variance")
@pytest.mark.parametrize("name", LAYOUTS)
@FEW
@given(seed=GENERATORS)
def test_the_variance_over_signs_is_that_of_all_sign_vectors(backend, name, seed):
    layout, positions = LAYOUTS[name]
    sides, generator = drawn(layout, seed), np.random.default_rng(seed)
    d, weights = layout.widths[-1][1], np.array([0.5, 2.0])
    permutation = generator.permutation(d)
    traces = [trace(side, backend) for side in sides]
    exact = explicit.lai_kernel(*sides, positions, weights).sum(0)
    for width in range(1, d + 1):
        sketches = [matrix(signs, permutation, width) for signs in all_signs(d)]
        scores = listed_scores(sides, positions, sketches, weights)
        np.testing.assert_allclose(scores.mean(0), exact, rtol=1e-9, atol=1e-9)
        found = sketch_variance(
            *traces,
            width=width,
            permutation=backend.array(permutation),
            layer_weights=[0.5, 2.0],
            positions=positions,
        )
        np.testing.assert_allclose(backend.numpy(found), scores.var(0), rtol=1e-8, atol=1e-8)


@pytest.mark.equation("sketch-permutation")
@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=2)
@given(seed=GENERATORS)
def test_the_variance_over_signs_and_permutations_is_that_of_all_of_them(backend, name, seed):
    layout, positions = LAYOUTS[name]
    sides = [
        [replace(layer, activations=layer.activations) for layer in side] for side in drawn(layout, seed)
    ]
    d = layout.widths[-1][1]
    traces = [trace(side, backend) for side in sides]
    for width in {1, d - 1, d}:
        sketches = [
            matrix(signs, permutation, width)
            for signs in all_signs(d)
            if signs[0] > 0  # a sketch and its negative give the same scores
            for permutation in itertools.permutations(range(d))
        ]
        scores = listed_scores(sides, positions, sketches)
        found = backend.numpy(sketch_variance(*traces, width=width, positions=positions))
        np.testing.assert_allclose(found, scores.var(0), rtol=1e-8, atol=1e-8)


def single(g, h, backend=NUMPY):
    """Return traces of one sample each whose score is the product of two vectors."""
    one = np.ones((1, 1))
    return [lai.Trace([lai.LayerTrace(*(backend.array(x) for x in (one, side[None])))]) for side in (g, h)]


@pytest.mark.equation("sketch-permutation")
@pytest.mark.parametrize("d", range(1, 6))
@settings(max_examples=3)
@given(seed=GENERATORS)
def test_the_chance_to_share_a_group_counts_the_padding(d, seed):
    g, h = np.random.default_rng(seed).normal(size=(2, d))
    for width in range(1, d + 1):
        sketches = np.array(
            [
                matrix(signs, permutation, width)
                for signs in all_signs(d)
                for permutation in itertools.permutations(range(d))
            ]
        )
        variance = np.sum((sketches @ g) * (sketches @ h), axis=1).var()
        found = sketch_variance(*single(g, h), width=width)[0]
        assert found == pytest.approx(variance, rel=1e-9, abs=1e-9)


def bound(sides, width):
    """Return (|M|^2 + tr M^2) / width of each training sample, M built entry by entry."""
    validation = sum(np.outer(g, a) for g, a in positions_of(sides[0]))
    training = [positions_of([replace(layer, **rows(layer, j)) for layer in sides[1]]) for j in range(2)]
    products = [validation @ sum(np.outer(a, g) for g, a in sample) for sample in training]
    return np.array([(np.sum(M * M) + np.trace(M @ M)) / width for M in products])


def rows(layer, j):
    return {name: getattr(layer, name)[j : j + 1] for name in ("activations", "output_gradients")}


def positions_of(side):
    """Yield the last layer's output gradient and all layers' activations, at each position."""
    d = side[-1].output_gradients.shape[-1]
    inputs = np.concatenate([layer.activations for layer in side], axis=-1)
    return list(
        zip(side[-1].output_gradients.reshape(-1, d), inputs.reshape(-1, inputs.shape[-1]), strict=True)
    )


@pytest.mark.equation("sketch-permutation")
@given(seed=GENERATORS, d=st.integers(1, 7), positions=st.integers(1, 3), share=st.floats(0, 1))
def test_the_variance_over_permutations_is_at_most_its_bound(seed, d, positions, share):
    sides = drawn(Layout(((2, 2), (3, d)), positions=positions), seed)
    width = 1 + int(share * (d - 1))
    variance = sketch_variance(*(trace(side, NUMPY) for side in sides), width=width)
    most = bound(sides, width)
    hunt(variance, most)
    assert np.all(variance >= 0)
    assert np.all(variance <= most * (1 + 1e-9))


@pytest.mark.equation("sketch-permutation")
def test_the_bound_is_attained_where_one_output_a_group_is_left_over_and_no_output_meets_itself():
    g, h = np.array([1.0, 2.0, 0.0, 0.0]), np.array([0.0, 0.0, 3.0, -1.0])
    for width in (1, 3):  # (ceil(4 / width) - 1) width = 4 - 1
        found = sketch_variance(*single(g, h), width=width)[0]
        assert found == pytest.approx((g @ g) * (h @ h) / width, rel=1e-12)
    assert sketch_variance(*single(g, h), width=2)[0] < (g @ g) * (h @ h) / 2


def test_one_group_an_output_leaves_no_variance(backend):
    sides = [trace(side, backend) for side in drawn(Layout(((3, 4),), positions=2), 0)]
    for permutation in (None, backend.array(np.array([2, 0, 3, 1]))):
        found = backend.numpy(sketch_variance(*sides, width=4, permutation=permutation))
        np.testing.assert_allclose(found, 0.0, atol=1e-12)


SIX_OUTPUTS = Layout(((3, 4), (5, 6)), positions=7, bias=(True, False))
THIRTY_OUTPUTS = Layout(((4, 40), (40, 30)), positions=2, bias=(True, False))


def options(backend, outputs=6):
    """Every way to ask for the variance."""
    permutation = backend.array(np.random.default_rng(0).permutation(outputs))
    for chosen in ({"width": 4, "positions": "tokens"}, {"width": 2, "permutation": permutation}):
        yield {"positions": "mean", "layer_weights": [2.0, 0.5]} | chosen


def test_a_summary_gives_the_same_variance(backend):
    validation, training = (trace(side, backend) for side in drawn(SIX_OUTPUTS, 3, (6, 9)))
    *_, chosen = options(backend)
    summary = lai.summarize(validation, "lai", positions=chosen["positions"])
    found = (sketch_variance(side, training, **chosen) for side in (summary, validation))
    np.testing.assert_allclose(*(backend.numpy(each) for each in found), rtol=1e-10)


@pytest.mark.parametrize(
    ("samples", "budget", "message"),
    [
        (0, 2**20, "output_gradients: expected every axis to have at least one entry, got shape (0, 6)"),
        (3, 0, "memory_budget: expected a whole number >= 1, got 0"),
        (3, 127, "memory_budget: expected at least 192 bytes for one position's outputs, got 127; raise it"),
    ],
)
def test_a_sketch_of_nothing_or_in_no_room_is_refused(samples, budget, message):
    """Four times the six outputs of a position, of eight bytes."""
    side = lai.Trace([lai.LayerTrace(np.ones((samples, 2)), np.ones((samples, 6)))])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        sketch_outputs(side, np.ones(6), np.arange(6), width=3, memory_budget=budget)


@pytest.mark.parametrize(
    ("layout", "budget"),
    [(SIX_OUTPUTS, 6000), (SIX_OUTPUTS, 2**15), (THIRTY_OUTPUTS, 9000), (THIRTY_OUTPUTS, 2**17)],
    ids=["rows cut", "samples cut", "no summed gradient", "a summed gradient"],
)
def test_small_budgets_give_the_same_variance(layout, budget):
    sides = [trace(side, NUMPY) for side in drawn(layout, 3, (6, 9))]
    for chosen in options(NUMPY, layout.widths[-1][1]):
        ample = sketch_variance(*sides, **chosen)
        summary = lai.summarize(sides[0], "lai", positions=chosen["positions"])
        for validation in (summary, sides[0]):
            found = sketch_variance(validation, sides[1], **chosen, memory_budget=budget)
            np.testing.assert_allclose(found, ample, rtol=1e-10)


@pytest.mark.parametrize(("n_val", "n_train"), [(1, 1), (60, 60)])
@pytest.mark.parametrize(("positions", "outputs"), [(2, 30), (8, 4)])
def test_the_cheaper_contraction_is_taken(monkeypatch, n_val, n_train, positions, outputs):
    """As LAI's scores cost, 4 n t d min(t, d) beside."""
    layout, t, d = Layout(((30, outputs),), positions=positions), positions, outputs
    sides = [trace(side, NUMPY) for side in drawn(layout, 0, (n_val, n_train))]
    seen = products(monkeypatch, lambda: sketch_variance(*sides, width=2))
    pairs, summed = n_val * n_train * t**2 * (30 + d), (n_val + n_train) * t * 30 * d
    assert multiply_adds(seen) == min(pairs, summed) + 4 * n_train * t * d * min(t, d)


def test_a_summed_gradient_that_does_not_fit_is_not_built():
    sides = [trace(side, NUMPY) for side in drawn(Layout(((400, 400),)), 0, (60, 60))]
    budget = 2**19  # the summed gradient takes 1.28 MB
    assert peak(lambda: sketch_variance(*sides, width=5, memory_budget=budget)) <= budget


@pytest.mark.parametrize(("positions", "outputs"), [(3, 200), (60, 10)])
def test_temporaries_keep_to_the_budget(positions, outputs):
    """Beside the budget: the batch laid out anew, and what Python itself takes."""
    sides = [trace(side, NUMPY) for side in drawn(Layout(((40, outputs),), positions=positions), 0, (30, 50))]
    ample, held = (
        peak(lambda b=budget: sketch_variance(*sides, width=5, memory_budget=b)) for budget in (2**28, 2**18)
    )
    assert held <= 2**18 + 2**15 < ample


def test_a_budget_too_small_is_named():
    sides = [trace(side, NUMPY) for side in drawn(Layout(((3, 4),), positions=5), 0)]
    with pytest.raises(ValueError, match=r"memory_budget: expected at least \d+ bytes for one sample's pos"):
        sketch_variance(*sides, width=2, memory_budget=100)


def test_a_summary_of_sketches_is_the_kernel_summed(backend):
    generator = np.random.default_rng(1)
    signs, permutation = generator.choice([-1.0, 1.0], 6), generator.permutation(6)
    sides = [
        sketch_outputs(trace(side, backend), backend.array(signs), backend.array(permutation), width=3)
        for side in drawn(Layout(((3, 2), (3, 6)), positions=2), 1, (4, 5))
    ]
    scores = backend.numpy(lai.lai_scores(lai.summarize(sides[0], "lai"), sides[1]))
    np.testing.assert_allclose(scores, backend.numpy(lai.lai_kernel(*sides)).sum(0), rtol=1e-9)


def test_the_last_record_may_be_frozen_tied_or_in_groups_and_its_sketch_is_for_lai_alone(backend):
    generator = np.random.default_rng(2)
    a, g = generator.normal(size=(3, 2, 6)), generator.normal(size=(3, 2, 6))
    arrays = backend.array(a), backend.array(g)
    table = lai.EmbeddingTrace(backend.array(np.array([[0, 1]] * 3)), arrays[0], rows=6, weight="E")
    signs, permutation = generator.choice([-1.0, 1.0], 6), generator.permutation(6)
    sketch = matrix(signs, permutation, 4)
    expected = explicit.lai_kernel(*[[Layer(a, g @ sketch.T, bias=True)]] * 2, "tokens")
    for head in (
        lai.LayerTrace(*arrays, bias=True, weight="E"),
        lai.LayerTrace(*arrays, bias=True, groups=3),
        lai.ReadoutTrace(*arrays, bias=True),
    ):
        whole = lai.Trace([table, head])
        sketched = sketch_outputs(whole, backend.array(signs), backend.array(permutation), width=4)
        kernel = backend.numpy(lai.lai_kernel(sketched, sketched))
        np.testing.assert_allclose(kernel, expected, rtol=1e-9)
        with pytest.raises(ValueError, match="ReadoutTrace records alone"):
            lai.lli_kernel(sketched, sketched)
        alone = lai.Trace([table, lai.ReadoutTrace(*arrays)])
        ghost, left = (backend.numpy(lai.ghost_kernel(each, each)) for each in (sketched, alone))
        np.testing.assert_allclose(ghost, left, rtol=1e-9)


def test_half_precision_is_added_up_in_float32():
    g = np.full((1, 4096), 1.0, dtype=np.float16)
    g[0, 0] = 2048.0
    whole = lai.Trace([lai.LayerTrace(np.ones((1, 1), np.float16), g)])
    sketched = sketch_outputs(whole, np.ones(4096), np.arange(4096), width=1)
    assert sketched.layers[-1].output_gradients.dtype == np.float32
    assert sketched.layers[-1].output_gradients[0, 0] == 2048 + 4095
    assert sketch_variance(whole, whole, width=1).dtype == np.float32


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"signs": np.ones(3)}, ValueError, "signs: expected one entry per output, shape (4,), got (3,)"),
        ({"permutation": np.arange(5)}, ValueError, "permutation: expected one entry per output"),
        ({"width": 0}, ValueError, "width: expected a whole number in [1, 4], got 0"),
        ({"width": 5}, ValueError, "width: expected a whole number in [1, 4], got 5"),
        ({"trace": lai.Trace([lai.LayerTrace(np.ones((2, 3)))])}, ValueError, "output gradients, got None"),
        (
            {"trace": lai.Trace([lai.GainTrace(None, np.ones((2, 3)))])},
            TypeError,
            "trace: expected a LayerTrace or ReadoutTrace as the last record, got GainTrace",
        ),
    ],
)
def test_bad_arguments_of_a_sketch_are_named(change, error, message):
    good = {
        "trace": lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.ones((2, 4)))]),
        "signs": np.ones(4),
        "permutation": np.arange(4),
        "width": 2,
    } | change
    with pytest.raises(error, match=re.escape(message)):
        sketch_outputs(good["trace"], good["signs"], good["permutation"], width=good["width"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"permutation": np.arange(5)}, ValueError, "permutation: expected one entry per output"),
        ({"permutation": jax.numpy.arange(4)}, TypeError, "permutation: expected an array of the namespace"),
        ({"width": 2.0}, ValueError, "width: expected a whole number in [1, 4], got 2.0"),
        ({"layer_weights": [1.0, 2.0]}, ValueError, "layer_weights: expected one weight for each of the 1"),
        ({"positions": "all"}, ValueError, "positions: expected one of"),
    ],
)
def test_bad_arguments_of_a_variance_are_named(change, error, message):
    whole = lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.ones((2, 4)))])
    with pytest.raises(error, match=re.escape(message)):
        sketch_variance(whole, whole, **({"width": 2} | change))


@given(seed=GENERATORS, shape=st.sampled_from([(5, 7), (2, 3, 7)]))
def test_a_sketch_in_parts_is_the_sketch(backend, seed, shape):
    rng = np.random.default_rng(seed)
    traced = lai.Trace(
        [
            lai.LayerTrace(
                backend.array(rng.standard_normal((*shape[:-1], 2))),
                backend.array(rng.standard_normal(shape)),
            )
        ]
    )
    drawn = backend.array(rng.choice([-1.0, 1.0], 7)), backend.array(rng.permutation(7))
    whole, cut = (
        sketch_outputs(traced, *drawn, width=3, memory_budget=budget).layers[-1].output_gradients
        for budget in (2**20, 4 * 9 * 8 * 2)  # two positions at a time
    )
    np.testing.assert_array_equal(backend.numpy(whole), backend.numpy(cut))
    with pytest.raises(ValueError, match=r"memory_budget: .*one position's outputs"):
        sketch_outputs(traced, *drawn, width=3, memory_budget=4 * 9 * 8 - 1)
