"""A curator's state as tensors and plain values, so that it loads without pickle."""

from typing import Any

import lai_core as lai
from lai_core.convolutions import Geometry
from lai_torch._calibrated import Calibrated


def packed_summary(summary: Any) -> Any:
    """Return a summary as nested lists, numbers and tensors; a gradient or a batch already is that."""
    if isinstance(summary, Calibrated):
        return {"calibrated": packed_summary(summary.summary), "layer_weights": summary.layer_weights}
    if not isinstance(summary, lai.ValidationSummary):
        return summary
    return {
        "estimator": summary.estimator,
        "positions": summary.positions,
        "totals": [list(parts) for parts in summary.totals],
        "samples": int(summary.samples),
        "layouts": _plain(summary.layouts),
    }


def unpacked_summary(packed: Any) -> Any:
    """Return the summary that `packed_summary` wrote down."""
    if isinstance(packed, dict) and packed.keys() == {"calibrated", "layer_weights"}:
        return Calibrated(unpacked_summary(packed["calibrated"]), packed["layer_weights"])
    if not isinstance(packed, dict) or "layouts" not in packed:
        return packed
    return lai.ValidationSummary(
        packed["estimator"],
        packed["positions"],
        tuple(tuple(parts) for parts in packed["totals"]),
        packed["samples"],
        _hashable(packed["layouts"]),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Geometry):
        parts = (value.kernel, value.stride, value.padding, value.dilation)
        return {"geometry": [_plain(part) for part in parts]}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return Geometry(*(_hashable(part) for part in value["geometry"]))
    return tuple(_hashable(part) for part in value) if isinstance(value, list) else value
