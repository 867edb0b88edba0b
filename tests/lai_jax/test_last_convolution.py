"""Models that end in a convolution: a matrix on every patch, in the trace and in the step."""

import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest
from jax import lax

import lai_core as lai
from tests.lai_jax.support import computed, drawn, ghost_error, gradients, labels
from tests.lai_jax.support import cross_entropy as loss

N = 4


def pooled(*options, shared=False):
    """Two convolutions, and the mean of what the last one gives over positions."""

    def apply(params, inputs):
        first, last = (params["a"], params["a"]) if shared else (params["a"], params["b"])
        for kernel, (strides, padding, groups) in zip((first, last), options, strict=True):
            numbers = ("NCH", "OIH", "NCH") if kernel.ndim == 3 else ("NCHW", "OIHW", "NCHW")
            own = {"dimension_numbers": numbers, "feature_group_count": groups}
            inputs = lax.conv_general_dilated(jnp.tanh(inputs), kernel, strides, padding, **own)
        return inputs.reshape((*inputs.shape[:2], -1)).mean(2)

    return apply


PLAIN, PLAIN_1D = ((1, 1), "VALID", 1), ((1,), "VALID", 1)
MODELS = {
    "1d, 3 channels at 3 positions": (pooled(PLAIN_1D, PLAIN_1D), {"a": (3, 3, 1), "b": (3, 3, 2)}, (3, 4)),
    "strided": (pooled(PLAIN, ((2, 2), "SAME", 1)), {"a": (4, 1, 3, 3), "b": (3, 4, 3, 3)}, (1, 7, 6)),
    "grouped": (pooled(PLAIN, ((1, 1), "SAME", 3)), {"a": (6, 1, 3, 3), "b": (3, 2, 3, 3)}, (1, 7, 7)),
    "shared": (pooled(PLAIN, PLAIN, shared=True), {"a": (3, 3, 3, 3)}, (3, 7, 7)),
}


def built(name, seed=0):
    apply, shapes, shape = MODELS[name]
    params = {key: drawn(*each, seed=7) for key, each in shapes.items()}
    return apply, params, (drawn(N, *shape, seed=seed), labels(N, seed=seed))


@pytest.mark.parametrize("name", MODELS)
def test_ghost_is_exact(name):
    apply, params, batch = built(name)
    assert ghost_error(apply, params, loss, batch) < 1e-12


@pytest.mark.parametrize("name", ["1d, 3 channels at 3 positions", "strided"])
def test_last_layer_lai_matches_own_parameters(name):
    apply, params, batch = built(name)
    last = lai.Trace(computed(lai_jax.trace, apply, params, loss, *batch).layers[-1:])
    own = gradients(lambda free, x: apply({**params, **free}, x), {"b": params["b"]}, loss, batch)
    for kernel in (lai.lai_kernel(last, last), lai.ghost_kernel(last, last)):
        np.testing.assert_allclose(kernel, own @ own.T, rtol=1e-11, atol=1e-13)
