"""Kernels and scores against gradients that are built entry by entry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from tests.support import explicit
from tests.support.backends import BACKENDS
from tests.support.draws import GENERATORS
from tests.support.traces import LAYOUTS, Layout, batches, trace

POSITIONS = ("tokens", "mean", "flatten")
NUMPY = BACKENDS[0]


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
        norms = lai.self_influence(batch, name, positions=positions)
        np.testing.assert_allclose(backend.numpy(norms), np.diag(kernel), rtol=0, atol=atol)


@given(st.sampled_from((LAYOUTS[2], LAYOUTS[4])), GENERATORS)
def test_a_small_budget_cuts_the_work_and_changes_nothing(backend, layout, seed):
    pair = layout.draw(3, seed), layout.draw(5, seed + 1)
    validation, training = (trace(side, backend) for side in pair)
    for estimator in ("ghost", "lli", "lai"):
        for result in ("kernel", "scores"):
            function = getattr(lai, f"{estimator}_{result}")
            whole = function(validation, training)
            cut = function(validation, training, memory_budget=3000)
            assert_close(backend.numpy(cut), backend.numpy(whole))


def test_every_budget_from_one_pair_up_gives_the_same_kernel():
    """Chunks of every height and width, also where the last one is narrower."""
    pair = Layout(((3, 2),), bias=(True,)).draw(5, 0), Layout(((3, 2),), bias=(True,)).draw(7, 1)
    validation, training = (trace(side, NUMPY) for side in pair)
    whole = lai.ghost_kernel(validation, training)
    refused = 0
    for budget in range(8, 4000, 24):
        try:
            cut = lai.ghost_kernel(validation, training, memory_budget=budget)
        except ValueError:
            refused += 1
        else:
            assert_close(cut, whole)
    assert refused < 10


@given(st.sampled_from(((3, 2), (1, 4))), GENERATORS, st.sampled_from(("tokens", "mean")))
def test_the_two_sides_may_have_different_positions(backend, counts, seed, positions):
    pair = [
        Layout(((3, 4), (4, 2)), positions=count, bias=(True, False), weights=(None, "w")).draw(
            3, seed + count
        )
        for count in counts
    ]
    ghost = explicit.parameter_gradients(pair[0]) @ explicit.parameter_gradients(pair[1]).T
    validation, training = (trace(side, backend) for side in pair)
    assert_close(backend.numpy(lai.ghost_kernel(validation, training)), ghost)
    assert_close(backend.numpy(lai.ghost_scores(validation, training)), ghost.sum(axis=0))
    expected = explicit.lai_kernel(*pair, positions)
    assert_close(backend.numpy(lai.lai_kernel(validation, training, positions=positions)), expected)


def test_a_layer_without_positions_counts_as_one(backend):
    flat, lone = Layout(((3, 4), (4, 2))), Layout(((3, 4), (4, 2)), positions=1)
    mixed = [lone.draw(3, 0)[0], flat.draw(3, 1)[1]]
    kernel = lai.lai_kernel(*[trace(mixed, backend)] * 2)
    assert_close(backend.numpy(kernel), explicit.lai_kernel(mixed, mixed, "tokens"))
    ghost = explicit.parameter_gradients(mixed) @ explicit.parameter_gradients(mixed).T
    assert_close(backend.numpy(lai.ghost_kernel(*[trace(mixed, backend)] * 2)), ghost)


@pytest.mark.parametrize("positions", [1, 30])
@pytest.mark.parametrize("budget", [2**30, 40_000])
def test_layer_weights_reach_every_way_to_compute(positions, budget):
    """Pairs of positions and, with 30 of them, built gradients; whole and in parts; with and without self."""
    layout = Layout(((2, 2), (2, 3), (3, 2)), positions=positions, bias=(True, True, False))
    layers, weights = layout.draw(4, 0), np.array([0.5, -2.0, 3.0])
    batch = trace(layers, NUMPY)
    expected = explicit.lai_kernel(layers, layers, "tokens", weights)
    options = {"layer_weights": weights, "memory_budget": budget}
    assert_close(lai.lai_kernel(batch, batch, **options), expected)
    assert_close(lai.lai_scores(batch, batch, **options), expected.sum(axis=0))
    others = (expected - np.diag(np.diag(expected))).sum(axis=0)
    assert_close(lai.lai_scores(batch, batch, exclude_self=True, **options), others)


def test_self_scores_of_long_sequences_are_built_where_pairs_of_positions_would_not_fit():
    long = trace(Layout(((3, 2),), positions=2000).draw(2, 0), NUMPY)
    budget = 2**20  # 2000 x 2000 pairs take 32 MB
    alone = lai.lai_scores(long, long, exclude_self=True, memory_budget=budget)
    kernel = lai.lai_kernel(long, long)
    assert_close(alone, kernel.sum(axis=0) - np.diag(kernel))


@pytest.mark.parametrize("groups", [1, 4])
def test_a_summed_gradient_is_cut_by_groups_and_rows(groups):
    layout = Layout(((16, 16), (16, 16)), groups=(groups, groups))
    pair = layout.draw(60, 0), layout.draw(60, 1)
    validation, training = (trace(side, NUMPY) for side in pair)
    expected = explicit.parameter_gradients(pair[0]) @ explicit.parameter_gradients(pair[1]).T
    for budget in (700, 1000, 2**12, 2**30):
        got = lai.ghost_scores(validation, training, memory_budget=budget)
        assert_close(got, expected.sum(axis=0))


@pytest.mark.parametrize("budget", [9_000, 2**30])
def test_layer_weights_follow_the_parts_of_a_summed_gradient(budget):
    """Under the small budget the readouts are summed one layer at a time."""
    layout, weights = Layout(((16, 16), (16, 16)), bias=(True, False)), np.array([0.5, -2.0])
    pair = layout.draw(60, 0), layout.draw(60, 1)
    expected = explicit.lai_kernel(*pair, "tokens", weights).sum(axis=0)
    validation, training = (trace(side, NUMPY) for side in pair)
    got = lai.lai_scores(validation, training, layer_weights=weights, memory_budget=budget)
    assert_close(got, expected)


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
