"""What both adapters lean on: the fit of layer weights, the default meaning of positions, the checks."""

import re
from dataclasses import replace

import numpy as np
import pytest

import lai_core as lai
from lai_core import _adapters
from tests.support.backends import BACKENDS

DRAWS = np.random.default_rng(0)


def layers(n=5):
    hidden = lai.LayerTrace(DRAWS.normal(size=(n, 4)), DRAWS.normal(size=(n, 3)), bias=True)
    return hidden, lai.LayerTrace(DRAWS.normal(size=(n, 3)), DRAWS.normal(size=(n, 2)))


def test_the_parts_of_lai_add_up_to_lai_and_those_of_ghost_to_ghost():
    hidden, last = layers()
    trace = lai.Trace([hidden, last])
    parts = [_adapters.layer_parts(record, last, "tokens", trains=True) for record in (hidden, last)]
    np.testing.assert_allclose(sum(part[0] for part in parts), lai.lai_kernel(trace, trace), rtol=1e-12)
    np.testing.assert_allclose(sum(part[1] for part in parts), lai.ghost_kernel(trace, trace), rtol=1e-12)


def test_a_layer_that_does_not_train_has_a_part_in_lai_alone():
    hidden, last = layers()
    seen, exact = _adapters.layer_parts(hidden, last, "tokens", trains=False)
    assert np.abs(seen).max() > 0
    assert not exact.any()


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_fitted_weights_are_the_slopes_over_the_counted_pairs(backend):
    draws = DRAWS.normal(size=(2, 3, 4, 4))
    counted = ~np.eye(4, dtype=bool)
    draws[:, :, 0, 0] = np.nan  # what is not counted may be anything
    parts = [(backend.array(x), backend.array(y)) for x, y in zip(*draws, strict=True)]
    found = _adapters.fitted_weights(parts, backend.array(counted))
    slopes = [np.linalg.lstsq(x[counted][:, None], y[counted])[0][0] for x, y in zip(*draws, strict=True)]
    np.testing.assert_allclose(backend.numpy(found), slopes, rtol=1e-5)


def test_positions_are_tokens_where_every_layer_has_the_last_ones():
    tokens = lai.LayerTrace(np.ones((2, 3, 4)), np.ones((2, 3, 5)))
    patches = lai.LayerTrace(np.ones((2, 7, 4)))
    assert _adapters.default_positions(lai.Trace([tokens])) == "tokens"
    assert _adapters.default_positions(lai.Trace([patches, tokens])) == "mean"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("ends", None, "mean", None), "at: expected one of 'start', 'midpoint', got 'ends'"),
        (("start", None, "sums", None), "reduction: expected one of 'mean', 'sum', got 'sums'"),
        (
            ("midpoint", None, "mean", None),
            "learning_rate: at='midpoint' needs an optimizer, or the learning rate of an SGD step",
        ),
        (("start", 0.1, "mean", None), "learning_rate: scores at the start are per unit learning rate"),
    ],
)
def test_options_of_exact_scores_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        _adapters.check_exact_options(*options)


@pytest.mark.parametrize("rate", ["0.1", True, {}])
def test_a_learning_rate_is_a_number(rate):
    with pytest.raises(TypeError, match=rf"^learning_rate: expected a number, or None, got {rate!r}$"):
        _adapters.check_exact_options("midpoint", rate, "mean", None)


def test_the_summed_gradients_are_those_of_each_parameter():
    hidden, last = layers()
    found = _adapters.summed_gradients(lai.Trace([hidden, replace(last, weight="head")]), 2**30)
    assert list(found) == [(0, "weight"), (0, "bias"), ("head", "weight")]
    expected = [
        hidden.output_gradients.T @ hidden.activations,
        hidden.output_gradients.sum(0),
        last.output_gradients.T @ last.activations,
    ]
    for (one,), other in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("batch", [None, [1, 2], (1, 2, 3)])
def test_a_batch_is_a_pair(batch):
    with pytest.raises(TypeError, match=r"^training: expected a pair \(inputs, targets\), got "):
        _adapters.check_batch("training", batch)


def test_kernels_by_name_and_the_gradients_that_they_need():
    found = {name: _adapters.kernel_of(name) for name in ("ghost", "lai", "lli")}
    assert found == {
        "ghost": (lai.ghost_kernel, "all"),
        "lai": (lai.lai_kernel, "output"),
        "lli": (lai.lli_kernel, "output"),
    }
    with pytest.raises(ValueError, match="estimator: expected one of 'ghost', 'lai', 'lli', got 'exact'"):
        _adapters.kernel_of("exact")
