"""The theory's argument checker: what each annotation asks for, what is said, and what is handed on."""

import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import get_args

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch._dynamo.testing
from jaxtyping import Float, Integer

from lai_core._engine.namespace import Array
from lai_core._theory.arrays import Constant, checked


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
    """Return what came."""
    return edges, square


@pytest.fixture
def everything():
    """Read the annotations anew in each test."""
    return checked(_everything)


@pytest.fixture
def named():
    return checked(_named)


CHAPTERS = [
    "influence",
    "assumptions",
    "bounds",
    "propagation",
    "variance",
    "optimizers",
    "shapley",
    "calibration",
]


def shape_of(annotation):
    """Whether an annotation names axes, itself or in what it holds."""
    return hasattr(annotation, "dim_str") or any(map(shape_of, get_args(annotation)))


GOOD = (
    np.ones((3, 2)),
    np.arange(3),
    [np.ones((2, 4)), np.ones((5, 1, 7))],
    (np.ones((6, 1)), np.ones(6)),
    np.ones(2),
)


@pytest.mark.parametrize(
    ("place", "value", "error", "message"),
    [
        (0, [[1.0]], TypeError, "rows: expected an array (numpy, torch, jax, ...), got list"),
        (0, np.ones((3, 2), int), TypeError, "rows: expected a real floating dtype, got int64"),
        (0, np.ones(3), ValueError, "rows: expected shape (n, p), got (3,)"),
        (0, np.ones((0, 2)), ValueError, "rows: expected every axis to have at least one entry"),
        (1, np.ones(3), TypeError, "labels: expected integers, got float64"),
        (1, np.arange(4), ValueError, "labels: expected shape (n=3,), got (4,); n=3 as in rows"),
        (1, torch.arange(3), TypeError, "labels: expected an array of the namespace of rows"),
        (2, np.ones((2, 2)), TypeError, "chain: expected a sequence of arrays, got ndarray"),
        (2, [], ValueError, "chain: expected at least one array, got none"),
        (2, [np.ones((2, 2)), np.ones(2)], ValueError, "chain[1]: expected shape (..., d, e), got (2,)"),
        (3, np.ones(6), TypeError, "law: expected a pair of arrays, got ndarray"),
        (3, (np.ones((6, 1)), np.ones(5)), ValueError, "law[1]: expected shape (m=6,), got (5,); m=6"),
        (4, np.ones(3), ValueError, "low: expected shape (p=2,) or (n=3, p=2), got (3,)"),
    ],
)
def test_what_does_not_fit_is_named(everything, place, value, error, message):
    arguments = list(GOOD)
    arguments[place] = value
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        everything(*arguments)


def test_an_axis_named_twice_is_one_length(named):
    edges = {"a": np.ones((1, 2)), "b": np.ones((3, 4))}
    assert named(edges, np.ones((2, 2)))[0].keys() == edges.keys()
    with pytest.raises(ValueError, match=r"^square: expected shape \(d, d\), got \(2, 3\)$"):
        named(edges, np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"^edges\[b\]: expected shape \(_, _\), got \(3,\)$"):
        named(edges | {"b": np.ones(3)}, np.ones((2, 2)))


@pytest.mark.parametrize(
    ("rho", "error", "message"),
    [
        (-1.0, ValueError, "rho: expected a finite number >= 0.0, got -1.0"),
        ("1", TypeError, "rho: expected a Python number, got str"),
        (np.ones(1), ValueError, "rho: expected shape (), got (1,)"),
    ],
)
def test_a_constant_is_a_number_or_an_array_without_axes(everything, rho, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        everything(*GOOD, rho=rho)
    assert everything(*GOOD, rho=2)[5] == 2.0
    assert everything(*GOOD, rho=np.asarray(2.0))[5].shape == ()


def test_arrays_are_read_in_one_type_and_what_is_no_array_as_it_comes(everything):
    narrow = [array.astype("float16") for array in GOOD[2]]
    rows, labels, chain, law, low, rho, name = everything(
        GOOD[0].astype("float32"), GOOD[1], narrow, *GOOD[3:], name="x"
    )
    assert {array.dtype.name for array in (rows, *chain, *law, low)} == {"float64"}
    assert (labels.dtype, rho, name) == (np.arange(3).dtype, 0.5, "x")
    single = [np.ones((3, 2), "float16"), GOOD[1], narrow, tuple(a.astype("float16") for a in GOOD[3])]
    read = everything(*single, np.ones(2, "float32"), rho=np.asarray(0.5))
    assert (read[0].dtype.name, read[5].dtype.name) == ("float32", "float32")  # a constant widens nothing


def test_python_says_what_is_missing_too_much_or_unknown(everything):
    for arguments, options in (
        (GOOD[:4], {}),
        ((*GOOD, 1), {}),
        (GOOD, {"low": GOOD[4]}),
        (GOOD, {"sigma": 1}),
    ):
        with pytest.raises(TypeError, match=r"^_everything\(\)"):
            everything(*arguments, **options)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Float[Array, "*batch n"], "annotation: expected names of axes, `_` or `...`, got '*batch'"),
        (Float[Array, " n"] | None, "annotation: expected one of those that"),
        (tuple[Float[Array, " n"], int], "annotation: expected one of those that"),
    ],
)
def test_an_annotation_that_is_not_understood_is_refused_when_the_function_is_defined(annotation, message):
    def function(array, /):
        return array

    function.__annotations__["array"] = annotation
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        checked(function)


@pytest.mark.parametrize("module", CHAPTERS)
def test_arrays_are_given_by_position_and_options_by_keyword(module):
    chapter = importlib.import_module(f"lai_core.{module}")
    functions = [
        function for name in chapter.__all__ if inspect.isfunction(function := getattr(chapter, name))
    ]
    for function in functions:
        for parameter in inspect.signature(function).parameters.values():
            array = shape_of(parameter.annotation)
            assert parameter.kind in {parameter.POSITIONAL_ONLY, parameter.KEYWORD_ONLY}, function.__name__
            assert parameter.kind is parameter.POSITIONAL_ONLY or not array, function.__name__


def test_the_signature_and_the_documentation_are_the_functions_own(everything):
    assert list(inspect.signature(everything).parameters)[:3] == ["rows", "labels", "chain"]
    assert (everything.__name__, everything.__doc__) == ("_everything", "Return what came.")


@checked
def product(
    left: Float[Array, "n p"],
    chain: Sequence[Float[Array, "p q"]],
    law: tuple[Float[Array, "n p"], Float[Array, " n"]],
    /,
    *,
    rho: Constant,
) -> Float[Array, " n"]:
    """Multiply, to be compiled."""
    return plain(left, chain, law, rho=rho)


def plain(left, chain, law, *, rho):
    return ((left + law[0]) @ chain[0] @ chain[1]).sum(axis=-1) * law[1] * rho


def test_jit_does_not_notice_the_checker():
    square, rows = jnp.ones((2, 2)), jnp.ones((3, 2))
    arguments = rows, [square, square], (rows, jnp.ones(3)), jnp.asarray(0.5)
    with_checks, without = (
        jax.make_jaxpr(lambda left, chain, law, rho, f=function: f(left, chain, law, rho=rho))(*arguments)
        for function in (product, plain)
    )
    assert str(with_checks) == str(without)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call")  # array-api-compat caches its type checks
def test_torch_compiles_as_many_operations_as_without_the_checker_and_once():
    counts = []
    for function in (plain, product):
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(function, fullgraph=True, backend=counter, dynamic=False)
        for _ in range(3):
            rows, square = torch.randn(3, 2), torch.randn(2, 2)
            compiled(rows, [square, square], (rows, torch.ones(3)), rho=torch.asarray(0.5))
        counts.append((counter.frame_count, counter.op_count))
    assert counts[0] == counts[1]
    assert counts[0][0] == 1


@checked
def both(left: Float[Array, "n p"], right: Float[Array, "n p"], /):
    """Take two arrays."""


def test_other_devices_are_refused():
    here, there = (
        array_api_strict.ones((3, 2), device=array_api_strict.Device(name))
        for name in ("CPU_DEVICE", "device1")
    )
    with pytest.raises(ValueError, match=r"^right: expected an array on the device of left"):
        both(here, there)
