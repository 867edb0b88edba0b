"""Bad input: the argument, what was expected and what came, before anything is computed."""

from functools import partial
from typing import Any

import array_api_strict
import numpy as np
import torch

import lai_core as lai
from tests.support.backends import BACKENDS, STRICT_OTHER_DEVICE
from tests.support.refusals import Table, refusals
from tests.support.traces import Layout, trace

ones = np.ones


def layer(n: int = 4, d_in: int = 3, d_out: int = 2, **options: Any) -> lai.LayerTrace:
    return lai.LayerTrace(ones((n, d_in)), ones((n, d_out)), **options)


def one(**options: Any) -> lai.Trace:
    return lai.Trace([layer(**options)])


def raw(*arrays: Any, **options: Any) -> lai.Trace:
    """Make a trace of one layer, of arrays or of ones of a shape."""
    arrays = tuple(ones(array) if isinstance(array, tuple) else array for array in arrays)
    return lai.Trace([lai.LayerTrace(*arrays, **options)])


TOKENS = lai.Trace([lai.LayerTrace(ones((4, 5, 3))), layer()])
SUMMARY = lai.summarize(one(), "lai")

STRICT = next(backend for backend in BACKENDS if backend.name == "strict")
TWO_SIDES = (
    *(lai.ghost_kernel, lai.lai_kernel, lai.lli_kernel, lai.ghost_scores, lai.lai_scores, lai.lli_scores),
    lambda *sides: lai.preconditioned_lai_scores(*sides, ones(2)),
)

CASES: Table = {
    "ValueError: positions: expected one of 'tokens', 'mean', 'flatten', got 'token'; did you mean 'tokens'?": [
        lambda: lai.lai_kernel(one(), one(), positions="token"),
        lambda: lai.summarize(one(), "ghost", positions="token"),
    ],
    "TypeError: validation.layers[0].activations: expected a real floating dtype, got": [
        partial(lai.lai_kernel, raw(ones((4, 3), dtype=kind), (4, 2)), one()) for kind in (int, complex)
    ],
    "ValueError: validation.layers[0].groups: expected a Python int, a positive divisor of the width of activations (3), got": [
        partial(lai.ghost_kernel, one(groups=groups), one()) for groups in (0, 2)
    ],
    "TypeError: validation.layers[0].weight: expected a hashable key such as the parameter's name, got": [
        partial(lai.lai_kernel, one(weight=key), one()) for key in (ones((2, 3)), ["w"])
    ],
    "TypeError: validation: expected a Trace, got list": lambda: lai.ghost_scores([layer()], one()),
    "TypeError: layers[0]: expected a record such as LayerTrace, got ndarray": lambda: lai.Trace([ones(3)]),
    "ValueError: layers: expected at least one record, got none": lambda: lai.Trace([]),
    "ValueError: validation.layers[0].activations: expected shape (n, d) or (n, t, d), got (2, 3, 4, 5)": lambda: (
        lai.lai_scores(raw((2, 3, 4, 5), (2, 3)), one())
    ),
    "ValueError: training.layers[0] ('head').output_gradients: expected shape (n, d) or (n, t, d), got (4,)": lambda: (
        lai.lai_scores(one(), raw((4, 3), ones(4), name="head"))
    ),
    "TypeError: validation.layers[0].activations: expected an array (numpy, torch, jax, ...), got list": lambda: (
        lai.lai_scores(raw([[1.0]], (1, 1)), one())
    ),
    "ValueError: training.layers[0].activations: expected every axis to have at least one entry, got shape (0, 3)": lambda: (
        lai.ghost_scores(one(), one(n=0))
    ),
    "ValueError: validation.layers[0].output_gradients: expected the samples and positions of the activations, (n, t) = (4, 5), got (4, 6)": lambda: (
        lai.ghost_scores(raw((4, 5, 3), (4, 6, 2)), one())
    ),
    "ValueError: validation.layers[1]: expected 4 samples as in validation.layers[0], got 3": lambda: (
        lai.ghost_scores(lai.Trace([layer(), layer(n=3)]), one())
    ),
    "ValueError: training: expected 2 layers as in validation, got 1": lambda: lai.lai_kernel(
        lai.Trace([layer(), layer()]), one()
    ),
    "ValueError: training.layers[0]: expected width of the activations 3 as in validation, got 5": lambda: (
        lai.lai_kernel(one(), one(d_in=5))
    ),
    "ValueError: training.layers[0]: expected bias True as in validation, got False": lambda: lai.lai_kernel(
        one(bias=True), one()
    ),
    "ValueError: training.layers[0]: expected weight key 'w' as in validation, got None": lambda: (
        lai.ghost_kernel(one(weight="w"), one())
    ),
    "ValueError: validation.layers[0].output_gradients: expected output gradients of the last layer, got None": lambda: (
        lai.lai_kernel(raw((4, 3)), one())
    ),
    "ValueError: validation.layers[0] ('fc1').output_gradients: expected output gradients of every layer (trace with gradients='all'), got None": lambda: (
        lai.ghost_kernel(lai.Trace([lai.LayerTrace(ones((4, 3)), name="fc1"), layer()]), one())
    ),
    "ValueError: positions: 'tokens' needs the last layer's positions in every layer, but validation.layers[0] has 5 positions, the last layer 1; these fit: 'mean', 'flatten'": lambda: (
        lai.lai_kernel(TOKENS, TOKENS)
    ),
    "ValueError: training.layers[0]: expected 5 positions as in validation because positions='flatten' aligns them, got 4; 'mean' does not need it": lambda: (
        lai.lai_kernel(raw((1, 5, 2), (1, 5, 2)), raw((1, 4, 2), (1, 4, 2)), positions="flatten")
    ),
    "ValueError: positions: 'flatten' has no summary when the last layer has positions; score the raw trace, or use 'tokens' or 'mean'": lambda: (
        lai.summarize(raw((1, 5, 2), (1, 5, 2)), "lai", positions="flatten")
    ),
    "TypeError: training: expected an array of the namespace of validation (array_api_compat.numpy), got one of array_api_compat.torch": lambda: (
        lai.lai_kernel(one(), raw(torch.ones(4, 3), torch.ones(4, 2)))
    ),
    "ValueError: layer_weights: expected one weight for each of the 1 layers, got 2": lambda: lai.lai_kernel(
        one(), one(), layer_weights=[1.0, 2.0]
    ),
    "TypeError: layer_weights[0]: expected a Python number, got str": lambda: lai.lai_kernel(
        one(), one(), layer_weights=["1"]
    ),
    "TypeError: layer_weights: expected an array or a sequence of floats, got float": lambda: lai.lai_kernel(
        one(), one(), layer_weights=1.0
    ),
    "ValueError: validation: expected a summary for 'ghost', got one for 'lai'": lambda: lai.ghost_scores(
        SUMMARY, one()
    ),
    "ValueError: positions: expected 'tokens', with which the summary was made, got 'mean'": lambda: (
        lai.lai_scores(SUMMARY, one(), positions="mean")
    ),
    "ValueError: training.layers[0]: expected width of the activations 3 as in the summary, got 5": lambda: (
        lai.lai_scores(SUMMARY, one(d_in=5))
    ),
    "ValueError: exclude_self: expected validation as a Trace of the training batch, got a ValidationSummary": lambda: (
        lai.lai_scores(SUMMARY, one(), exclude_self=True)
    ),
    "ValueError: summary: expected estimator 'lai' as in the first summary, got 'lli'": lambda: (
        SUMMARY + lai.summarize(one(), "lli")
    ),
    "ValueError: estimator: expected one of 'ghost', 'lai', 'lli', 'preconditioned_lai', got 'ghosts'; did you mean 'ghost'?": lambda: (
        lai.summarize(one(), "ghosts")
    ),
    "ValueError: validation: expected at least one trace, got an empty iterable": lambda: lai.summarize(
        [], "lai"
    ),
    "TypeError: validation: expected a Trace or an iterable of traces, got int": lambda: lai.summarize(
        3, "lai"
    ),
    "ValueError: memory_budget: expected at least 48 bytes for the summary, got 8; raise it, or score the raw trace, whose temporaries are cut, or summarize 'lli'": lambda: (
        lai.summarize(one(), "lai", memory_budget=8)
    ),
    "ValueError: memory_budget: expected at least 80 bytes for the summary, got 79": lambda: lai.summarize(
        lai.Trace([layer(d_in=2), layer()]), "ghost", memory_budget=79
    ),
    "ValueError: memory_budget: expected at least 120 bytes for one pair of samples, got 8; raise it": lambda: (
        lai.lai_kernel(one(), one(), memory_budget=8)
    ),
    "ValueError: second_moment: expected shape (2,), got (3,)": lambda: lai.preconditioned_lai_scores(
        one(), one(), ones(3)
    ),
    "ValueError: scores: expected shape (n,) or (n, t), got (2, 2, 2)": lambda: lai.keep_positive(
        ones((2, 2, 2))
    ),
    "TypeError: validation.layers[0].bias: expected True or False, got ndarray": lambda: lai.lai_kernel(
        one(bias=ones(2)), one()
    ),
    "TypeError: layers: expected an iterable of records, got LayerTrace": lambda: lai.Trace(layer()),
    "ValueError: summary: expected positions 'tokens' as in the first summary, got 'mean'": lambda: (
        SUMMARY + lai.summarize(one(), "lai", positions="mean")
    ),
    "ValueError: training: expected readout 0 of width 15 as in the summary, got 18; positions='flatten' needs equally many positions": lambda: (
        lai.lai_scores(
            lai.summarize(lai.Trace([lai.LayerTrace(ones((4, 5, 3))), layer()]), "lai", positions="flatten"),
            lai.Trace([lai.LayerTrace(ones((4, 6, 3))), layer()]),
        )
    ),
    "ValueError: exclude_self: expected the same batch as validation and as training, but training.layers[0].activations has shape (4, 6, 3), in validation (4, 5, 3)": lambda: (
        lai.ghost_scores(raw((4, 5, 3), (4, 5, 2)), raw((4, 6, 3), (4, 6, 2)), exclude_self=True)
    ),
    "ValueError: training: expected an array on the device of validation": lambda: lai.lai_kernel(
        trace(Layout(((3, 2),)).draw(2, 0), STRICT), trace(Layout(((3, 2),)).draw(2, 0), STRICT_OTHER_DEVICE)
    ),
    "ValueError: exclude_self: …got 3 validation and 4 training samples": (
        lambda: lai.lai_scores(one(n=3), one(), exclude_self=True)
    ),
    "ValueError: valid: expected one entry per sample and position": [
        lambda: lai.update_second_moment(None, ones((2, 3, 1)), valid=ones((1, 3), bool)),
        lambda: lai.update_second_moment(None, ones((2, 3)), valid=ones(2, bool)),
    ],
    "TypeError: valid: expected booleans, got int64": [
        lambda: lai.update_second_moment(None, ones((2, 3, 1)), valid=ones((2, 3), int))
    ],
    "TypeError: valid: expected an array (numpy, torch, jax, ...), got list": [
        lambda: lai.update_second_moment(None, ones((1, 2, 1)), valid=[[True, False]]),
        lambda: lai.mask_positions(one(), [[True, False]]),
    ],
    "ValueError: input_second_moments: expected one for each of the 1 layers, got 0": (
        lambda: lai.preconditioned_lai_scores(one(), one(), ones(2), input_second_moments=[])
    ),
    "ValueError: input_second_moments[0]: expected shape (3,)": (
        lambda: lai.preconditioned_lai_scores(one(), one(), ones(2), input_second_moments=[ones(2)])
    ),
    "ValueError: previous: expected one for each of the 1 layers, got 2": (
        lambda: lai.update_input_second_moments([None, None], one())
    ),
    "TypeError: validation: expected a Trace, whose samples are pairs' sides, got a ValidationSummary": (
        lambda: lai.lai_kernel(SUMMARY, one())
    ),
    "ValueError: layers[0] (''): expected the last record to be that of a layer": (
        lambda: lai.lai_kernel(*[lai.Trace([lai.GainTrace(ones((4, 3)), ones((4, 3)))])] * 2)
    ),
    "ValueError: training.layers[0]: expected width of the activations 5 as in validation": [
        partial(function, one(d_in=5), one()) for function in TWO_SIDES
    ],
}


test_bad_input_is_named = refusals(CASES)


def test_estimators_work_off_default_devices():
    layout = Layout(((3, 2), (2, 2)), positions=2, bias=(True, True))
    batch = trace(layout.draw(3, 0), STRICT_OTHER_DEVICE)
    moment = lai.update_second_moment(None, batch.layers[-1].output_gradients)
    for scores in (
        lai.ghost_scores(batch, batch, exclude_self=True),
        lai.lli_scores(lai.summarize(batch, "lli"), batch),
        lai.preconditioned_lai_scores(batch, batch, moment),
    ):
        for policy in (lai.keep_all, lai.keep_positive, lai.reweight, lai.sampling_probabilities):
            assert policy(scores).device == array_api_strict.Device("device1")


def test_meta_tensors_take_shape_only_paths():
    """Meta tensors have shapes and no numbers: whatever looks at a value fails on them."""
    with torch.device("meta"):
        batch = lai.Trace([lai.LayerTrace(torch.ones(3, 2, 4), torch.ones(3, 2, 5), bias=True)])
        for scores in (lai.ghost_scores(batch, batch), lai.lai_scores(batch, batch, exclude_self=True)):
            assert lai.keep_top(scores, 0.5).shape == (3,)


def test_lai_ignores_hidden_output_gradients():
    whole = lai.Trace([layer(), layer(d_in=2)])
    bare = lai.Trace([lai.LayerTrace(ones((4, 3))), layer(d_in=2)])
    assert lai.lai_kernel(whole, bare).shape == lai.lai_kernel(bare, whole).shape == (4, 4)


def test_single_positions_are_flattened():
    assert lai.summarize(raw((3, 1, 2), (3, 1, 2)), "lai", positions="flatten").samples == 3
