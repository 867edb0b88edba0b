"""Every function of the approximation appendix on every namespace, and inside compilers."""

import importlib
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.support.backends import STRICT_OTHER_DEVICE
from tests.support.networks import Shape, orthogonal, unconstrained

MODULES = ("assumptions", "bounds", "calibration")
RHO, C_A, ALPHA_BAR = 0.75, 1.5, 0.5
ON_TRACES = {"measure_assumptions", "similarities"}
SCALARS_ONLY = {
    "cosine_guarantee": {"low": 0.5, "high": 2.0},
    "decay_powers": {"rho": RHO, "depth": 3},
    "geometric_sum": {"rho": RHO, "depth": 3},
    "lli_relative_bound": {"rho": RHO, "C_a": C_A, "alpha_bar": ALPHA_BAR, "depth": 3},
}
OPTIONS = {
    "rho": RHO,
    "C_a": C_A,
    "alpha_bar": ALPHA_BAR,
    "depth": 3,
    "ridge": 0.125,
    "costs": (1.0, 2.0, 1.0),
    "share": 0.5,
}


def _arrays() -> dict[str, np.ndarray]:
    """Make one array for every name that an argument has."""
    rng = np.random.default_rng(7)
    moments = rng.standard_normal((2, 4, 4))
    products = rng.standard_normal((3, 4, 4))
    return {
        "alpha": rng.uniform(0.1, 1, (3, 2, 4)),
        "beta": rng.standard_normal((3, 2, 4)),
        "beta_last": rng.uniform(0.1, 1, (2, 4)),
        "cosines": rng.uniform(-1, 1, (3, 2, 4)),
        "norms": rng.uniform(0.1, 1, (3, 4)),
        "low": np.array([0.1, 0.2, 1.0]),
        "high": np.array([0.5, 0.75, 1.0]),
        "gains": np.array([0.25, 0.5, 1.0]),
        "proportions": np.array([1.0, 2.0, 0.5]),
        "kernel": rng.standard_normal((2, 4)),
        "scores": rng.standard_normal(4),
        "approximation": rng.standard_normal(4),
        "mean_products": products @ products.transpose(0, 2, 1),
        "validation_moment": moments[0] @ moments[0].T,
        "training_moment": moments[1] @ moments[1].T,
        "weight": rng.standard_normal((5, 4)),
        "slopes": rng.uniform(0, 1, (3, 4)),
        "validation_factors": rng.uniform(0, 1, (3, 2)),
        "training_factors": rng.uniform(0, 1, (3, 4)),
        "kept_terms": rng.standard_normal((2, 4)),
        "terms": rng.standard_normal((3, 4)),
        "probabilities": np.array([0.25, 0.5, 1.0]),
        "approximate": rng.standard_normal((3, 2, 4)),
        "exact": rng.standard_normal((3, 2, 4)),
        "errors": rng.uniform(0, 2, 4),
        "gain": rng.standard_normal(4),
        "deviation": rng.uniform(0.5, 2, 3),
        "branch": rng.uniform(0, 2, 3),
    }


def _functions() -> dict[str, object]:
    found = {}
    for module in MODULES:
        loaded = importlib.import_module(f"lai_core.{module}")
        found |= {name: getattr(loaded, name) for name in loaded.__all__}
    return {name: f for name, f in found.items() if inspect.isfunction(f) and name not in ON_TRACES}


FUNCTIONS = _functions()
ON_ARRAYS = sorted(set(FUNCTIONS) - set(SCALARS_ONLY))


def _call(name: str, convert) -> tuple:
    """Split a call into arrays by position, and Python numbers by keyword."""
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    arrays, options = _arrays(), dict(OPTIONS)
    if name in {"pearson_guarantee", "certain_order", "certain_sign"}:
        options |= {"low": 0.9, "high": 1.1}
    norms = {"validation_norms": 2, "training_norms": 4}
    positional = []
    for parameter in parameters:
        if parameter.name in norms:
            rng = np.random.default_rng(norms[parameter.name])
            size = norms[parameter.name]
            positional.append(
                rng.uniform(0.5, 1, (3, size) if name in {"cosines", "missing_layers_bound"} else size)
            )
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(arrays[parameter.name])
    named = {p.name: options[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
    return [convert(array) for array in positional], named


def _flat(result) -> list:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", ON_ARRAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_function_gives_the_same_on_every_namespace(name, dtype, backend):
    arrays, options = _call(name, lambda array: backend.array(array, dtype))
    expected = _flat(FUNCTIONS[name](*_call(name, np.asarray)[0], **options))
    found = _flat(FUNCTIONS[name](*arrays, **options))
    for one, other in zip(expected, found, strict=True):
        values = backend.numpy(other)
        assert type(other) is type(arrays[0]) or not values.shape
        assert values.dtype == bool or str(values.dtype) == dtype
        np.testing.assert_allclose(values, one, rtol=2e-4 if dtype == "float32" else 1e-9, atol=1e-6)


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_a_function_stays_on_a_device_that_is_not_the_default(name):
    arrays, options = _call(name, lambda array: STRICT_OTHER_DEVICE.array(array))
    for result in _flat(FUNCTIONS[name](*arrays, **options)):
        assert result.device == arrays[0].device


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_a_function_compiles_in_jax(name):
    arrays, options = _call(name, jnp.asarray)
    constants = {key: options.pop(key) for key in ("rho", "C_a", "alpha_bar") if key in options}
    compiled = jax.jit(lambda xs, cs: FUNCTIONS[name](*xs, **cs, **options))
    expected = _flat(FUNCTIONS[name](*arrays, **constants, **options))
    for one, other in zip(expected, _flat(compiled(arrays, constants)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("name", SCALARS_ONLY)
def test_constants_may_be_numbers_or_arrays(name, backend):
    options = dict(SCALARS_ONLY[name])
    expected = _flat(FUNCTIONS[name](**options))
    arrays = {key: v if key == "depth" else backend.array(np.float64(v)) for key, v in options.items()}
    for one, other in zip(expected, _flat(FUNCTIONS[name](**arrays)), strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-12)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call")  # array-api-compat caches its type checks
def test_the_bounds_compile_in_torch_without_a_break():
    from lai_core.bounds import conservative_bound, gap

    arrays, options = _call("conservative_bound", torch.asarray)

    def both(beta, left, right, alpha, betas):
        return conservative_bound(beta, left, right, **options), gap(alpha, betas)

    more, _ = _call("gap", torch.asarray)
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    for one, other in zip(both(*arrays, *more), compiled(*arrays, *more), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("family", [orthogonal, unconstrained])
def test_measuring_from_traces_gives_the_same_on_every_namespace(family, backend):
    from lai_core.assumptions import measure_assumptions, similarities

    case = family(np.random.default_rng(3), Shape())
    plain = [batch.trace() for batch in (case.validation, case.training)]
    other = [batch.trace(0, backend.array) for batch in (case.validation, case.training)]
    for measure in (similarities, measure_assumptions):
        expected, found = vars(measure(*plain)), vars(measure(*other))
        for name, value in expected.items():
            assert np.allclose(backend.numpy(found[name]), value, rtol=1e-9)


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_a_wrong_rank_is_named(name):
    arrays, options = _call(name, np.asarray)
    parameter = next(iter(inspect.signature(FUNCTIONS[name]).parameters))
    with pytest.raises(ValueError, match=parameter if name not in {"truncation_variance"} else "terms"):
        FUNCTIONS[name](np.float64(1.0) + np.zeros(()), *arrays[1:], **options)


@pytest.mark.parametrize("wrong", [-1.0, float("nan")])
def test_a_constant_that_is_no_size_is_refused(wrong):
    arrays, options = _call("lli_gap_bound", np.asarray)
    with pytest.raises(ValueError, match="rho"):
        FUNCTIONS["lli_gap_bound"](*arrays, **(options | {"rho": wrong}))


@pytest.mark.parametrize(("depth", "error"), [(0, ValueError), (2.0, TypeError), (True, TypeError)])
def test_a_depth_that_counts_nothing_is_refused(depth, error):
    with pytest.raises(error, match="depth"):
        FUNCTIONS["geometric_sum"](rho=0.5, depth=depth)
