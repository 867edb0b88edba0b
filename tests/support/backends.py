"""The array namespaces under test, from friendly to nastier than any user's."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_strict
import jax
import lai_jax  # noqa: F401  # makes records and summaries pytrees
import numpy as np
import torch

torch.set_num_threads(1)
jax.config.update("jax_enable_x64", True)
# No data-dependent shapes and no boolean masks: what a compiler could not trace is an error.
array_api_strict.set_array_api_strict_flags(boolean_indexing=False, data_dependent_shapes=False)


@dataclass(frozen=True)
class Backend:
    """A namespace: how to make its arrays and how to read them."""

    name: str
    from_numpy: Callable[[np.ndarray], Any]

    def __str__(self) -> str:
        return self.name

    def array(self, values: Any, dtype: str | None = None) -> Any:
        values = np.asarray(values)
        return self.from_numpy(values if dtype is None else values.astype(dtype))

    def numpy(self, array: Any) -> np.ndarray:
        """Return `array` as a numpy array, half types as float32."""
        if isinstance(array, torch.Tensor):
            return array.detach().to(torch.float32 if array.dtype.itemsize == 2 else array.dtype).numpy()
        if self.name.startswith("strict"):
            return np.asarray(
                array_api_strict.asarray(array, device=array_api_strict.Device("CPU_DEVICE"))._array
            )
        return np.asarray(array)

    def program(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of arrays and records; on jax as one program, which compiles faster."""
        return _compiled(function) if self.name == "jax" else function


_compiled = functools.cache(jax.jit)


def _read_only(values: np.ndarray) -> np.ndarray:
    """Copy, and refuse writes: the caller's arrays are never written to."""
    values = np.array(values)
    values.flags.writeable = False
    return values


BACKENDS = (
    Backend("numpy", _read_only),
    Backend("torch", lambda values: torch.from_numpy(np.array(values))),
    Backend("jax", jax.device_put),  # jnp.asarray compiles a program for every new shape
    Backend("strict", array_api_strict.asarray),
)
"""The four that every statement is tested on."""

STRICT_OTHER_DEVICE = Backend(
    "strict-device1",
    lambda values: array_api_strict.asarray(values, device=array_api_strict.Device("device1")),
)
"""A device that is not the default: a constant made without `device=` fails on it."""
