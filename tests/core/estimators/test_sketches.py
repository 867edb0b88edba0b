"""Sketched output gradients: unbiased, with the variance that `sketch_variance` says.

The oracle draws nothing: it builds every sketch as a matrix, multiplies it onto the output gradients
in numpy, and lists the scores of gradients built entry by entry.
"""

import itertools
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lai_core as lai
from lai_core.estimators.sketches import _chance_of_a_shared_group, sketch_outputs, sketch_variance
from tests.support import explicit
from tests.support.draws import GENERATORS
from tests.support.refusals import Table, refusals
from tests.support.traces import Layer, Layout, trace

FEW = settings(max_examples=2)  # one shape a case: the numbers are generic
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


@pytest.mark.equation("sketch-unbiased")
@given(seed=GENERATORS, shape=st.sampled_from([(5, 7), (2, 3, 7)]))
def test_sketching_multiplies_by_its_matrix(backend, seed, shape):
    """Two positions at a time; the last group is smaller."""
    rng = np.random.default_rng(seed)
    inputs, outputs = rng.standard_normal((*shape[:-1], 2)), rng.standard_normal(shape)
    signs, permutation = rng.choice([-1.0, 1.0], 7), rng.permutation(7)
    traced = lai.Trace([lai.LayerTrace(backend.array(inputs), backend.array(outputs))])
    expected = outputs @ matrix(signs, permutation, 3).T
    for budget in (2**20, 4 * 9 * 8 * 2):
        found = sketch_outputs(
            traced, backend.array(signs), backend.array(permutation), width=3, memory_budget=budget
        )
        got = backend.numpy(found.layers[-1].output_gradients)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.equation("sketch-unbiased", "sketch-variance", "sketch-permutation")
@pytest.mark.parametrize("name", LAYOUTS)
@FEW
@given(seed=GENERATORS)
def test_variance_matches_enumeration(backend, name, seed):
    layout, positions = LAYOUTS[name]
    sides = drawn(layout, seed)
    d, weights = layout.widths[-1][1], np.array([0.5, 2.0])
    traces = [trace(side, backend) for side in sides]
    exact = explicit.lai_kernel(*sides, positions, weights).sum(0)
    validation = traces[:1]
    if positions != "flatten":
        validation.append(lai.summarize(traces[0], "lai", positions=positions))
    for width in {1, d - 1, d}:
        sketches = [
            matrix(signs, permutation, width)
            for signs in all_signs(d)
            if signs[0] > 0  # a sketch and its negative give the same scores
            for permutation in itertools.permutations(range(d))
        ]
        scores = listed_scores(sides, positions, sketches, weights)
        np.testing.assert_allclose(scores.mean(0), exact, rtol=1e-9, atol=1e-9)
        for side in validation:
            found = sketch_variance(side, traces[1], width=width, positions=positions, layer_weights=[0.5, 2])
            np.testing.assert_allclose(backend.numpy(found), scores.var(0), rtol=1e-8, atol=1e-8)


@pytest.mark.equation("sketch-permutation")
@pytest.mark.parametrize(("outputs", "width"), [(3, 2), (5, 2), (7, 3)])
def test_counterexample_full_runs_attain_the_chance(outputs, width):
    run = math.ceil(outputs / width)
    assert (run - 1) * width == outputs - 1
    assert outputs % run
    groups = np.arange(outputs) // run
    shared = np.mean([groups[i] == groups[k] for i, k in itertools.permutations(range(outputs), 2)])
    assert shared == pytest.approx(_chance_of_a_shared_group(outputs, width))
    assert shared < 1 / width


def test_frozen_tied_and_grouped_records_score(backend):
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


def test_half_precision_sums_use_single_precision():
    g = np.full((1, 4096), 1.0, dtype=np.float16)
    g[0, 0] = 2048.0
    whole = lai.Trace([lai.LayerTrace(np.ones((1, 1), np.float16), g)])
    sketched = sketch_outputs(whole, np.ones(4096), np.arange(4096), width=1)
    assert sketched.layers[-1].output_gradients.dtype == np.float32
    assert sketched.layers[-1].output_gradients[0, 0] == 2048 + 4095
    assert sketch_variance(whole, whole, width=1).dtype == np.float32


def one(samples=2, outputs=4):
    return lai.Trace([lai.LayerTrace(np.ones((samples, 3)), np.ones((samples, outputs)))])


def sketch(trace=None, signs=4, permutation=4, width=2, **options):
    trace = one() if trace is None else trace
    return lambda: sketch_outputs(trace, np.ones(signs), np.arange(permutation), width=width, **options)


def variance(width=2, **options):
    return lambda: sketch_variance(one(), one(), width=width, **options)


REFUSED: Table = {
    "ValueError: signs: expected one entry per output, shape (4,), got (3,)": sketch(signs=3),
    "ValueError: permutation: expected one entry per output": sketch(permutation=5),
    "ValueError: width: expected a whole number in [1, 4], got 0": sketch(width=0),
    "ValueError: …output gradients, got None": sketch(lai.Trace([lai.LayerTrace(np.ones((2, 3)))])),
    "TypeError: trace: expected a LayerTrace or ReadoutTrace as the last record, got GainTrace": (
        sketch(lai.Trace([lai.GainTrace(None, np.ones((2, 3)))]))
    ),
    "ValueError: memory_budget: expected at least 192 bytes for one position's outputs, got 191; raise it": (
        sketch(one(3, 6), 6, 6, 3, memory_budget=191)  # four times the six outputs, of eight bytes
    ),
    "ValueError: memory_budget: expected at least …bytes for one sample's pos": variance(memory_budget=100),
    "TypeError: permutation: expected an array of the namespace": lambda: sketch_outputs(
        one(), np.ones(4), jax.numpy.arange(4), width=2
    ),
}


test_bad_arguments_are_named = refusals(REFUSED)
