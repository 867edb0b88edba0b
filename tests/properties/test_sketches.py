"""Sketched output gradients: unbiased, with the stated variance."""

import itertools
import re

import numpy as np
import pytest

import lai_core as lai
from lai_core.sketches import sketch_outputs


def trace(backend, activations, gradients):
    hidden = lai.LayerTrace(backend.array(activations * 0.5))
    return lai.Trace([hidden, lai.LayerTrace(backend.array(activations), backend.array(gradients))])


def all_signs(d):
    return [np.array(signs) for signs in itertools.product((-1.0, 1.0), repeat=d)]


@pytest.mark.parametrize(("d", "width"), [(4, 2), (5, 2), (4, 1), (4, 4)])
def test_the_mean_over_all_signs_is_the_exact_kernel_and_the_variance_is_as_stated(backend, d, width):
    generator = np.random.default_rng(0)
    a, g = generator.normal(size=(3, 2, 2)), generator.normal(size=(3, 2, d))
    permutation = generator.permutation(d)
    exact = backend.numpy(lai.lai_kernel(*[trace(backend, a, g)] * 2))
    kernels, products = [], []
    for signs in all_signs(d):
        sketched = sketch_outputs(
            trace(backend, a, g), backend.array(signs), backend.array(permutation), width=width
        )
        kernels.append(backend.numpy(lai.lai_kernel(sketched, sketched)))
        rows = backend.numpy(sketched.layers[-1].output_gradients)
        products.append(float(rows[0, 0] @ rows[1, 1]))
    np.testing.assert_allclose(np.mean(kernels, axis=0), exact, rtol=1e-9, atol=1e-9)
    x, y = g[0, 0], g[1, 1]
    size = -(-d // width)
    groups = [permutation[start : start + size] for start in range(0, d, size)]
    variance = sum(
        x[i] ** 2 * y[j] ** 2 + x[i] * y[i] * x[j] * y[j] for b in groups for i in b for j in b if i != j
    )
    assert np.var(products) == pytest.approx(variance, abs=1e-9)


def test_a_summary_of_sketches_is_the_kernel_summed(backend):
    generator = np.random.default_rng(1)
    signs, permutation = generator.choice([-1.0, 1.0], 6), generator.permutation(6)
    sides = [
        sketch_outputs(
            trace(backend, generator.normal(size=(n, 2, 3)), generator.normal(size=(n, 2, 6))),
            backend.array(signs),
            backend.array(permutation),
            width=3,
        )
        for n in (4, 5)
    ]
    scores = backend.numpy(lai.lai_scores(lai.summarize(sides[0], "lai"), sides[1]))
    np.testing.assert_allclose(scores, backend.numpy(lai.lai_kernel(*sides)).sum(0), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"signs": np.ones(3)}, ValueError, "signs: expected one entry per output, shape (4,), got (3,)"),
        ({"permutation": np.arange(5)}, ValueError, "permutation: expected one entry per output"),
        ({"width": 0}, ValueError, "width: expected a whole number in [1, 4], got 0"),
        ({"width": 5}, ValueError, "width: expected a whole number in [1, 4], got 5"),
        ({"trace": lai.Trace([lai.LayerTrace(np.ones((2, 3)))])}, ValueError, "output gradients, got None"),
        ({"trace": lai.Trace([lai.GainTrace(None, np.ones((2, 3)))])}, TypeError, "expected a LayerTrace as"),
    ],
)
def test_bad_arguments_are_named(change, error, message):
    good = {
        "trace": lai.Trace([lai.LayerTrace(np.ones((2, 3)), np.ones((2, 4)))]),
        "signs": np.ones(4),
        "permutation": np.arange(4),
        "width": 2,
    } | change
    with pytest.raises(error, match=re.escape(message)):
        sketch_outputs(good["trace"], good["signs"], good["permutation"], width=good["width"])
