r"""Every floating type a namespace has, against float64 on the same rounded numbers.

Nothing but the accumulation differs then: an entry that sums N products of four factors is off by at
most (N + 8) u of the sum of absolute values, u the unit roundoff of the accumulation, 2^-24 or 2^-53.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import lai_core as lai
from tests.support import explicit
from tests.support.backends import BACKENDS
from tests.support.traces import LAYOUTS, Layer, trace

TYPES = [
    (backend, dtype)
    for backend in BACKENDS
    for dtype in ("float64", "float32", "float16", "bfloat16")
    if dtype in ("float32", "float64") or backend.name != "strict"  # the strict namespace has no half type
]


def cast(backend, values, dtype):
    if dtype == "bfloat16" and backend.name == "torch":
        return torch.from_numpy(np.asarray(values, dtype="float32")).to(torch.bfloat16)
    return backend.array(values, dtype)


def each(layers, change):
    return [Layer(change(x.activations), change(x.output_gradients), x.bias, x.weight) for x in layers]


def recorded(layers, change):
    return lai.Trace([lai.LayerTrace(**vars(layer)) for layer in each(layers, change)])


def exact_kernels(validation, training, moment):
    """Each estimator's kernel in float64, and what it is called with."""
    last = training[-1]
    scaled = [*training[:-1], Layer(last.activations, last.output_gradients / moment, last.bias)]
    return {
        "ghost": explicit.parameter_gradients(validation) @ explicit.parameter_gradients(training).T,
        "lli": explicit.last_layer_gradients(validation) @ explicit.last_layer_gradients(training).T,
        **{name: explicit.lai_kernel(validation, training, name) for name in ("tokens", "mean", "flatten")},
        "preconditioned": explicit.lai_kernel(validation, scaled, "tokens"),
    }


def everything(validation, training, moment):
    """Return kernels by estimator, sums that take no kernel, and scores of a batch by its other samples."""
    found = {"ghost": lai.ghost_kernel(validation, training), "lli": lai.lli_kernel(validation, training)}
    for positions in ("tokens", "mean", "flatten"):
        found[positions] = lai.lai_kernel(validation, training, positions=positions)
    sums = {
        "ghost": lai.ghost_scores(lai.summarize(validation, "ghost"), training),
        "preconditioned": lai.preconditioned_lai_scores(validation, training, moment, epsilon=1e-30),
    }
    others = {
        "ghost": lai.ghost_scores(training, training, exclude_self=True),
        "tokens": lai.lai_scores(training, training, exclude_self=True),
    }
    return found, sums, others


@pytest.mark.parametrize(("backend", "dtype"), TYPES, ids=lambda value: str(value))
@pytest.mark.parametrize("layout", [LAYOUTS[3], LAYOUTS[4]], ids=["vectors", "positions"])
def test_errors_stay_within_the_rounding_bound(backend, dtype, layout):
    def rounded(values):
        return values.astype(dtype).astype(float)

    pair = [each(layout.draw(n, seed), rounded) for n, seed in ((4, 0), (6, 1))]
    moment = rounded(np.linspace(0.5, 3.0, pair[0][-1].output_gradients.shape[-1]))
    sizes = [each(side, np.abs) for side in pair]
    exact, size = exact_kernels(*pair, moment), exact_kernels(*sizes, moment)
    given = [recorded(side, lambda values: cast(backend, values, dtype)) for side in pair]
    got, sums, from_others = backend.program(everything)(*given, cast(backend, moment, dtype))
    terms = 200  # more than any entry here adds up
    unit = (terms + 8) * (2.0**-53 if dtype == "float64" else 2.0**-24)
    for name, kernel in got.items():
        assert str(kernel.dtype).endswith("float64" if dtype == "float64" else "float32"), name
        assert (np.abs(backend.numpy(kernel) - exact[name]) <= unit * size[name]).all(), name
    for name, scores in sums.items():
        assert str(scores.dtype).endswith("float64" if dtype == "float64" else "float32"), name
        error = np.abs(backend.numpy(scores) - exact[name].sum(axis=0))
        assert (error <= unit * size[name].sum(axis=0)).all(), name
    batch, own = exact_kernels(pair[1], pair[1], moment), exact_kernels(sizes[1], sizes[1], moment)
    for name, scores in from_others.items():
        others = batch[name].sum(axis=0) - np.diag(batch[name])
        assert (np.abs(backend.numpy(scores) - others) <= 2 * unit * own[name].sum(axis=0)).all(), name


@pytest.mark.parametrize(("backend", "dtype"), TYPES, ids=lambda value: str(value))
def test_second_moments_accumulate_in_single_precision(backend, dtype):
    gradients = np.linspace(-2, 3, 12).reshape(4, 3).astype(dtype).astype(float)
    previous = np.array([0.3, 0.1, 0.7]).astype(dtype).astype(float)
    moment = lai.update_second_moment(
        cast(backend, previous, dtype), cast(backend, gradients, dtype), decay=0.999
    )
    expected = 0.999 * previous + 0.001 * (gradients**2).mean(axis=0)
    np.testing.assert_allclose(backend.numpy(moment), expected, rtol=1e-14 if dtype == "float64" else 5e-7)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float4_e2m1fn"])
def test_types_below_half_are_widened_too(name):
    """None of them has 4096."""
    ones = jnp.ones((2, 4096), dtype=getattr(jnp, name))
    sample = lai.Trace([lai.LayerTrace(ones, ones[:, :1])])
    kernel = lai.ghost_kernel(sample, sample)
    assert kernel.dtype == jnp.float32
    assert float(kernel[0, 0]) == 4096.0


def test_mixed_types_promote_to_the_wider(backend):
    layers = LAYOUTS[3].draw(3, 0)
    single, double = trace(layers, backend, "float32"), trace(layers, backend, "float64")
    assert str(lai.lai_kernel(single, double).dtype).endswith("float64")
    assert str(lai.lai_scores(lai.summarize(double, "lai"), single).dtype).endswith("float64")
