"""Positions that padding added count for nothing, however many there are.

The oracle is the trace that was never padded; what is in the padding is noise.
"""

from dataclasses import replace

import numpy as np
import pytest

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs, sketch_variance
from tests.support.backends import BACKENDS
from tests.support.refusals import check_refusal

NUMPY = BACKENDS[0]


def sides(backend, *, padding=0, classifies=False, seed=0):
    """Draw validation and training, of lengths of their own, padded with noise by so many positions more."""
    generator = np.random.default_rng(seed)
    found = []
    for samples in (3, 4):
        lengths = generator.integers(1, 6, samples)
        inputs, outputs = (generator.normal(size=(samples, 5, d)) for d in (3, 2))
        pooled = generator.normal(size=(samples, 3)), generator.normal(size=(samples, 2))
        valid = np.arange(5 + padding) < lengths[:, None]
        noise = [np.random.default_rng(samples).normal(size=(samples, padding, d)) for d in (3, 2)]
        inputs, outputs = (np.concatenate(pair, 1) for pair in zip((inputs, outputs), noise, strict=True))
        first = lai.LayerTrace(backend.array(inputs), bias=True)
        last = lai.LayerTrace(backend.array(inputs**2), backend.array(outputs), bias=True)
        if classifies:
            last = lai.LayerTrace(*map(backend.array, pooled), bias=True)
        found.append(lai.mask_positions(lai.Trace([first, last]), backend.array(valid)))
    return found


def found(backend, pair, positions, classifies):
    """Give all that reads masks: kernels, scores of summaries and of sketches, their variance, the moment."""
    validation, training = pair
    results = [lai.lai_kernel(*pair, positions=positions)]
    if positions != "flatten" and not classifies:
        summary = lai.summarize(validation, "lai", positions=positions)
        signs, order = backend.array([1.0, -1.0]), backend.array([1, 0])
        narrow = [sketch_outputs(side, signs, order, width=1) for side in pair]
        last = training.layers[-1]
        results += [
            lai.lai_scores(summary, training),
            lai.lai_scores(*narrow, positions=positions),
            sketch_variance(summary, training, width=1),
            lai.update_second_moment(None, last.output_gradients, valid=last.valid),
        ]
    return [backend.numpy(each) for each in results]


@pytest.mark.parametrize(
    ("positions", "classifies"),
    [("tokens", False), ("mean", False), ("flatten", False), ("mean", True), ("flatten", True)],
)
def test_padding_length_changes_nothing(backend, positions, classifies):
    short, long = (sides(backend, padding=length, classifies=classifies) for length in (0, 7))
    results = (found(backend, pair, positions, classifies) for pair in (short, long))
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_nans_and_empty_samples_are_masked():
    validation, training = sides(NUMPY, padding=2)
    head = training.layers[-1]
    empty = head.valid.copy()
    empty[0] = False
    outputs = np.where(empty[..., None], head.output_gradients, np.nan)
    spoilt = [np.where(empty[..., None], layer.activations, np.nan) for layer in training.layers]
    layers = [
        replace(training.layers[0], activations=spoilt[0], valid=empty),
        replace(head, activations=spoilt[1], output_gradients=outputs, valid=empty),
    ]
    for positions in ("tokens", "mean", "flatten"):
        kernel = lai.lai_kernel(validation, lai.Trace(layers), positions=positions)
        assert np.isfinite(kernel).all()
        assert not kernel[:, 0].any()


def test_hidden_layer_masks_zero_their_part():
    validation, training = sides(NUMPY)
    masked, plain = [], []
    for trace in (validation, training):
        first, last = (replace(layer, bias=False) for layer in trace.layers)
        last = replace(last, valid=None)
        masked.append(lai.Trace([first, last]))
        zeroed = np.where(first.valid[..., None], first.activations, 0.0)
        plain.append(lai.Trace([replace(first, activations=zeroed, valid=None), last]))
    np.testing.assert_allclose(lai.lai_kernel(*masked), lai.lai_kernel(*plain), rtol=1e-12)


def test_ghost_and_lli_ignore_masks():
    trace = sides(NUMPY)[1]
    head = lai.Trace([trace.layers[-1]])
    plain = lai.Trace([replace(head.layers[0], valid=None)])
    for kernel in (lai.ghost_kernel, lai.lli_kernel):
        np.testing.assert_array_equal(kernel(head, head), kernel(plain, plain))


MASKS = {
    "ValueError: …valid: expected the samples and positions of the activations, (4, 5), got (4, 2)": (4, 2),
    "TypeError: …valid: expected booleans, got int64": None,
}


@pytest.mark.parametrize("said", MASKS)
def test_mismatched_masks_are_refused(said):
    first, last = sides(NUMPY)[1].layers
    valid = np.ones((4, 5), int) if MASKS[said] is None else np.ones(MASKS[said], bool)
    wrong = lai.Trace([replace(first, valid=valid), last])
    check_refusal(said, lambda: lai.lai_kernel(wrong, wrong))


def test_masked_traces_refuse_misfit_masks():
    said = "ValueError: valid: expected shape (n, t) with the t positions of a layer (here [5]), got (4, 2)"
    check_refusal(said, lambda: lai.mask_positions(sides(NUMPY)[1], np.ones((4, 2), bool)))


def test_masks_leave_experts_rows_alone():
    expert = lai.ExpertTrace(np.ones((2, 3, 4)), np.ones((2, 3, 1)))
    trace = lai.Trace([expert, lai.LayerTrace(np.ones((2, 3, 4)), np.ones((2, 3, 1)))])
    first, last = lai.mask_positions(trace, np.ones((2, 3), bool)).layers
    assert (first.valid, last.valid.shape) == (None, (2, 3))
