"""What a curated step scores against, as one pytree."""

import functools
from dataclasses import dataclass
from typing import Any

import jax

from lai_jax.sketch import Sketch


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["side", "sketch", "layer_weights"],
    meta_fields=["positions"],
)
@dataclass(frozen=True)
class Validation:
    """What a curated step scores against; a pytree, as `summarize` makes it or put together by hand.

    Attributes
    ----------
    side
        A `ValidationSummary`; a `Trace` where there is no summary; a `GateTrace` for `gate_lai`; the
        summed gradient for `exact`. Sketched if there is a sketch.
    sketch
        With which the step sketches its own side.
    layer_weights
        `(L,)`: by which LAI weighs the layers; None: all 1.
    positions
        How to read positions where `side` is a `Trace`.
    """

    side: Any
    sketch: Sketch | None = None
    layer_weights: jax.Array | None = None
    positions: str | None = None
