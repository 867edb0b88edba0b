"""A curator's state as tensors and plain values, so that it loads without pickle."""

from dataclasses import fields
from typing import Any

import lai_core as lai
from lai_core.records.convolution import Geometry
from lai_torch._curation.scorers.base import Sides
from lai_torch._curation.scorers.calibrated import Calibrated
from lai_torch.gates import GateTrace

RECORDS = {kind.__name__: kind for kind in (lai.LayerTrace, lai.ReadoutTrace, lai.ConvolutionTrace)}
"""Kinds of record that LAI's traces of a validation set are made of."""


def packed(summary: Any) -> Any:
    """Return a summary as nested lists, numbers and tensors, with its kind."""
    if isinstance(summary, Calibrated):
        return {"kind": "calibrated", "side": packed(summary.side), "layer_weights": summary.layer_weights}
    if isinstance(summary, Sides):
        parts = [packed(part) for part in summary.parts]
        return {"kind": "sides", "parts": parts, "positions": summary.positions}
    if isinstance(summary, GateTrace):
        return {"kind": "gates", "trace": packed(summary.trace), "gates": list(summary.gates)}
    if isinstance(summary, lai.Trace):
        return {"kind": "trace", "layers": [_packed_record(layer) for layer in summary.layers]}
    if isinstance(summary, lai.ValidationSummary):
        return {
            "kind": "summary",
            "estimator": summary.estimator,
            "positions": summary.positions,
            "totals": [list(parts) for parts in summary.totals],
            "samples": int(summary.samples),
            "layouts": _plain(summary.layouts),
        }
    return {"kind": "plain", "value": summary}  # a gradient by parameter names, a batch, or none yet


def unpacked(plain: dict[str, Any]) -> Any:
    """Return the summary that `packed` wrote down."""
    if plain["kind"] == "calibrated":
        return Calibrated(unpacked(plain["side"]), plain["layer_weights"])
    if plain["kind"] == "sides":
        return Sides(tuple(unpacked(part) for part in plain["parts"]), plain["positions"])
    if plain["kind"] == "gates":
        return GateTrace(unpacked(plain["trace"]), tuple(plain["gates"]), ())
    if plain["kind"] == "trace":
        return lai.Trace(_unpacked_record(layer) for layer in plain["layers"])
    if plain["kind"] == "plain":
        return plain["value"]
    return lai.ValidationSummary(
        plain["estimator"],
        plain["positions"],
        tuple(tuple(parts) for parts in plain["totals"]),
        plain["samples"],
        _hashable(plain["layouts"]),
    )


def _packed_record(record: lai.Record) -> dict[str, Any]:
    values = {field.name: _plain(getattr(record, field.name)) for field in fields(record)}  # type: ignore[arg-type]
    return {"kind": type(record).__name__, "fields": values}


def _unpacked_record(plain: dict[str, Any]) -> lai.Record:
    values = {name: _hashable(value) for name, value in plain["fields"].items()}
    return RECORDS[plain["kind"]](**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Geometry):
        parts = (value.kernel, value.stride, value.padding, value.dilation)
        return {"geometry": [_plain(part) for part in parts]}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return Geometry(*(_hashable(part) for part in value["geometry"]))
    return tuple(_hashable(part) for part in value) if isinstance(value, list) else value
