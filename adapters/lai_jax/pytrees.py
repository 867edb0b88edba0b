"""Traces, summaries and records as pytrees: arrays are leaves, the rest is static."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import jax

import lai_core as lai
from lai_core.estimators.gates import GateTrace
from lai_jax._recording.assemble import TransposedTrace

Kind = TypeVar("Kind", bound=type[lai.Record])


def register_record(kind: Kind) -> Kind:
    """Make a kind of record a pytree, so that it passes through `jax.jit` and its like.

    What importing `lai_jax` does for the kinds of the library; as a decorator, for one of your own.

    Parameters
    ----------
    kind
        A frozen dataclass derived from `lai_core.Record`: its `array_fields` are the leaves.

    Returns
    -------
    type
        The kind.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import jax, jax.numpy as jnp
    >>> import lai_core as lai
    >>> import lai_jax
    >>> @lai_jax.register_record
    ... @dataclass(frozen=True, eq=False, repr=False)
    ... class MyTrace(lai.LayerTrace):
    ...     pass
    >>> mapped = jax.tree.map(jnp.shape, MyTrace(jnp.ones((2, 3)), jnp.ones((2, 1)), name="first"))
    >>> mapped.name, mapped.activations, mapped.output_gradients
    ('first', (2, 3), (2, 1))
    """
    _register(kind, tuple(kind.array_fields), kind.static_fields())
    return kind


def _register(kind: type, data: Sequence[str], static: Sequence[str]) -> None:
    def flatten(given: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(given, name)) for name in data]
        return children, tuple(getattr(given, name) for name in static)

    def unflatten(settings: Any, children: Iterable[Any]) -> Any:
        made: Any = object.__new__(kind)  # a leaf may be anything: nothing is checked
        for name, value in (*zip(static, settings, strict=True), *zip(data, children, strict=True)):
            object.__setattr__(made, name, value)
        return made

    def flatten_alone(given: Any) -> tuple[list[Any], Any]:  # at each call of a compiled function
        return [getattr(given, name) for name in data], tuple(getattr(given, name) for name in static)

    jax.tree_util.register_pytree_with_keys(kind, flatten, unflatten, flatten_alone)


for _kind in (
    lai.LayerTrace,
    lai.ReadoutTrace,
    lai.ExpertTrace,
    lai.ConvolutionTrace,
    lai.EmbeddingTrace,
    lai.GainTrace,
    TransposedTrace,
):
    register_record(_kind)

for _holder, _data in (
    (lai.Trace, ("layers",)),
    (lai.ValidationSummary, ("totals", "samples")),
    (GateTrace, ("trace", "gates", "column_norms")),
):
    _names: Any = (field.name for field in fields(_holder))
    _register(_holder, _data, tuple(name for name in _names if name not in _data))
