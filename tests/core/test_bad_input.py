"""Bad input: the argument, what was expected and what came, before anything is computed."""

import re
from collections.abc import Callable
from typing import Any

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import lai_core as lai
from lai_core.estimators.costs import pairwise_cost
from tests.support.backends import BACKENDS, STRICT_OTHER_DEVICE
from tests.support.traces import Layout, trace

NUMPY = BACKENDS[0]


def layer(n: int = 4, d_in: int = 3, d_out: int = 2, **options: Any) -> lai.LayerTrace:
    return lai.LayerTrace(np.ones((n, d_in)), np.ones((n, d_out)), **options)


def one(**options: Any) -> lai.Trace:
    return lai.Trace([layer(**options)])


def raw(activations: Any, gradients: Any = None, **options: Any) -> lai.Trace:
    return lai.Trace([lai.LayerTrace(activations, gradients, **options)])


TOKENS = lai.Trace([lai.LayerTrace(np.ones((4, 5, 3))), layer()])
SUMMARY = lai.summarize(one(), "lai")
SCORES = np.ones(4)

CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "not a trace": (
        lambda: lai.ghost_scores([layer()], one()),
        TypeError,
        "validation: expected a Trace, got list",
    ),
    "not a record": (
        lambda: lai.Trace([np.ones(3)]),
        TypeError,
        "layers[0]: expected a record such as LayerTrace, got ndarray",
    ),
    "no layers": (lambda: lai.Trace([]), ValueError, "layers: expected at least one record, got none"),
    "wrong rank": (
        lambda: lai.lai_scores(raw(np.ones((2, 3, 4, 5)), np.ones((2, 3))), one()),
        ValueError,
        "validation.layers[0].activations: expected shape (n, d) or (n, t, d), got (2, 3, 4, 5)",
    ),
    "a vector": (
        lambda: lai.lai_scores(one(), raw(np.ones((4, 3)), np.ones(4), name="head")),
        ValueError,
        "training.layers[0] ('head').output_gradients: expected shape (n, d) or (n, t, d), got (4,)",
    ),
    "not an array": (
        lambda: lai.lai_scores(raw([[1.0]], np.ones((1, 1))), one()),
        TypeError,
        "validation.layers[0].activations: expected an array (numpy, torch, jax, ...), got list",
    ),
    "integers": (
        lambda: lai.lai_scores(raw(np.ones((4, 3), dtype=int), np.ones((4, 2))), one()),
        TypeError,
        "validation.layers[0].activations: expected a real floating dtype, got int64",
    ),
    "complex": (
        lambda: lai.lai_scores(raw(np.ones((4, 3), dtype=complex), np.ones((4, 2))), one()),
        TypeError,
        "validation.layers[0].activations: expected a real floating dtype, got complex128",
    ),
    "empty batch": (
        lambda: lai.ghost_scores(one(), one(n=0)),
        ValueError,
        "training.layers[0].activations: expected every axis to have at least one entry, got shape (0, 3)",
    ),
    "samples within a layer": (
        lambda: lai.ghost_scores(raw(np.ones((4, 3)), np.ones((5, 2))), one()),
        ValueError,
        "validation.layers[0].output_gradients: expected the samples and positions of the activations, (n,) = (4,), got (5,)",
    ),
    "positions within a layer": (
        lambda: lai.ghost_scores(raw(np.ones((4, 5, 3)), np.ones((4, 6, 2))), one()),
        ValueError,
        "validation.layers[0].output_gradients: expected the samples and positions of the activations, (n, t) = (4, 5), got (4, 6)",
    ),
    "samples between layers": (
        lambda: lai.ghost_scores(lai.Trace([layer(), layer(n=3)]), one()),
        ValueError,
        "validation.layers[1]: expected 4 samples as in validation.layers[0], got 3",
    ),
    "number of layers": (
        lambda: lai.lai_kernel(lai.Trace([layer(), layer()]), one()),
        ValueError,
        "training: expected 2 layers as in validation, got 1",
    ),
    "widths": (
        lambda: lai.lai_kernel(one(), one(d_in=5)),
        ValueError,
        "training.layers[0]: expected width of the activations 3 as in validation, got 5",
    ),
    "output widths": (
        lambda: lai.lli_kernel(one(), one(d_out=5)),
        ValueError,
        "training.layers[0]: expected width of the output gradients 2 as in validation, got 5",
    ),
    "bias on one side": (
        lambda: lai.lai_kernel(one(bias=True), one()),
        ValueError,
        "training.layers[0]: expected bias True as in validation, got False",
    ),
    "groups on one side": (
        lambda: lai.ghost_kernel(one(d_in=4, groups=2), one(d_in=4)),
        ValueError,
        "training.layers[0]: expected groups 2 as in validation, got 1",
    ),
    "groups that do not divide": (
        lambda: lai.ghost_kernel(one(groups=2), one()),
        ValueError,
        "validation.layers[0].groups: expected a Python int, a positive divisor of the width of activations (3), got 2",
    ),
    "weight keys": (
        lambda: lai.ghost_kernel(one(weight="w"), one()),
        ValueError,
        "training.layers[0]: expected weight key 'w' as in validation, got None",
    ),
    "missing last gradients": (
        lambda: lai.lai_kernel(raw(np.ones((4, 3))), one()),
        ValueError,
        "validation.layers[0].output_gradients: expected output gradients of the last layer, got None",
    ),
    "missing gradients for ghost": (
        lambda: lai.ghost_kernel(lai.Trace([lai.LayerTrace(np.ones((4, 3)), name="fc1"), layer()]), one()),
        ValueError,
        "validation.layers[0] ('fc1').output_gradients: expected output gradients of every layer (trace with gradients='all'), got None",
    ),
    "unknown positions": (
        lambda: lai.lai_kernel(one(), one(), positions="token"),
        ValueError,
        "positions: expected one of 'tokens', 'mean', 'flatten', got 'token'; did you mean 'tokens'?",
    ),
    "positions that do not fit": (
        lambda: lai.lai_kernel(TOKENS, TOKENS),
        ValueError,
        "positions: 'tokens' needs the last layer's positions in every layer, but validation.layers[0] has 5 positions, the last layer 1; these fit: 'mean', 'flatten'",
    ),
    "flatten with other lengths": (
        lambda: lai.lai_kernel(
            raw(np.ones((1, 5, 2)), np.ones((1, 5, 2))),
            raw(np.ones((1, 4, 2)), np.ones((1, 4, 2))),
            positions="flatten",
        ),
        ValueError,
        "training.layers[0]: expected 5 positions as in validation because positions='flatten' aligns them, got 4; 'mean' does not need it",
    ),
    "flatten has no summary": (
        lambda: lai.summarize(raw(np.ones((1, 5, 2)), np.ones((1, 5, 2))), "lai", positions="flatten"),
        ValueError,
        "positions: 'flatten' has no summary when the last layer has positions; score the raw trace, or use 'tokens' or 'mean'",
    ),
    "mixed namespaces": (
        lambda: lai.lai_kernel(one(), raw(torch.ones(4, 3), torch.ones(4, 2))),
        TypeError,
        "training: expected an array of the namespace of validation (array_api_compat.numpy), got one of array_api_compat.torch",
    ),
    "mixed namespaces in a layer": (
        lambda: lai.lai_kernel(raw(np.ones((4, 3)), jnp.ones((4, 2))), one()),
        TypeError,
        "validation.layers[0].output_gradients: expected an array of the namespace of validation.layers[0].activations (array_api_compat.numpy), got one of jax.numpy",
    ),
    "layer weights of another namespace": (
        lambda: lai.lai_kernel(one(), one(), layer_weights=torch.ones(1)),
        TypeError,
        "layer_weights: expected an array of the namespace of training (array_api_compat.numpy), got one of array_api_compat.torch",
    ),
    "number of layer weights": (
        lambda: lai.lai_kernel(one(), one(), layer_weights=[1.0, 2.0]),
        ValueError,
        "layer_weights: expected one weight for each of the 1 layers, got 2",
    ),
    "shape of layer weights": (
        lambda: lai.lai_kernel(one(), one(), layer_weights=np.ones(2)),
        ValueError,
        "layer_weights: expected shape (1,), got (2,)",
    ),
    "a layer weight that is no number": (
        lambda: lai.lai_kernel(one(), one(), layer_weights=["1"]),
        TypeError,
        "layer_weights[0]: expected a Python number, got str",
    ),
    "layer weights that are no sequence": (
        lambda: lai.lai_kernel(one(), one(), layer_weights=1.0),
        TypeError,
        "layer_weights: expected an array or a sequence of floats, got float",
    ),
    "summary of another estimator": (
        lambda: lai.ghost_scores(SUMMARY, one()),
        ValueError,
        "validation: expected a summary for 'ghost', got one for 'lai'",
    ),
    "summary at other positions": (
        lambda: lai.lai_scores(SUMMARY, one(), positions="mean"),
        ValueError,
        "positions: expected 'tokens', with which the summary was made, got 'mean'",
    ),
    "summary of another model": (
        lambda: lai.lai_scores(SUMMARY, one(d_in=5)),
        ValueError,
        "training.layers[0]: expected width of the activations 3 as in the summary, got 5",
    ),
    "summary and self-exclusion": (
        lambda: lai.lai_scores(SUMMARY, one(), exclude_self=True),
        ValueError,
        "exclude_self: expected validation as a Trace of the training batch, got a ValidationSummary",
    ),
    "summaries that do not add": (
        lambda: SUMMARY + lai.summarize(one(), "lli"),
        ValueError,
        "summary: expected estimator 'lai' as in the first summary, got 'lli'",
    ),
    "self-exclusion of another batch": (
        lambda: lai.lai_scores(one(n=3), one(), exclude_self=True),
        ValueError,
        "exclude_self: expected the same batch as validation and as training, got 3 validation and 4 training samples",
    ),
    "unknown estimator": (
        lambda: lai.summarize(one(), "ghosts"),
        ValueError,
        "estimator: expected one of 'ghost', 'lai', 'lli', 'preconditioned_lai', got 'ghosts'; "
        "did you mean 'ghost'?",
    ),
    "nothing to summarize": (
        lambda: lai.summarize([], "lai"),
        ValueError,
        "validation: expected at least one trace, got an empty iterable",
    ),
    "summarize no trace": (
        lambda: lai.summarize(3, "lai"),
        TypeError,
        "validation: expected a Trace or an iterable of traces, got int",
    ),
    "a summary over the budget": (
        lambda: lai.summarize(one(), "lai", memory_budget=8),
        ValueError,
        "memory_budget: expected at least 48 bytes for the summary, got 8; raise it, or score the raw trace, whose temporaries are cut, or summarize 'lli'",
    ),
    "a budget too small to score": (
        lambda: lai.lai_kernel(one(), one(), memory_budget=8),
        ValueError,
        "memory_budget: expected at least 120 bytes for one pair of samples, got 8; raise it",
    ),
    "a budget that is no number": (
        lambda: lai.lai_kernel(one(), one(), memory_budget=1e9),
        TypeError,
        "memory_budget: expected a whole number >= 1, got 1000000000.0",
    ),
    "a negative budget": (
        lambda: lai.lai_kernel(one(), one(), memory_budget=-1),
        ValueError,
        "memory_budget: expected a whole number >= 1, got -1",
    ),
    "second moment of another width": (
        lambda: lai.preconditioned_lai_scores(one(), one(), np.ones(3)),
        ValueError,
        "second_moment: expected shape (2,), got (3,)",
    ),
    "an epsilon of zero": (
        lambda: lai.preconditioned_lai_scores(one(), one(), np.ones(2), epsilon=0.0),
        ValueError,
        "epsilon: expected a finite number > 0.0, got 0.0",
    ),
    "an exponent that is no number": (
        lambda: lai.preconditioned_lai_scores(one(), one(), np.ones(2), exponent=None),
        TypeError,
        "exponent: expected a Python number, got NoneType",
    ),
    "a decay of one": (
        lambda: lai.update_second_moment(None, np.ones((4, 2)), decay=1.0),
        ValueError,
        "decay: expected a finite number >= 0.0 and < 1.0, got 1.0",
    ),
    "a previous moment of another width": (
        lambda: lai.update_second_moment(np.ones(3), np.ones((4, 2))),
        ValueError,
        "previous: expected shape (2,), got (3,)",
    ),
    "a fraction of zero": (
        lambda: lai.keep_top(SCORES, 0.0),
        ValueError,
        "fraction: expected a finite number > 0.0 and <= 1.0, got 0.0",
    ),
    "a fraction above one": (
        lambda: lai.keep_top(SCORES, 1.5),
        ValueError,
        "fraction: expected a finite number > 0.0 and <= 1.0, got 1.5",
    ),
    "scores with three axes": (
        lambda: lai.keep_positive(np.ones((2, 2, 2))),
        ValueError,
        "scores: expected shape (n,) or (n, t), got (2, 2, 2)",
    ),
    "no scores": (
        lambda: lai.reweight(np.ones(0)),
        ValueError,
        "scores: expected every axis to have at least one entry, got shape (0,)",
    ),
    "integer scores": (
        lambda: lai.reweight(np.arange(3)),
        TypeError,
        "scores: expected a real floating dtype, got int64",
    ),
    "unknown normalization": (
        lambda: lai.keep_positive(SCORES, normalize="all"),
        ValueError,
        "normalize: expected one of 'kept', 'batch', got 'all'",
    ),
    "a floor above one": (
        lambda: lai.sampling_probabilities(SCORES, floor=1.1),
        ValueError,
        "floor: expected a finite number >= 0.0 and <= 1.0, got 1.1",
    ),
    "a bias that is no flag": (
        lambda: lai.lai_kernel(one(bias=np.ones(2)), one()),
        TypeError,
        "validation.layers[0].bias: expected True or False, got ndarray",
    ),
    "a record in place of records": (
        lambda: lai.Trace(layer()),
        TypeError,
        "layers: expected an iterable of records, got LayerTrace",
    ),
    "an array as weight key": (
        lambda: lai.ghost_kernel(one(weight=np.ones((2, 3))), one()),
        TypeError,
        "validation.layers[0].weight: expected a hashable key such as the parameter's name, got ndarray",
    ),
    "a list as weight key": (
        lambda: lai.lai_kernel(one(weight=["w"]), one()),
        TypeError,
        "validation.layers[0].weight: expected a hashable key such as the parameter's name, got list",
    ),
    "one key, two shapes": (
        lambda: lai.ghost_kernel(lai.Trace([layer(weight="w"), layer(weight="w", d_in=5)]), one()),
        ValueError,
        "validation.layers[1]: shares the weight 'w' with validation.layers[0]: expected a matrix of its shape (groups, outputs, inputs) = (1, 2, 3), got (1, 2, 5)",
    ),
    "one key, two groupings": (
        lambda: lai.ghost_kernel(
            lai.Trace([layer(weight="w", d_in=4), layer(weight="w", d_in=4, groups=2)]), one()
        ),
        ValueError,
        "validation.layers[1]: shares the weight 'w' with validation.layers[0]: expected a matrix of its shape (groups, outputs, inputs) = (1, 2, 4), got (2, 1, 2)",
    ),
    "summaries of two namespaces": (
        lambda: SUMMARY + lai.summarize(raw(torch.ones(4, 3), torch.ones(4, 2)), "lai"),
        TypeError,
        "summary: expected an array of the namespace of first summary (array_api_compat.numpy), got one of array_api_compat.torch",
    ),
    "summaries of two models": (
        lambda: SUMMARY + lai.summarize(one(d_in=5), "lai"),
        ValueError,
        "summary.layers[0]: expected width of the activations 3 as in the first summary, got 5",
    ),
    "summaries at two positions": (
        lambda: SUMMARY + lai.summarize(one(), "lai", positions="mean"),
        ValueError,
        "summary: expected positions 'tokens' as in the first summary, got 'mean'",
    ),
    "unknown positions of a summary": (
        lambda: lai.summarize(one(), "ghost", positions="bogus"),
        ValueError,
        "positions: expected one of 'tokens', 'mean', 'flatten', got 'bogus'",
    ),
    "a summary whose positions are aligned": (
        lambda: lai.lai_scores(
            lai.summarize(
                lai.Trace([lai.LayerTrace(np.ones((4, 5, 3))), layer()]), "lai", positions="flatten"
            ),
            lai.Trace([lai.LayerTrace(np.ones((4, 6, 3))), layer()]),
        ),
        ValueError,
        "training: expected readout 0 of width 15 as in the summary, got 18; positions='flatten' needs equally many positions",
    ),
    "second moment of another namespace": (
        lambda: lai.preconditioned_lai_scores(one(), one(), torch.ones(2)),
        TypeError,
        "second_moment: expected an array of the namespace of training (array_api_compat.numpy), got one of array_api_compat.torch",
    ),
    "previous moment of another namespace": (
        lambda: lai.update_second_moment(torch.ones(2), np.ones((4, 2))),
        TypeError,
        "previous: expected an array of the namespace of output_gradients (array_api_compat.numpy), got one of array_api_compat.torch",
    ),
    "self-exclusion of other positions": (
        lambda: lai.ghost_scores(
            raw(np.ones((4, 5, 3)), np.ones((4, 5, 2))),
            raw(np.ones((4, 6, 3)), np.ones((4, 6, 2))),
            exclude_self=True,
        ),
        ValueError,
        "exclude_self: expected the same batch as validation and as training, but training.layers[0].activations has shape (4, 6, 3), in validation (4, 5, 3)",
    ),
    "a boolean number": (
        lambda: lai.keep_top(SCORES, True),
        TypeError,
        "fraction: expected a Python number, got bool",
    ),
    "no groups": (
        lambda: lai.ghost_kernel(one(groups=0), one()),
        ValueError,
        "validation.layers[0].groups: expected a Python int, a positive divisor of the width of activations (3), got 0",
    ),
    "another last layer": (
        lambda: lai.check_same_batch(
            lai.Trace([layer(), layer()]),
            lai.Trace([layer(), lai.LayerTrace(np.ones((4, 3)), np.zeros((4, 2)))]),
        ),
        ValueError,
        "training.layers[1].output_gradients: expected the values of validation, got others",
    ),
    "another batch": (
        lambda: lai.check_same_batch(one(), raw(np.zeros((4, 3)), np.ones((4, 2)))),
        ValueError,
        "training.layers[0].activations: expected the values of validation, got others",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_names_the_argument_what_was_expected_and_what_came(case):
    call, kind, message = CASES[case]
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        call()


def test_mixed_devices_are_refused():
    layout = Layout(((3, 2),))
    here = trace(layout.draw(2, 0), next(backend for backend in BACKENDS if backend.name == "strict"))
    there = trace(layout.draw(2, 0), STRICT_OTHER_DEVICE)
    with pytest.raises(ValueError, match=r"^training: expected an array on the device of validation"):
        lai.lai_kernel(here, there)


def test_every_estimator_works_off_the_default_device():
    layout = Layout(((3, 2), (2, 2)), positions=2, bias=(True, True))
    batch = trace(layout.draw(3, 0), STRICT_OTHER_DEVICE)
    moment = lai.update_second_moment(None, batch.layers[-1].output_gradients)
    for scores in (
        lai.ghost_scores(batch, batch, exclude_self=True),
        lai.lli_scores(lai.summarize(batch, "lli"), batch),
        lai.preconditioned_lai_scores(batch, batch, moment),
    ):
        for policy in (lai.keep_positive, lai.reweight, lai.sampling_probabilities):
            assert policy(scores).device == array_api_strict.Device("device1")


def test_namespaces_of_every_backend_have_a_shape_only_path():
    """Meta tensors have shapes and no numbers: whatever looks at a value fails on them."""
    with torch.device("meta"):
        batch = lai.Trace([lai.LayerTrace(torch.ones(3, 2, 4), torch.ones(3, 2, 5), bias=True)])
        for scores in (lai.ghost_scores(batch, batch), lai.lai_scores(batch, batch, exclude_self=True)):
            assert lai.keep_top(scores, 0.5).shape == (3,)


def test_the_way_out_that_a_summary_names_is_one():
    tokens = lai.Trace(
        [lai.LayerTrace(np.ones((4, 2, 3))), lai.LayerTrace(np.ones((4, 5, 3)), np.ones((4, 5, 2)))]
    )
    with pytest.raises(ValueError, match=r"these fit: 'mean'$"):
        lai.summarize(tokens, "lai")
    with pytest.raises(
        ValueError, match=r"got 8; raise it, or score the raw trace, whose temporaries are cut$"
    ):
        lai.summarize(one(), "lli", memory_budget=8)


def test_a_batch_with_nan_is_the_same_batch_as_itself():
    broken = raw(np.full((4, 3), np.nan), np.ones((4, 2)))
    lai.check_same_batch(broken, broken)
    for sides in ((broken, one()), (one(), broken)):
        with pytest.raises(ValueError, match="expected the values of validation, got others"):
            lai.check_same_batch(*sides)


def test_batches_that_differ_in_one_number_are_not_the_same():
    other = np.ones((4, 3))
    other[2, 1] = 2.0
    with pytest.raises(ValueError, match="expected the values of validation, got others"):
        lai.check_same_batch(one(), raw(other, np.ones((4, 2))))


def test_batches_of_other_sizes_are_not_the_same():
    with pytest.raises(ValueError, match="got 3 validation and 4 training samples"):
        lai.check_same_batch(one(n=3), one())


def test_one_side_may_hold_output_gradients_that_lai_does_not_look_at():
    whole = lai.Trace([layer(), layer(d_in=2)])
    bare = lai.Trace([lai.LayerTrace(np.ones((4, 3))), layer(d_in=2)])
    assert lai.lai_kernel(whole, bare).shape == lai.lai_kernel(bare, whole).shape == (4, 4)


@pytest.mark.parametrize(
    "function",
    [
        lai.ghost_kernel,
        lai.lai_kernel,
        lai.lli_kernel,
        lai.ghost_scores,
        lai.lai_scores,
        lai.lli_scores,
        lambda *sides: lai.preconditioned_lai_kernel(*sides, np.ones(2)),
        lambda *sides: lai.preconditioned_lai_scores(*sides, np.ones(2)),
        lambda *sides: pairwise_cost(*sides, "lai"),
        lambda *sides: pairwise_cost(*sides, "ghost"),
        lai.check_same_batch,
    ],
)
def test_every_function_of_two_sides_knows_which_is_which(function):
    with pytest.raises(
        ValueError, match=r"^training.layers\[0\]: expected width of the activations 5 as in valid"
    ):
        function(one(d_in=5), one())


def test_two_positions_cannot_be_flattened_into_a_summary():
    for positions in (1, 2):
        side = raw(np.ones((3, positions, 2)), np.ones((3, positions, 2)))
        if positions == 1:
            assert lai.summarize(side, "lai", positions="flatten").samples == 3
            continue
        with pytest.raises(ValueError, match="'flatten' has no summary when the last layer has positions"):
            lai.summarize(side, "lai", positions="flatten")


def test_some_weights_of_one_leave_the_others():
    """Alphas of 3 and 2 ones, a beta of 2."""
    side = lai.Trace([layer(), layer(d_in=2)])
    assert lai.lai_kernel(side, side, layer_weights=[1.0, 10.0])[0, 0] == (3 + 20) * 2
    assert lai.lai_kernel(side, side, layer_weights=[10.0, 1.0])[0, 0] == (30 + 2) * 2
