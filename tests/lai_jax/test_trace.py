"""What a JAX trace holds, leaves out and refuses, and per-sample gradients under the field's names."""

import sys

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

import lai_core as lai
from tests.lai_jax.support import (
    computed,
    drawn,
    gradients,
    squares,
    vectors,
)
from tests.support.workloads.jax_models import mlp

DEEP, BATCH = mlp(4, 5, 5, 3), vectors(6)
MODEL = DEEP.apply, DEEP.params, squares


def test_output_gradients_skip_earlier_layers():
    def products(mode):
        traced = lambda params: lai_jax.trace(DEEP.apply, params, squares, *BATCH, gradients=mode)  # noqa: E731
        return str(jax.make_jaxpr(traced)(DEEP.params)).count("dot_general")

    assert products("output") == 3  # one product a layer
    assert products("all") == 5
    last, full = (computed(lai_jax.trace, *MODEL, *BATCH, gradients=mode) for mode in ("output", "all"))
    assert [layer.output_gradients is None for layer in last.layers] == [True, True, False]
    np.testing.assert_array_equal(last.layers[-1].output_gradients, full.layers[-1].output_gradients)


def test_coverage_names_what_is_captured():
    frozen = drawn(4, 5)
    model = (lambda params, inputs: jnp.tanh(inputs @ frozen) @ params), drawn(5, 2), squares
    assert lai_jax.coverage(*model, *BATCH).frozen == ("captured (4, 5)",)


def test_inputs_may_be_tuples_or_mappings():
    def apply(params, first, second, *, joined="added"):
        return {"added": first + second}[joined] @ params

    (first, targets), second = BATCH, drawn(6, 4, seed=1)
    for given in ((first, second), {"first": first, "second": second, "joined": "added"}):
        model, batch = (apply, drawn(4, 2), squares), (given, targets)
        trace = computed(lai_jax.trace, *model, *batch, gradients="all")
        np.testing.assert_allclose(trace.layers[0].activations, first + second)
        scores = lai_jax.exact_scores(*model, batch, batch)
        np.testing.assert_allclose(scores, lai.ghost_scores(trace, trace), rtol=1e-9)


@pytest.mark.parametrize("kind", ["int32", "uint8", "bool"])
def test_whole_numbers_are_read_as_promoted(kind):
    whole = drawn(6, 4) > 0
    given, promoted = (
        computed(lai_jax.trace, *MODEL, one, BATCH[1], gradients="all")
        for one in (whole.astype(kind), whole.astype(float))
    )
    np.testing.assert_array_equal(given.layers[0].activations, promoted.layers[0].activations)
    np.testing.assert_allclose(lai.ghost_kernel(given, promoted), lai.ghost_kernel(promoted, promoted))


def test_coverage_names_what_uses_each_parameter():
    found = lai_jax.coverage(*MODEL, *BATCH)
    assert found.fraction == 1.0
    assert found.parameters == sum(leaf.size for leaf in jax.tree.leaves(DEEP.params))
    assert found.explained["0/w"] == ("dot_general",)
    assert found.explained["0/b"] == ("add",)
    assert not found.unexplained


def test_selfcheck_detects_wrong_kernels(monkeypatch):
    good = lai_jax.selfcheck(*MODEL, *vectors(3))
    assert good.relative_error < 1e-12
    assert set(good.layers) == {"0/b+0/w", "1/b+1/w", "2/b+2/w"}
    monkeypatch.setattr(lai, "ghost_kernel", lai.lai_kernel)
    assert lai_jax.selfcheck(*MODEL, *vectors(3)).relative_error > 1e-2


def test_products_and_norms_match_autograd():
    first, second = vectors(4), vectors(6, seed=1)
    left, right = (gradients(*MODEL, batch) for batch in (first, second))
    found = computed(lai_jax.per_sample_inner_products, *MODEL, first, second)
    np.testing.assert_allclose(found, left @ right.T, rtol=1e-12)
    norms = computed(lai_jax.per_sample_norms, *MODEL, second)
    np.testing.assert_allclose(norms, np.linalg.norm(right, axis=1), rtol=1e-12)
    assert lai_jax.check_per_sample_gradients(*MODEL, second).relative_error < 1e-12


def test_numbers_that_disagree_are_named(monkeypatch):
    found = lai_jax.selfcheck(*MODEL, *BATCH)
    wrong = type(found)(found.relative_error, {"0/w": 1e-6}, found.exact)
    monkeypatch.setattr(sys.modules["lai_jax.selfcheck"], "selfcheck", lambda *given: wrong)
    with pytest.raises(ValueError, match=r"relative errors of 1\.0e-06 for 0/w; please report"):
        lai_jax.check_per_sample_gradients(*MODEL, BATCH)


def test_selfcheck_reports_low_precision_agreement():
    params, (inputs, targets) = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (DEEP.params, BATCH))

    def loss(outputs, targets):
        return squares(outputs.astype(jnp.float32), targets.astype(jnp.float32))

    found = lai_jax.selfcheck(DEEP.apply, params, loss, inputs, targets, float32="lai").float32
    assert all(0.999 < found[name] < 1.0 - 1e-7 for name in ("scores", "gradients"))
