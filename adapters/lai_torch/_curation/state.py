"""A validation summary as tensors and plain values, so that it loads without pickle."""

from dataclasses import fields, is_dataclass
from typing import Any

import lai_core as lai
from lai_core.records.convolution import Geometry
from lai_torch._curation.scorers.base import ValidationSide
from lai_torch.trace import GateTrace

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        ValidationSide,
        lai.ValidationSummary,
        lai.Trace,
        GateTrace,
        lai.LayerTrace,
        lai.ReadoutTrace,
        lai.ExpertTrace,
        lai.ConvolutionTrace,
        Geometry,
    )
}
"""The dataclasses that summaries are made of."""


def packed(value: Any) -> Any:
    """Return nested dataclasses and tuples as dictionaries that name them."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: packed(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, "fields": held}
    if isinstance(value, tuple):
        return {"kind": "tuple", "parts": [packed(part) for part in value]}
    if isinstance(value, dict):  # whose keys may be anything, `kind` too
        return {"kind": "dict", "parts": [[key, packed(part)] for key, part in value.items()]}
    return value


def unpacked(plain: Any) -> Any:
    """Return what `packed` wrote down."""
    if not isinstance(plain, dict):
        return plain
    if plain["kind"] == "tuple":
        return tuple(unpacked(part) for part in plain["parts"])
    if plain["kind"] == "dict":
        return {key: unpacked(part) for key, part in plain["parts"]}
    return KINDS[plain["kind"]](**{name: unpacked(value) for name, value in plain["fields"].items()})


def check_state(state: Any, expected: dict[str, Any]) -> None:
    """Raise unless a state is one of a curator such as that whose state is `expected`."""
    missing = sorted(expected.keys() - state.keys()) if isinstance(state, dict) else sorted(expected)
    if missing:
        msg = f"state: expected what state_dict of a curator returned, got one without {missing[0]!r}"
        raise ValueError(msg)
    if state["estimator"] != expected["estimator"]:
        msg = (
            f"state: expected that of a curator with estimator {expected['estimator']!r}, got one of "
            f"{state['estimator']!r}"
        )
        raise ValueError(msg)
    for name in ("steps", "skipped", "dropped"):
        if not isinstance(state[name], int) or state[name] < 0:
            msg = f"state: expected a whole number of {name!r}, 0 or more, got {state[name]!r}"
            raise ValueError(msg)
