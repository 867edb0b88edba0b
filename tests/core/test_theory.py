"""Every function of the theory, called as its annotations say: on every namespace, compiled, and refused.

What a function computes, the tests of its chapter say, in numpy; here it computes the same everywhere.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import get_args, get_origin

import jax
import numpy as np
import pytest
import torch
from jaxtyping import Integer

from lai_core import (
    assumptions,
    bounds,
    calibration,
    influence,
    mixtures,
    optimizers,
    propagation,
    shapley,
    variance,
)
from lai_core.optimizers import Adam
from lai_core.propagation import RandomLayer
from tests.support.backends import BACKENDS, STRICT_OTHER_DEVICE
from tests.support.networks import Shape, orthogonal, unconstrained

CHAPTERS = (
    influence, assumptions, bounds, propagation, variance, optimizers, shapley, calibration, mixtures,
)  # fmt: skip
ON_TRACES = (assumptions.measure_assumptions, assumptions.similarities)
OTHERS = (
    mixtures.group_scores,
    mixtures.group_sizes,
    mixtures.initial_mixture,
    mixtures.update_mixture,
    mixtures.hedge_step_size,
)
FUNCTIONS = {
    name: function
    for chapter in CHAPTERS
    for name, function in inspect.getmembers(chapter, inspect.isfunction)
    if name in chapter.__all__ and function not in ON_TRACES + OTHERS
}
LENGTHS = {"n_train": 4, "n_val": 2, "p": 4, "kept": 2, "c": 2}
"""Of axes; those of widths, `d_...`, have 2 and any other 3."""
OPTIONS = {
    "rho": 0.75, "C_a": 1.5, "alpha_bar": 0.5, "depth": 3, "costs": (1.0, 2.0, 1.0),
    "share": 0.5, "low": 0.9, "high": 1.1, "smoothness": 2.0, "learning_rate": 0.1, "damping": 0.5,
    "adam": Adam(weight_decay=0.1, max_norm=0.5), "step": 3, "first": 0, "last": 2, "layer": 0, "width": 2,
    "epsilon": 1e-8, "step_size": 0.5, "hessian_lipschitz": 2.0,
    "layers": [RandomLayer.linear(width=2, variance=0.5)] * 2, "permutations": [[0, 1, 2], [2, 0, 1]],
    "loss": lambda at: at @ at, "losses": lambda at: at * at, "gradient": lambda at: 2.0 * at,
    "slope": lambda at: 2.0 * at, "floor": 0.05, "switches": 1,
}  # fmt: skip
CONSTANTS = {"rho", "C_a", "alpha_bar", "low", "high"}
"""Options that may be arrays, whose value no compiler knows."""


def words(annotation):
    """Name the axes of the first array that an annotation asks for; none where it asks for no array."""
    if hasattr(annotation, "dim_str"):
        return annotation.dim_str.split() or [""]
    inside = () if get_origin(annotation) is Callable else get_args(annotation)
    return next(filter(None, map(words, inside)), [])


def asked(name):
    found = [words(p.annotation) for p in inspect.signature(FUNCTIONS[name]).parameters.values()]
    return [axes for axes in found if axes]


ON_ARRAYS = [name for name in FUNCTIONS if asked(name)]
BROADCASTING = [name for name in ON_ARRAYS if all(axes[0] == "..." for axes in asked(name))]


def drawn(rng, name, annotation, lead):
    """Draw positive numbers with the axes of an annotation; squares as symmetric and well conditioned."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Sequence:
        return [drawn(rng, name, parts[0], lead) for _ in range(2)]
    if origin is Mapping:
        return {edge: drawn(rng, name, parts[1], lead) for edge in ((0, 1), (1, 2), (0, 2))}
    if origin is tuple:
        return tuple(drawn(rng, name, part, lead) for part in parts)
    axes = [word for word in words(annotation) if word]
    shape = [LENGTHS.get(axis, 2 if axis.startswith("d_") else 3) for axis in axes if axis != "..."]
    shape = [*lead(), *shape] if axes[:1] == ["..."] else shape
    if getattr(annotation, "dtype", None) is Integer:
        return np.arange(shape[0]) % 2
    values = rng.uniform(0.1, 1.0, shape)
    if len(axes) > 1 and axes[-1] == axes[-2]:
        return values @ np.swapaxes(values, -1, -2) + np.eye(shape[-1])
    if name in {"low", "high"}:
        return np.append(0.4 * values[:-1] + 0.5 * (name == "high"), 1.0)
    return np.sort(values) / values.max() if name == "probabilities" else np.asarray(values)


def call(function, lead=lambda: ()):
    """Draw what a function takes by position and what by name."""
    rng, positional, options = np.random.default_rng(7), [], {}
    for p in inspect.signature(function).parameters.values():
        value = drawn(rng, p.name, p.annotation, lead) if words(p.annotation) else OPTIONS[p.name]
        if p.kind is p.POSITIONAL_ONLY:
            positional.append(value)
        else:
            options[p.name] = value
    return positional, options


def calls_of(chapter):
    return {name: call(FUNCTIONS[name]) for name in FUNCTIONS if name in chapter.__all__}


def listed(result):
    return list(result) if isinstance(result, tuple) else [result]


def computed(calls):
    """Call each function with its own arguments; list what it gives."""
    return {name: listed(FUNCTIONS[name](*given, **options)) for name, (given, options) in calls.items()}


def same(found, expected, read=np.asarray, **close):
    for name, parts in expected.items():
        for one, other in zip(found[name], parts, strict=True):
            np.testing.assert_allclose(read(one), other, err_msg=name, **close)


def converted(calls, array):
    """Make a namespace's arrays of numpy's and of the constants."""
    found = {}
    for name, (positional, options) in calls.items():
        arrays = jax.tree.map(lambda one: array(one) if isinstance(one, np.ndarray) else one, positional)
        found[name] = arrays, {n: array(np.asarray(v)) if n in CONSTANTS else v for n, v in options.items()}
    return found


def in_one_program(calls, *, mapped):
    """Compile all calls together, mapped over an axis of one or not; what is no array jax knows."""
    leaves, tree = jax.tree.flatten(calls)
    places = [place for place, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]

    def program(arrays):
        every = list(leaves)
        for place, one in zip(places, arrays, strict=True):
            every[place] = one
        return computed(jax.tree.unflatten(tree, every))

    arrays = [leaves[place] for place in places]
    if not mapped:
        return jax.jit(program)(arrays)
    found = jax.jit(jax.vmap(program))([one[None] for one in arrays])
    return jax.tree.map(lambda one: one[0], found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", [*BACKENDS, STRICT_OTHER_DEVICE], ids=str)
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_functions_agree_across_namespaces_and_devices(chapter, backend, dtype):
    """On jax all functions are one program, with constants that are arrays."""
    calls = calls_of(chapter)
    given = converted(
        calls, lambda values: backend.array(values, dtype if values.dtype == np.float64 else None)
    )
    jax_alone = backend.name == "jax"
    found = in_one_program(given, mapped=dtype == "float64") if jax_alone else computed(given)
    close = {"rtol": 2e-4, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-9, "atol": 1e-12}
    same(found, computed(calls), backend.numpy, **close)
    for name in set(found) & set(ON_ARRAYS):
        first, *_ = (leaf for leaf in jax.tree.leaves(given[name]) if hasattr(leaf, "dtype"))
        for one in found[name]:
            assert type(one) is type(first) or not one.shape, name
            assert str(one.dtype).endswith((dtype, "bool")), name
            assert getattr(one, "device", None) == getattr(first, "device", None), name


# Torch warns of the cache around array-api-compat's check of types, which it looks through.
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
@pytest.mark.parametrize("names", [influence.__all__, [*optimizers.__all__, *shapley.__all__], ["gap"]])
def test_torch_compiles_functions_in_one_graph(names):
    calls = {name: call(FUNCTIONS[name]) for name in FUNCTIONS if name in names}
    given = list(converted(calls, torch.from_numpy).items())
    torch._dynamo.reset()

    def program(each):
        return [FUNCTIONS[name](*positional, **options) for name, (positional, options) in each]

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    same(dict(zip(calls, map(listed, compiled(given)), strict=True)), computed(calls), rtol=1e-9)


@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("name", [n for n in BROADCASTING if n != "layer_similarities"])  # which stacks
def test_leading_axes_are_so_many_samples(name, start):
    """Those of two validation and three training samples, which broadcast."""
    function, axes = FUNCTIONS[name], ((), (3,), (2, 1), (2, 3))
    before = words(inspect.signature(function).return_annotation)[0] in {"L", "4"}  # an axis of results
    leads = iter(axes[start:] + axes * 4)
    positional, options = call(function, lambda: next(leads))
    bare, _ = call(function)

    def parts(given):
        found = function(*given, **options)
        return list(found) if before else listed(found)

    found = parts(positional)
    for place in np.ndindex(2, 3):

        def one(array, like, place=place):
            return np.broadcast_to(array, (2, 3, *np.shape(like)))[place]

        for each, expected in zip(found, parts(jax.tree.map(one, positional, bare)), strict=True):
            np.testing.assert_allclose(one(each, expected), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ON_ARRAYS)
def test_arrays_with_wrong_axes_are_named(name):
    """One with fewer axes, and one on which an axis is longer than the same one elsewhere."""
    function = FUNCTIONS[name]
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        axes = [axis for axis in words(parameter.annotation) if axis != "..."]
        if axes:
            positional, options = call(function)
            positional[place] = jax.tree.map(
                lambda one: one[..., 0] if one.ndim else one[None], positional[place]
            )
            with pytest.raises(ValueError, match=rf"^({parameter.name}|training|edges).*: expected "):
                function(*positional, **options)
        elsewhere = [axis for words_of in asked(name) for axis in words_of]
        for at, axis in enumerate(axes, -len(axes)):
            positional, options = call(function)
            one = positional[place]
            if elsewhere.count(axis) > 1 and isinstance(one, np.ndarray) and axis:
                positional[place] = np.concatenate([one, one], axis=at)
                with pytest.raises(ValueError, match=r"^\w+(\[\d\])*: expected "):
                    function(*positional, **options)


@pytest.mark.parametrize("family", [orthogonal, unconstrained])
def test_trace_measurements_agree_across_namespaces(family, backend):
    case = family(np.random.default_rng(3), Shape())
    plain = [batch.trace() for batch in (case.validation, case.training)]
    other = [batch.trace(0, backend.array) for batch in (case.validation, case.training)]
    for measure in ON_TRACES:
        expected, found = vars(measure(*plain)), vars(measure(*other))
        for name, value in expected.items():
            assert np.allclose(backend.numpy(found[name]), value, rtol=1e-9)
