"""JAX's primitives on numpy arrays: those that numpy computes itself."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np


def plain(array: Any) -> Any:
    """Return an array as numpy's own; random keys stay as they are."""
    if jax.dtypes.issubdtype(getattr(array, "dtype", None), jax.dtypes.extended):
        return array
    return np.asarray(array)


def bound(eqn: Any, given: Sequence[Any]) -> list[Any]:
    """Compute one operation by JAX, in the types that it asks for."""
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, options = params if isinstance(params, tuple) else ((), params)
    typed = [
        array.astype(atom.aval.dtype) if isinstance(array, np.ndarray) else array
        for array, atom in zip(given, eqn.invars, strict=True)
    ]
    found = eqn.primitive.bind(*functions, *typed, **options)
    return [plain(one) for one in (found if eqn.primitive.multiple_results else [found])]


def _entrywise(function: Callable[..., Any], kinds: str = "biufc") -> Callable[..., Any]:
    def computed(eqn: Any, *given: Any) -> Any:
        return function(*given) if all(array.dtype.kind in kinds for array in given) else bound(eqn, given)

    return computed


def _reduced(function: Any) -> Callable[..., Any]:
    return lambda eqn, array: function.reduce(array, axis=tuple(eqn.params["axes"]), dtype=array.dtype)


def _dot_general(eqn: Any, left: Any, right: Any) -> Any:
    (contracted, batch), shape = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
    kind = eqn.outvars[0].aval.dtype
    sides = []
    for array, summed, apart in zip((left, right), contracted, batch, strict=True):
        free = [axis for axis in range(array.ndim) if axis not in (*summed, *apart)]
        sizes = [int(np.prod([array.shape[a] for a in axes])) for axes in (apart, free, summed)]
        sides.append(array.transpose([*apart, *free, *summed]).reshape(sizes).astype(kind))
    return (sides[0] @ sides[1].swapaxes(1, 2)).reshape(shape)


def _broadcast(eqn: Any, array: Any, *_: Any) -> Any:
    shape = eqn.outvars[0].aval.shape
    places = dict(zip(eqn.params["broadcast_dimensions"], array.shape, strict=True))
    return np.broadcast_to(array.reshape([places.get(axis, 1) for axis in range(len(shape))]), shape)


def _reshape(eqn: Any, array: Any, *_: Any) -> Any:
    order = eqn.params["dimensions"]
    return (array if order is None else array.transpose(order)).reshape(eqn.outvars[0].aval.shape)


def _slice(eqn: Any, array: Any) -> Any:
    params = eqn.params
    steps = params["strides"] or (1,) * array.ndim
    return array[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _starts(array: Any, starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices from these starts, moved so that they fit."""
    spans = zip(starts, sizes, array.shape, strict=True)
    first = [(int(np.clip(start, 0, whole - size)), size) for start, size, whole in spans]
    return tuple(slice(start, start + size) for start, size in first)


def _converted(eqn: Any, array: Any) -> Any:
    kind = np.dtype(eqn.params["new_dtype"])
    # numpy drops an imaginary part with a warning, and leaves open what a large number becomes
    if (array.dtype.kind, kind.kind) in {("f", "i"), ("f", "u")} or array.dtype.kind == "c" != kind.kind:
        return bound(eqn, [array])
    return array.astype(kind)


def _iota(eqn: Any) -> Any:
    aval, along = eqn.outvars[0].aval, eqn.params["dimension"]
    counted = np.arange(aval.shape[along]).reshape([-1 if axis == along else 1 for axis in range(aval.ndim)])
    return np.broadcast_to(counted, aval.shape)


def _taken(eqn: Any, data: Any, indices: Any) -> Any:
    """Read whole rows by index, as tables of embeddings are; what else a gather may be is JAX's."""
    numbers, sizes = eqn.params["dimension_numbers"], list(data.shape)
    gone = numbers.collapsed_slice_dims
    for axis in gone:
        sizes[axis] = 1
    inside = (indices >= 0) & (indices < data.shape[gone[0]] if gone else False)
    rows = len(gone) == 1 and numbers.start_index_map == gone and not numbers.operand_batching_dims
    if not (rows and tuple(sizes) == eqn.params["slice_sizes"] and inside.all()):
        return bound(eqn, [data, indices])[0]
    found = np.take(np.moveaxis(data, gone[0], 0), indices[..., 0], 0)
    return np.moveaxis(found, range(indices.ndim - 1, found.ndim), numbers.offset_dims)


PRIMITIVES: dict[str, Callable[..., Any]] = {
    **{
        name: _entrywise(getattr(np, name))
        for name in ["tanh", "exp", "expm1", "log", "log1p", "sin", "cos", "sqrt", "square"]
    },
    **dict.fromkeys(("add", "add_any"), _entrywise(np.add, "iufc")),
    "sub": _entrywise(np.subtract, "iufc"),
    "mul": _entrywise(np.multiply, "iufc"),
    "div": _entrywise(np.divide, "fc"),
    "neg": _entrywise(np.negative, "ifc"),
    "abs": _entrywise(np.abs, "if"),
    "max": _entrywise(np.maximum, "biuf"),
    "min": _entrywise(np.minimum, "biuf"),
    "rsqrt": _entrywise(lambda x: 1 / np.sqrt(x), "f"),
    "logistic": _entrywise(lambda x: 1 / (1 + np.exp(-x)), "f"),
    "pow": lambda eqn, x, y: x**y if x.dtype == y.dtype and x.dtype.kind == "f" else bound(eqn, [x, y]),
    "integer_pow": lambda eqn, x: x ** eqn.params["y"] if x.dtype.kind == "f" else bound(eqn, [x]),
    **{
        name: _entrywise(function)
        for name, function in zip(
            ["eq", "ne", "lt", "le", "gt", "ge"],
            (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
            strict=True,
        )
    },
    "and": _entrywise(np.bitwise_and, "biu"),
    "or": _entrywise(np.bitwise_or, "biu"),
    "not": _entrywise(np.invert, "biu"),
    "is_finite": _entrywise(np.isfinite, "f"),
    **dict.fromkeys(["stop_gradient", "copy", "copy_p", "name"], lambda eqn, array: array),
    **dict.fromkeys(["optimization_barrier", "shard_alike"], lambda eqn, *arrays: list(arrays)),
    "clamp": lambda eqn, low, x, high: np.minimum(np.maximum(x, low), high),
    "select_n": lambda eqn, which, *cases: (
        np.choose(which.astype(int), cases) if len(cases) > 2 else np.where(which, cases[-1], cases[0])
    ),
    "reduce_sum": _reduced(np.add),
    "reduce_max": _reduced(np.maximum),
    "dot_general": _dot_general,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": lambda eqn, array: array.transpose(eqn.params["permutation"]),
    "squeeze": lambda eqn, array: array.reshape(eqn.outvars[0].aval.shape),
    "slice": _slice,
    "dynamic_slice": lambda eqn, array, *starts: array[_starts(array, starts, eqn.params["slice_sizes"])],
    "concatenate": lambda eqn, *arrays: np.concatenate(arrays, eqn.params["dimension"]),
    "split": lambda eqn, array: np.split(array, np.cumsum(eqn.params["sizes"])[:-1], eqn.params["axis"]),
    "stack": lambda eqn, *arrays: np.stack(arrays, eqn.params["axis"]),
    "iota": _iota,
    "gather": _taken,
    "convert_element_type": _converted,
}
