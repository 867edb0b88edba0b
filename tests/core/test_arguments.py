"""The theory's argument checker: what each annotation asks for, what is said, and what is handed on."""

import inspect
import math
from collections.abc import Mapping, Sequence
from functools import partial

import array_api_strict
import numpy as np
import pytest
import torch
from jaxtyping import Float, Integer

from lai_core import influence, propagation, shapley
from lai_core._engine.namespace import Array
from lai_core._theory.arrays import Constant, checked
from tests.support.refusals import Table, refusals


def _everything(
    rows: Float[Array, "n p"],
    labels: Integer[Array, " n"],
    chain: Sequence[Float[Array, "... d e"]],
    law: tuple[Float[Array, "m ..."], Float[Array, " m"]],
    low: Float[Array, " p"] | Float[Array, "n p"],
    /,
    *,
    rho: Constant = 0.5,
    name: str = "",
) -> tuple:
    """Return what came."""
    return rows, labels, chain, law, low, rho, name


def _named(edges: Mapping[str, Float[Array, "_ _"]], square: Float[Array, "d d"], /):
    return edges, square


@pytest.fixture
def everything():
    """Read the annotations anew in each test."""
    return checked(_everything)


GOOD = (
    np.ones((3, 2)),
    np.arange(3),
    [np.ones((2, 4)), np.ones((5, 1, 7))],
    (np.ones((6, 1)), np.ones(6)),
    np.ones(2),
)
EDGES = {"a": np.ones((1, 2)), "b": np.ones((3, 4))}


def given(place=0, value=GOOD[0], **options):
    """Call with one argument that may be another."""
    return lambda: checked(_everything)(*GOOD[:place], value, *GOOD[place + 1 :], **options)


def named(edges=EDGES, square=GOOD[0][:2]):
    return lambda: checked(_named)(edges, square)


def annotated(annotation):
    def function(array, /):
        return array

    function.__annotations__["array"] = annotation
    return lambda: checked(function)


def on(device):
    return array_api_strict.ones((3, 2), device=array_api_strict.Device(device))


@checked
def both(left: Float[Array, "n p"], right: Float[Array, "n p"], /):
    """Take two arrays."""


REFUSED: Table = {
    "TypeError: rows: expected an array (numpy, torch, jax, ...), got list": given(0, [[1.0]]),
    "TypeError: rows: expected a real floating dtype, got int64": given(0, np.ones((3, 2), int)),
    "ValueError: rows: expected shape (n, p), got (3,)": given(0, np.ones(3)),
    "ValueError: rows: expected every axis to have at least one entry": given(0, np.ones((0, 2))),
    "TypeError: labels: expected integers, got float64": given(1, np.ones(3)),
    "ValueError: labels: expected shape (n=3,), got (4,); n=3 as in rows": given(1, np.arange(4)),
    "TypeError: labels: expected an array of the namespace of rows": given(1, torch.arange(3)),
    "TypeError: chain: expected a sequence of arrays, got ndarray": given(2, np.ones((2, 2))),
    "ValueError: chain: expected at least one array, got none": given(2, []),
    "ValueError: chain[1]: expected shape (..., d, e), got (2,)": given(2, [np.ones((2, 2)), np.ones(2)]),
    "TypeError: law: expected a pair of arrays, got ndarray": given(3, np.ones(6)),
    "ValueError: law[1]: expected shape (m=6,), got (5,); m=6": given(3, (np.ones((6, 1)), np.ones(5))),
    "ValueError: low: expected shape (p=2,) or (n=3, p=2), got (3,)": given(4, np.ones(3)),
    "ValueError: rho: expected a finite number >= 0.0, got -1.0": given(rho=-1.0),
    "ValueError: rho: expected a finite number >= 0.0, got": [given(rho=math.nan), given(rho=math.inf)],
    "TypeError: rho: expected a Python number, got str": given(rho="1"),
    "ValueError: rho: expected shape (), got (1,)": given(rho=np.ones(1)),
    "TypeError: _everything()": [
        lambda: checked(_everything)(*GOOD[:4]),
        lambda: checked(_everything)(*GOOD, 1),
        lambda: checked(_everything)(*GOOD, low=GOOD[4]),
        lambda: checked(_everything)(*GOOD, sigma=1),
    ],
    "ValueError: square: expected shape (d, d), got (2, 3)": named(square=np.ones((2, 3))),
    "ValueError: edges[b]: expected shape (_, _), got (3,)": named(EDGES | {"b": np.ones(3)}),
    "ValueError: annotation: expected names of axes, `_` or `...`, got '*batch'": (
        annotated(Float[Array, "*batch n"])
    ),
    "ValueError: annotation: expected one of those that": [
        annotated(Float[Array, " n"] | None),
        annotated(tuple[Float[Array, " n"], int]),
    ],
    "ValueError: right: expected an array on the device of left": lambda: both(
        on("CPU_DEVICE"), on("device1")
    ),
}
TALL, SQUARE, LAW = np.ones((2, 3)), np.ones((2, 2)), (np.ones((2, 3, 2)), np.ones(2))


def rests(means, *deviations):
    return lambda: propagation.remainder_terms(means, *deviations, np.ones(()), np.ones(3), np.ones(3))


def path(edges, first=0):
    return lambda: propagation.separating_operator(edges, layer=first, last=2)


def sampled(*orders):
    loss, three = (lambda at: at[0]), np.ones((3, 2))
    return lambda: shapley.monte_carlo_shapley(loss, np.ones(2), three, orders, learning_rate=1.0)


PARTICULAR: Table = {
    "ValueError: jacobians[1]: expected 3 rows": lambda: propagation.backward_operator([TALL, TALL]),
    "ValueError: means[1]: expected 3 rows": [
        *(partial(each, [TALL, TALL]) for each in (propagation.isotropic_gain, propagation.trace_gain)),
        lambda: propagation.gradient_decomposition([TALL] * 2, [TALL] * 2, np.ones(3), np.ones(3)),
        rests([TALL] * 2, [TALL] * 2, [TALL] * 2),
    ],
    "ValueError: training_deviations: expected 1 matrices as means has, got 2": rests(
        [TALL], [TALL], [TALL] * 2
    ),
    "ValueError: validation[1]: expected 3 rows": (
        lambda: propagation.similarity_operator([TALL, TALL], [TALL])
    ),
    "ValueError: hessian: expected an invertible matrix, damped, got a singular one; raise the damping": [
        lambda xp=xp: influence.removal_influence(*[xp.ones((2, 2))] * 3) for xp in (np, torch)
    ],
    "ValueError: output_gradient: expected a last axis of length 3": (
        lambda: propagation.vjp_recursion([TALL], SQUARE)
    ),
    "ValueError: output_gradient: expected a last axis": (
        lambda: propagation.propagated_moments([LAW], np.ones(3))
    ),
    "ValueError: edges: expected keys (k, t) with k < t": [
        path({(2, 1): TALL}, 1),
        path({(2, 2): SQUARE}, 1),
        path({(0, 1): SQUARE, (1, 1): SQUARE}),
    ],
    "ValueError: edges: expected a path from layer 0": path({(1, 2): TALL}),
    "ValueError: edges…: expected shape": path({(0, 1): TALL, (1, 2): TALL}),
    "ValueError: edges: expected at least one": path({}),
    "ValueError: deviations: expected 1 matrices": [
        lambda: propagation.telescoping_perturbation([TALL], [TALL, TALL]),
        lambda: propagation.first_order_perturbation([TALL], [TALL, TALL]),
    ],
    "ValueError: deviations[0]: expected shape (..., 2, 2) as means[0] has, got (1, 2)": (
        lambda: propagation.first_order_perturbation([SQUARE[None]], [SQUARE[:1]])
    ),
    "ValueError: training: expected 1 layers": lambda: propagation.layer_similarities([TALL], [TALL, TALL]),
    "ValueError: training: expected shape": lambda: propagation.similarity_operator([TALL], [SQUARE]),
    "ValueError: kernel: expected shape (n, n), got (2, 3)": lambda: influence.self_votes(TALL),
    "ValueError: weighted: expected the shape of gradient, (n, ...) = (2, 3), got": (
        lambda: influence.ownership_residuals(TALL, SQUARE, np.ones(2))
    ),
    "ValueError: permutations: expected at least two": sampled([0, 1, 2]),
    "ValueError: permutations[1]: expected the numbers 0 to 2 in some order": sampled([0, 1, 2], [0, 1, 1]),
    "ValueError: gradients: expected at most 16 samples to enumerate, got 17": (
        lambda: shapley.one_step_shapley(lambda at: at[0], np.ones(2), np.ones((17, 2)), learning_rate=1.0)
    ),
}


test_what_does_not_fit_is_named = refusals(REFUSED | PARTICULAR)


def test_enumeration_reaches_the_stated_player_limit():
    gradients = np.arange(16.0)[:, None]
    values = shapley.one_step_shapley(lambda at: at[0], np.zeros(1), gradients, learning_rate=1.0)
    np.testing.assert_allclose(values, gradients[:, 0])


def test_what_is_handed_on(everything):
    """Arrays in one type, others as they come; a constant as a float, or without axes: it widens nothing."""
    narrow = [array.astype("float16") for array in GOOD[2]]
    rows, labels, chain, law, low, rho, name = everything(
        GOOD[0].astype("float32"), GOOD[1], narrow, *GOOD[3:], name="x"
    )
    assert {array.dtype.name for array in (rows, *chain, *law, low)} == {"float64"}
    assert (labels.dtype, rho, name) == (np.arange(3).dtype, 0.5, "x")
    single = [np.ones((3, 2), "float16"), GOOD[1], narrow, tuple(a.astype("float16") for a in GOOD[3])]
    read = everything(*single, np.ones(2, "float32"), rho=np.asarray(0.5))
    assert (read[0].dtype.name, read[5].dtype.name, read[5].shape) == ("float32", "float32", ())
    assert everything(*GOOD, rho=2)[5] == 2.0
    assert named()()[0].keys() == EDGES.keys()


def test_wrappers_keep_signature_and_documentation(everything):
    assert list(inspect.signature(everything).parameters)[:3] == ["rows", "labels", "chain"]
    assert (everything.__name__, everything.__doc__) == ("_everything", "Return what came.")
