"""The one file that knows array-api-compat: which namespace, device and type an array has.

Everything else in `lai_core` takes the namespace `xp` from here and uses operations of the
Python array API standard, version 2024.12, alone; `own.py` has what single namespaces have beyond it.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

from array_api_compat import array_namespace, is_array_api_obj, is_torch_array, to_device
from array_api_compat import device as device
from array_api_compat import is_jax_array as is_jax_array
from array_api_compat import is_numpy_array as is_numpy_array
from array_api_compat import is_torch_namespace as is_torch_namespace

Array = Any
"""Any array whose namespace follows the array API standard (numpy, torch, jax, strict, ...)."""

Namespace = Any
"""A module with the functions of the array API standard."""

DType = Any

_NARROW = re.compile(r"b?float(4|6|8|16)(_|$)")
"""Names of floating types below 32 bits: `float16`, `bfloat16`, `float8_e4m3fn`, ..."""


def is_array(value: object) -> bool:
    """Whether `value` is an array of a namespace that follows the array API standard."""
    return bool(is_array_api_obj(value))


def namespace_of(named: Mapping[str, Array]) -> Namespace:
    """Return the one namespace of all arrays, which must share it and a device; keys name them in errors."""
    for name, value in named.items():
        if not is_array(value):
            msg = f"{name}: expected an array (numpy, torch, jax, ...), got {type(value).__name__}"
            raise TypeError(msg)
    (first_name, first), *rest = named.items()
    xp = array_namespace(first)
    for name, value in rest:
        other = array_namespace(value)
        if other is not xp:
            msg = (
                f"{name}: expected an array of the namespace of {first_name} ({xp.__name__}), "
                f"got one of {other.__name__}"
            )
            raise TypeError(msg)
    if not is_jax_array(first):  # a traced jax array has no device; jax itself refuses to mix them
        place = device(first)
        for name, value in rest:
            if device(value) != place:
                msg = (
                    f"{name}: expected an array on the device of {first_name} ({place}), "
                    f"got one on {device(value)}"
                )
                raise ValueError(msg)
    return xp


def xp_of(array: Array) -> Namespace:
    """Return the namespace of one array that has been checked."""
    return array_namespace(array)


def device_of(array: Array) -> Any:
    """Return the device on which to create what meets `array`; None on jax, which places it by itself."""
    return None if is_jax_array(array) else device(array)


def place_of(array: Any) -> Any:
    """Return what tells the devices of two arrays of one type apart; None where they need not be."""
    kind = type(array)
    if (read := _PLACES.get(kind)) is None:
        alike = is_jax_array(array) or is_numpy_array(array)
        read = _PLACES[kind] = (lambda _: None) if alike else attrgetter("device")
    return read(array)


_PLACES: dict[type, Callable[[Any], Any]] = {}


def is_compiling() -> bool:
    """Whether torch's compiler reads the program instead of running it."""
    torch = sys.modules.get("torch")  # if it is not imported, no array is of it
    return torch is not None and bool(torch.compiler.is_compiling())


def move_to_host(array: Array) -> Array:
    """Return the array as numpy can read it: torch's without its graph, from the host's memory."""
    return to_device(array.detach(), "cpu") if is_torch_array(array) else array


def is_half(dtype: DType) -> bool:
    """Whether `dtype` is a float below 32 bits, decided by name: no standard function knows them all."""
    kind: Any = type(dtype)
    return _is_half(kind, dtype)


@cache
def _is_half(kind: type, dtype: DType) -> bool:
    del kind  # types of two namespaces are not compared with each other
    return _NARROW.match(str(dtype).rpartition(".")[2]) is not None


def is_floating(xp: Namespace, dtype: DType) -> bool:
    """Whether `dtype` is a real floating type, half precision included."""
    return is_half(dtype) or bool(xp.isdtype(dtype, "real floating"))


def accumulation_dtype(xp: Namespace, *dtypes: DType) -> DType:
    """Return the type in which to accumulate: at least float32, and the widest of `dtypes`."""
    return xp.result_type(*(xp.float32 if is_half(dtype) else dtype for dtype in dtypes))


@cache
def itemsize(xp: Namespace, dtype: DType) -> int:
    return int(xp.finfo(dtype).bits) // 8


def cast(xp: Namespace, array: Array, dtype: DType) -> Array:
    """Return `array` as `dtype`, itself where it already is: nothing is written to."""
    return array if array.dtype == dtype else xp.astype(array, dtype)


def matmul(xp: Namespace, left: Array, right: Array) -> Array:
    """Return the matrix product in the arrays' own type, under torch's autocast too."""
    kind = left.device.type if is_torch_namespace(xp) else None
    if kind is not None and xp.amp.is_autocast_available(kind) and xp.is_autocast_enabled(kind):
        with xp.autocast(kind, enabled=False):
            return xp.matmul(left, right)
    return xp.matmul(left, right)


def dots(xp: Namespace, left: Array, right: Array) -> Array:
    """Return the inner products over the last axis.

    The standard's `vecdot` is one pass on numpy, and no faster than a product and its sum elsewhere.
    """
    return xp.vecdot(left, right) if is_numpy_array(left) else xp.sum(left * right, axis=-1)
