"""Kernels and scores against gradients that are built entry by entry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from tests.support import explicit
from tests.support.traces import LAYOUTS, Layout, batches, trace

POSITIONS = ("tokens", "mean", "flatten")


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    """Compare in float64, relative to the largest entry."""
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(expected).max()))


@pytest.mark.equation("gradient1", "IP")
@given(batches())
def test_ghost_is_the_inner_product_of_explicit_gradients(backend, pair):
    validation, training = (trace(side, backend) for side in pair)
    expected = explicit.parameter_gradients(pair[0]) @ explicit.parameter_gradients(pair[1]).T
    kernel = lai.ghost_kernel(validation, training)
    assert_close(backend.numpy(kernel), expected)
    scores = lai.ghost_scores(validation, training)
    assert_close(backend.numpy(scores), expected.sum(axis=0))


@pytest.mark.equation("lli")
@given(batches())
def test_lli_is_the_inner_product_of_the_last_layers_gradients(backend, pair):
    validation, training = (trace(side, backend) for side in pair)
    expected = explicit.last_layer_gradients(pair[0]) @ explicit.last_layer_gradients(pair[1]).T
    kernel = lai.lli_kernel(validation, training)
    assert_close(backend.numpy(kernel), expected)
    scores = lai.lli_scores(validation, training)
    assert_close(backend.numpy(scores), expected.sum(axis=0))


@pytest.mark.equation("gradient2", "virtual-readout")
@given(batches(), st.sampled_from(POSITIONS), st.booleans())
def test_lai_is_the_inner_product_of_virtual_readouts(backend, pair, positions, weighted):
    weights = np.linspace(-1.0, 2.0, len(pair[0])) if weighted else None
    expected = explicit.lai_kernel(*pair, positions, weights)
    validation, training = (trace(side, backend) for side in pair)
    options = {"positions": positions}
    if weighted:
        options["layer_weights"] = backend.array(weights)
    kernel = lai.lai_kernel(validation, training, **options)
    assert_close(backend.numpy(kernel), expected)
    if weighted:
        options["layer_weights"] = [float(weight) for weight in weights]
    assert_close(backend.numpy(lai.lai_scores(validation, training, **options)), expected.sum(axis=0))


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_readout_bias_counts_as_the_positions_say(backend, positions):
    """Per pair of positions under tokens, once under mean, once per position under flatten."""
    pair = LAYOUTS[4].draw(3, 0), LAYOUTS[4].draw(5, 1)  # three positions, every layer with a bias
    kernel = lai.lai_kernel(*(trace(side, backend) for side in pair), positions=positions)
    assert_close(backend.numpy(kernel), explicit.lai_kernel(*pair, positions))


@given(batches(), st.sampled_from(POSITIONS))
def test_leaving_a_sample_out_of_its_own_score_subtracts_the_diagonal(backend, pair, positions):
    layers = pair[1]
    batch = trace(layers, backend)
    gradients = explicit.parameter_gradients(layers)
    last = explicit.last_layer_gradients(layers)
    expected = {
        "ghost": gradients @ gradients.T,
        "lli": last @ last.T,
        "lai": explicit.lai_kernel(layers, layers, positions),
    }
    scores = {
        "ghost": lai.ghost_scores(batch, batch, exclude_self=True),
        "lli": lai.lli_scores(batch, batch, exclude_self=True),
        "lai": lai.lai_scores(batch, batch, positions=positions, exclude_self=True),
    }
    for name, kernel in expected.items():
        others = (kernel - np.diag(np.diag(kernel))).sum(axis=0)
        atol = 1e-12 * max(1.0, np.abs(kernel).max()) * len(kernel)
        np.testing.assert_allclose(backend.numpy(scores[name]), others, rtol=0, atol=atol)


@given(st.sampled_from((LAYOUTS[2], LAYOUTS[4])), st.integers(0, 2**20))
def test_a_small_budget_cuts_the_work_and_changes_nothing(backend, layout, seed):
    pair = layout.draw(3, seed), layout.draw(5, seed + 1)
    validation, training = (trace(side, backend) for side in pair)
    for estimator in ("ghost", "lli", "lai"):
        for result in ("kernel", "scores"):
            function = getattr(lai, f"{estimator}_{result}")
            whole = function(validation, training)
            cut = function(validation, training, memory_budget=500)
            assert_close(backend.numpy(cut), backend.numpy(whole))


@pytest.mark.parametrize("samples", [1, 40])
@pytest.mark.parametrize("positions", [1, 2, 9])
def test_both_ways_through_pairs_agree(backend, samples, positions):
    """Few samples with many positions build the gradients; many samples multiply pairs of positions."""
    layout = Layout(((2, 3), (3, 4)), positions=positions, bias=(True, False))
    pair = layout.draw(samples, 0), layout.draw(samples, 1)
    expected = explicit.parameter_gradients(pair[0]) @ explicit.parameter_gradients(pair[1]).T
    got = lai.ghost_kernel(*(trace(side, backend) for side in pair))
    assert_close(backend.numpy(got), expected)


def test_multiplying_pooled_or_flattened_products_is_not_exact(backend):
    """Over two positions: a = g = (1, -1) gives 4, pooled 0; a = (1, 0), g = (0, 1) gives 0, flattened 1."""
    for values, exact, pooled, flat in (((1, -1), 4, 0, 4), ((1, 0), 0, 1 / 16, 1)):
        activations = backend.array(np.array(values, dtype=float).reshape(1, 2, 1))
        gradients = backend.array(np.array(values if exact else (0, 1), dtype=float).reshape(1, 2, 1))
        sample = lai.Trace([lai.LayerTrace(activations, gradients)])
        assert float(lai.ghost_kernel(sample, sample)[0, 0]) == exact
        assert float(lai.lai_kernel(sample, sample, positions="mean")[0, 0]) == pooled
        assert float(lai.lai_kernel(sample, sample, positions="flatten")[0, 0]) == flat
