"""A kind of record of one's own: by public names alone, and its arrays declared once."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import lai_jax
import numpy as np
import pytest

import lai_core as lai
from lai_core.records import Axes, OuterGradient, Record, with_positions
from tests.support.backends import BACKENDS
from tests.support.refusals import Table, refusals

DRAWS = np.random.default_rng(0)


@lai_jax.register_record
@dataclass(frozen=True, eq=False)
class BilinearTrace(Record):
    """One use of `s_k = a^T W_k b`."""

    array_fields: ClassVar = {name: Axes(("n d",)) for name in ("left", "right", "output_gradients")}
    left: Any
    right: Any
    output_gradients: Any = None
    scale: int = 1
    weight: Hashable = None
    name: str = ""

    def parameter_gradients(self, work):
        xp = work.xp
        products = self.scale * xp.expand_dims(self.left, axis=2) * xp.expand_dims(self.right, axis=1)
        columns = xp.reshape(products, (products.shape[0], 1, -1))
        return {"weight": OuterGradient(with_positions(xp, self.output_gradients), (columns,))}

    def readout_input(self, xp):
        return xp.concat([self.left, self.right], axis=1)


def drawn(n):
    return [DRAWS.normal(size=(n, d)) for d in (3, 4, 2)]


def gradients(left, right, output_gradients, scale):
    return scale * np.einsum("nk,nd,ne->nkde", output_gradients, left, right).reshape(len(left), -1)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_every_estimator_knows_the_kind(backend):
    sides = drawn(3), drawn(5)
    z, j = (lai.Trace([BilinearTrace(*map(backend.array, side), scale=2)]) for side in sides)
    kernel = gradients(*sides[0], 2) @ gradients(*sides[1], 2).T
    np.testing.assert_allclose(backend.numpy(lai.ghost_kernel(z, j)), kernel, rtol=1e-10)
    np.testing.assert_allclose(backend.numpy(lai.lli_scores(z, j)), kernel.sum(0), rtol=1e-10)
    summary = lai.summarize(z, "ghost")
    np.testing.assert_allclose(backend.numpy(lai.ghost_scores(summary, j)), kernel.sum(0), rtol=1e-10)
    alpha, beta = (sum(sides[0][i] @ sides[1][i].T for i in places) for places in ((0, 1), (2,)))
    np.testing.assert_allclose(backend.numpy(lai.lai_kernel(z, j)), alpha * beta, rtol=1e-10)


def test_jit_treats_static_fields_as_constants():
    sides = drawn(3), drawn(5)
    z, j = (lai.Trace([BilinearTrace(*map(jnp.asarray, side), scale=2, name="b")]) for side in sides)
    assert len(jax.tree.leaves(z)) == 3
    again = jax.tree.map(lambda leaf: leaf, z).layers[0]
    assert (type(again), again.scale, again.name) == (BilinearTrace, 2, "b")
    kernel = gradients(*sides[0], 2) @ gradients(*sides[1], 2).T
    np.testing.assert_allclose(jax.jit(lai.ghost_kernel)(z, j), kernel, rtol=1e-10)


ONES = {"left": np.ones((2, 3)), "right": np.ones((2, 4)), "output_gradients": np.ones((2, 2))}


def scored(change, other=None):
    sides = (
        lai.Trace([BilinearTrace(**ONES | part)]) for part in (change, change if other is None else other)
    )
    return partial(lai.ghost_kernel, *sides)


REFUSED: Table = {
    "ValueError: validation.layers[0].left: expected shape (n, d), got (2, 3, 1)": (
        scored({"left": np.ones((2, 3, 1))})
    ),
    "ValueError: …layers[0]: expected arrays, got None for 'left', 'right'": scored(dict.fromkeys(ONES)),
    "ValueError: training.layers[0]: expected width of the right 4 as in validation, got 5": (
        scored({}, {"right": np.ones((2, 5))})
    ),
    "ValueError: training.layers[0]: expected scale 1 as in validation, got 3": scored({}, {"scale": 3}),
    "ValueError: …layers[0]: expected arrays, got None for 'normalized', 'output_": partial(
        lai.lai_kernel,
        *[lai.Trace([lai.GainTrace(None, None), lai.LayerTrace(np.ones((2, 1)), np.ones((2, 1)))])] * 2,
    ),
}


test_misfits_are_named = refusals(REFUSED)


def test_traces_and_summaries_have_short_names():
    layers = [lai.LayerTrace(np.ones((2, 3)), np.ones((2, 3)), name=f"fc{i}") for i in range(9)]
    trace, deep = lai.Trace(layers), lai.Trace([lai.LayerTrace(np.ones((3, 4, 2)), np.ones((3, 4, 1)))])
    assert repr(lai.summarize(trace, "ghost")) == "ValidationSummary('ghost', samples=2, numbers=81)"
    assert repr(lai.summarize(deep, "lai", positions="mean")) == (
        "ValidationSummary('lai', positions='mean', samples=3, numbers=2)"
    )
    assert repr(jax.eval_shape(lambda: lai.Trace([lai.LayerTrace(jnp.ones((2, 3)))]))).endswith("((2, 3)))")


@dataclass(frozen=True, eq=False)
class OptionalWidthTrace(BilinearTrace):
    """A kind one of whose arrays may be a number a sample."""

    array_fields: ClassVar = BilinearTrace.array_fields | {"right": Axes(("n", "n d"))}


def test_named_axes_agree_on_both_sides():
    sides = [lai.Trace([OptionalWidthTrace(**ONES | {"right": np.ones(shape)})]) for shape in ((2,), (2, 4))]
    assert [side.layers[0].layout()["width of the right"] for side in sides] == [None, 4]
    with pytest.raises(ValueError, match="expected width of the right None as in validation, got 4"):
        lai.ghost_kernel(*sides)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad])
def test_unregistered_kinds_name_the_remedy(transform):
    """As traces are none without lai_jax: a record that is not registered."""
    message = "OptionalWidthTrace: expected lai_jax to be imported, .* by lai_jax.register_record"
    with pytest.raises(ImportError, match=message):
        transform(lambda record: 0.0)(OptionalWidthTrace(**ONES))
