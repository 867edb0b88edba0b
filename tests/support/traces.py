"""Random traces in numpy, and the same numbers as records on any backend."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lai_core as lai
from tests.support.backends import Backend
from tests.support.draws import GENERATORS


@dataclass(frozen=True)
class Layer:
    """One layer's numbers, `(n, t, d)` or `(n, d)`, and its flags."""

    activations: np.ndarray
    output_gradients: np.ndarray
    bias: bool = False
    weight: Any = None
    groups: int = 1


@dataclass(frozen=True)
class Layout:
    """Shapes and flags of a model's layers; everything but the numbers."""

    widths: tuple[tuple[int, int], ...]
    positions: int | None = None
    bias: tuple[bool, ...] = ()
    weights: tuple[Any, ...] = ()
    groups: tuple[int, ...] = ()

    def draw(self, samples: int, seed: Any, scale: float = 1.0) -> list[Layer]:
        """Return a batch of `samples` samples with standard normal numbers."""
        generator = np.random.default_rng(seed)
        lead = (samples,) if self.positions is None else (samples, self.positions)
        layers = []
        for index, (d_in, d_out) in enumerate(self.widths):
            layers.append(
                Layer(
                    generator.normal(size=(*lead, d_in)) * scale,
                    generator.normal(size=(*lead, d_out)) * scale,
                    self.bias[index] if self.bias else False,
                    self.weights[index] if self.weights else None,
                    self.groups[index] if self.groups else 1,
                )
            )
        return layers


# Few shapes, so that a compiling backend compiles few programs; every flag and every depth from 1 to 8.
LAYOUTS = (
    Layout(((3, 2),)),
    Layout(((1, 1),), positions=1, bias=(True,)),
    Layout(((4, 6), (2, 4)), bias=(True, False), groups=(2, 2)),
    Layout(((5, 1), (1, 4), (4, 2)), bias=(False, True, True)),
    Layout(((3, 4), (4, 4), (4, 4), (2, 3)), positions=3, bias=(True,) * 4, weights=("in", "w", "w", "out")),
    Layout(((2, 3), (3, 2), (2, 3), (3, 2), (2, 5)), positions=2, weights=("w", "v", "w", "v", None)),
    Layout(((2, 2),) * 6, bias=(True,) * 6, weights=("w",) * 6),
    Layout(((2, 7), (7, 1), (1, 3), (3, 3), (3, 2), (2, 2), (2, 4)), bias=(False, True) * 3 + (True,)),
    Layout(((3, 3),) * 3, positions=2, bias=(True, False, True), weights=("w", "w", "w")),
    Layout(((4, 4),) * 8, positions=2, groups=(1, 2) * 4, weights=("w", "g") * 4),
)
SIZES = ((1, 1), (3, 5))
"""Numbers of validation and training samples."""


@st.composite
def batches(draw: st.DrawFn, layouts: tuple[Layout, ...] = LAYOUTS) -> tuple[list[Layer], list[Layer]]:
    layout = draw(st.sampled_from(layouts))
    n_val, n_train = draw(st.sampled_from(SIZES))
    seed = draw(GENERATORS)
    return layout.draw(n_val, seed), layout.draw(n_train, seed + 1)


def record(layer: Layer, backend: Backend, dtype: str | None = None) -> lai.LayerTrace:
    """Return the layer as a record of `backend`."""
    return lai.LayerTrace(
        backend.array(layer.activations, dtype),
        backend.array(layer.output_gradients, dtype),
        bias=layer.bias,
        weight=layer.weight,
        groups=layer.groups,
    )


def trace(layers: list[Layer], backend: Backend, dtype: str | None = None) -> lai.Trace:
    return lai.Trace([record(layer, backend, dtype) for layer in layers])


def rows(layers: list[Layer], chosen: Any) -> list[Layer]:
    """Return the samples `chosen` (a slice or an index array) of a batch."""
    return [
        replace(
            layer,
            activations=layer.activations[chosen],
            output_gradients=layer.output_gradients[chosen],
        )
        for layer in layers
    ]
