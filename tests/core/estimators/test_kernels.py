"""What every kernel and score must obey, whatever the numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lai_core as lai
from tests.support.draws import GENERATORS
from tests.support.traces import LAYOUTS, batches, rows, trace

KERNELS = {
    "ghost": lai.ghost_kernel,
    "lli": lai.lli_kernel,
    "lai": lai.lai_kernel,
    "lai-mean": lambda *sides: lai.lai_kernel(*sides, positions="mean"),
    "lai-flatten": lambda *sides: lai.lai_kernel(*sides, positions="flatten"),
}
SCORES = {"ghost": lai.ghost_scores, "lli": lai.lli_scores, "lai": lai.lai_scores}
kernels = st.sampled_from(sorted(KERNELS))
estimators = st.sampled_from(sorted(SCORES))
# Properties of the algebra need no depth: three layouts, with positions, sharing, groups and biases.
layouts = st.sampled_from((LAYOUTS[2], LAYOUTS[3], LAYOUTS[4]))


def close(got, expected, scale=1.0):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11 * max(1.0, scale, np.abs(expected).max()))


@pytest.mark.equation("virtual-readout")
@given(layouts, kernels, GENERATORS)
def test_kernels_are_symmetric_and_positive_semidefinite(backend, layout, name, seed):
    batch = trace(layout.draw(5, seed), backend)
    kernel = backend.numpy(KERNELS[name](batch, batch))
    close(kernel, kernel.T)
    assert np.linalg.eigvalsh((kernel + kernel.T) / 2).min() >= -1e-11 * np.abs(kernel).max()


@pytest.mark.equation("virtual-readout")
@given(layouts, GENERATORS)
def test_lai_with_non_negative_layer_weights_stays_positive_semidefinite(backend, layout, seed):
    batch = trace(layout.draw(5, seed), backend)
    weights = list(np.random.default_rng(seed).uniform(0, 3, size=len(layout.widths)))
    kernel = backend.numpy(lai.lai_kernel(batch, batch, layer_weights=weights))
    close(kernel, kernel.T)
    assert np.linalg.eigvalsh((kernel + kernel.T) / 2).min() >= -1e-11 * np.abs(kernel).max()


def test_a_negative_layer_weight_can_break_positive_semidefiniteness(backend):
    batch = trace(LAYOUTS[3].draw(4, 0), backend)
    kernel = backend.numpy(lai.lai_kernel(batch, batch, layer_weights=[-1.0, 0.0, 0.0]))
    assert np.diag(kernel).max() < 0


@given(layouts, estimators, st.permutations(range(5)), GENERATORS)
def test_scores_follow_permutations_of_the_batch_and_ignore_those_of_the_validation_set(
    backend, layout, name, order, seed
):
    validation, training = layout.draw(5, seed), layout.draw(5, seed + 1)
    shuffled_validation, shuffled_training = rows(validation, order), rows(training, order)
    score = SCORES[name]
    base = backend.numpy(score(trace(validation, backend), trace(training, backend)))
    close(backend.numpy(score(trace(validation, backend), trace(shuffled_training, backend))), base[order])
    close(backend.numpy(score(trace(shuffled_validation, backend), trace(training, backend))), base)


@given(layouts, estimators, GENERATORS)
def test_scores_add_over_the_validation_set(backend, layout, name, seed):
    validation, training = layout.draw(5, seed), trace(layout.draw(5, seed + 1), backend)
    whole = backend.numpy(SCORES[name](trace(validation, backend), training))
    parts = [trace(rows(validation, part), backend) for part in (slice(0, 2), slice(2, 5))]
    close(sum(backend.numpy(SCORES[name](part, training)) for part in parts), whole)


@given(st.sampled_from((LAYOUTS[3], LAYOUTS[5])), kernels, GENERATORS)
def test_an_orthogonal_change_of_basis_of_the_activations_changes_nothing(backend, layout, name, seed):
    """One rotation per matrix: layers that share a matrix share the rotation of its inputs."""
    pair = layout.draw(3, seed), layout.draw(5, seed + 1)
    rotations: dict = {}

    def rotated(layers):
        turned = []
        for index, layer in enumerate(layers):
            key = index if layer.weight is None else layer.weight
            width = layer.activations.shape[-1]
            if key not in rotations:
                rotations[key] = np.linalg.qr(np.random.default_rng(seed).normal(size=(width, width)))[0]
            turned.append(replace(layer, activations=layer.activations @ rotations[key]))
        return turned

    before = backend.numpy(KERNELS[name](*(trace(side, backend) for side in pair)))
    after = backend.numpy(KERNELS[name](*(trace(rotated(side), backend) for side in pair)))
    close(after, before)


@given(layouts, kernels, GENERATORS, st.floats(-8, 8))
def test_kernels_scale_with_each_sides_loss(backend, layout, name, seed, factor):
    pair = layout.draw(3, seed), layout.draw(5, seed + 1)
    scaled = [replace(layer, output_gradients=layer.output_gradients * factor) for layer in pair[1]]
    validation, training = (trace(side, backend) for side in pair)
    base = backend.numpy(KERNELS[name](validation, training))
    close(backend.numpy(KERNELS[name](validation, trace(scaled, backend))), base * factor)
    close(backend.numpy(KERNELS[name](trace(scaled, backend), validation)), base.T * factor)


@given(batches())
def test_scores_are_the_kernels_column_sums(backend, pair):
    validation, training = (trace(side, backend) for side in pair)
    for name, score in SCORES.items():
        kernel = backend.numpy(KERNELS[name](validation, training))
        close(backend.numpy(score(validation, training)), kernel.sum(axis=0), np.abs(kernel).max())


def test_the_callers_arrays_are_never_written_to(backend):
    layers = LAYOUTS[4].draw(3, 0)
    batch = trace(layers, backend)
    for score in SCORES.values():
        score(batch, batch, exclude_self=True)
    lai.summarize(batch, "ghost")
    for layer, record in zip(layers, batch.layers, strict=True):
        np.testing.assert_array_equal(backend.numpy(record.activations), layer.activations)
        np.testing.assert_array_equal(backend.numpy(record.output_gradients), layer.output_gradients)


@pytest.mark.parametrize("weight", [1.0, 2.0, -0.5])
def test_one_weight_of_all_layers_scales_the_kernel(weight):
    layers = [lai.LayerTrace(np.ones((2, d)), np.ones((2, 3)), bias=True) for d in (4, 3)]
    trace = lai.Trace(layers)
    kernel = lai.lai_kernel(trace, trace, layer_weights=[weight] * 2)
    np.testing.assert_allclose(kernel, weight * lai.lai_kernel(trace, trace), rtol=1e-12)
