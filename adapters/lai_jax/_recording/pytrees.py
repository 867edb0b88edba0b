"""Traces, summaries and their records as pytrees: arrays are leaves, the rest is static."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import jax

import lai_core as lai
from lai_core.estimators.gates import GateTrace
from lai_jax._recording.records import MapTrace, TransposedTrace

_DATA: dict[type, tuple[str, ...]] = {
    lai.Trace: ("layers",),
    lai.ValidationSummary: ("totals", "samples"),
    GateTrace: ("trace", "gates", "column_norms"),
    lai.EmbeddingTrace: ("ids", "output_gradients"),
    lai.GainTrace: ("normalized", "output_gradients"),
    **dict.fromkeys(
        (lai.LayerTrace, lai.ReadoutTrace, lai.ConvolutionTrace, TransposedTrace, MapTrace),
        ("activations", "output_gradients"),
    ),
}


def _frozen(value: Any) -> Any:
    """Make a static field hashable: layouts are tuples of dictionaries."""
    if isinstance(value, dict):
        return ("a dictionary", tuple((key, _frozen(each)) for key, each in value.items()))
    return tuple(_frozen(each) for each in value) if isinstance(value, (tuple, list)) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple):
        if len(value) == 2 and value[0] == "a dictionary":
            return {key: _thawed(each) for key, each in value[1]}
        return tuple(_thawed(each) for each in value)
    return value


def _register(kind: type, data: Sequence[str]) -> None:
    static = [field.name for field in fields(kind) if field.name not in data]

    def flatten(record: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(record, name)) for name in data]
        return children, tuple(_frozen(getattr(record, name)) for name in static)

    def unflatten(settings: Any, children: Iterable[Any]) -> Any:
        record: Any = object.__new__(kind)
        for name, value in (*zip(static, settings, strict=True), *zip(data, children, strict=True)):
            object.__setattr__(record, name, _thawed(value) if name in static else value)
        return record

    jax.tree_util.register_pytree_with_keys(kind, flatten, unflatten)


for _kind, _names in _DATA.items():
    _register(_kind, _names)
