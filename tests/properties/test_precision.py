r"""Every floating type a namespace has, against float64, within the bound of its rounding.

A kernel entry sums N products of four factors, each known to a relative error u: rounding the inputs
costs at most 4u of the sum of absolute values, accumulating in float32 at most (N + 8) 2^-24 more.
"""

import ml_dtypes
import numpy as np
import pytest

import lai_core as lai
from tests.support import explicit
from tests.support.backends import BACKENDS
from tests.support.traces import LAYOUTS, Layer, trace

ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TYPES = [
    (backend, dtype)
    for backend in BACKENDS
    for dtype in ROUNDING
    if dtype in ("float32", "float64") or backend.name != "strict"  # the strict namespace has no half type
]


def cast(backend, layers, dtype):
    if dtype != "bfloat16":
        return trace(layers, backend, dtype)
    if backend.name == "torch":
        import torch

        whole = trace(layers, backend, "float32")
        return lai.Trace(
            lai.LayerTrace(
                layer.activations.to(torch.bfloat16),
                layer.output_gradients.to(torch.bfloat16),
                bias=layer.bias,
                weight=layer.weight,
                groups=layer.groups,
            )
            for layer in whole.layers
        )
    return trace(layers, backend, ml_dtypes.bfloat16)


@pytest.mark.parametrize(("backend", "dtype"), TYPES, ids=lambda value: str(value))
@pytest.mark.parametrize("layout", [LAYOUTS[3], LAYOUTS[4]], ids=["vectors", "positions"])
def test_the_error_against_float64_is_within_the_rounding_bound(backend, dtype, layout):
    pair = layout.draw(4, 0), layout.draw(6, 1)
    absolute = [
        [Layer(abs(x.activations), abs(x.output_gradients), x.bias, x.weight) for x in side] for side in pair
    ]
    terms = 200  # more than any entry here adds up
    unit = 4 * ROUNDING[dtype] + (terms + 8) * (ROUNDING["float64"] if dtype == "float64" else 2.0**-24)
    exact = explicit.parameter_gradients(pair[0]) @ explicit.parameter_gradients(pair[1]).T
    size = explicit.parameter_gradients(absolute[0]) @ explicit.parameter_gradients(absolute[1]).T
    validation, training = (cast(backend, side, dtype) for side in pair)
    kernel = lai.ghost_kernel(validation, training)
    expected_type = "float64" if dtype == "float64" else "float32"
    assert str(kernel.dtype).endswith(expected_type)
    assert (np.abs(backend.numpy(kernel) - exact) <= unit * size).all()
    for scores in (lai.ghost_scores(validation, training), lai.lai_scores(validation, training)):
        assert str(scores.dtype).endswith(expected_type)
    summary = lai.summarize(validation, "ghost")
    from_summary = backend.numpy(lai.ghost_scores(summary, training))
    assert (np.abs(from_summary - exact.sum(axis=0)) <= unit * size.sum(axis=0)).all()


def test_half_precision_accumulates_in_float32():
    """4,096 products of 1/16 * 1/16: a float16 sum would stop growing or round, the float32 sum is exact."""
    for backend in BACKENDS[:3]:
        values = np.full((1, 4096), 1 / 16)
        sample = trace([Layer(values, np.ones((1, 1)))], backend, "float16")
        assert float(lai.ghost_kernel(sample, sample)[0, 0]) == 16.0


def test_mixed_types_meet_in_the_wider_one(backend):
    layers = LAYOUTS[3].draw(3, 0)
    single, double = trace(layers, backend, "float32"), trace(layers, backend, "float64")
    assert str(lai.lai_kernel(single, double).dtype).endswith("float64")
    assert str(lai.lai_scores(lai.summarize(double, "lai"), single).dtype).endswith("float64")


def test_backends_agree():
    pair = LAYOUTS[4].draw(3, 0), LAYOUTS[4].draw(5, 1)
    results = [
        backend.numpy(lai.ghost_scores(*(trace(side, backend, "float32") for side in pair)))
        for backend in BACKENDS
    ]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-5)
