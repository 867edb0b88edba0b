"""Sketches of the output gradients in the loop: signs and permutations drawn, kept, and applied."""

from typing import Any

import torch
from torch import Tensor

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs

AT_ONCE = 2**26
"""Bytes of temporaries; with many more, allocating them took several times as long as the sums."""


class Sketch:
    """A sketch of the last layer's output gradients, the same on both sides."""

    def __init__(
        self,
        width: int,  # numbers a position that are left of an output gradient
        generator: torch.Generator,  # from which signs and permutation are drawn; a CPU generator
    ) -> None:
        self.width, self.generator = width, generator
        self._drawn: tuple[Tensor, Tensor] | None = None

    def forget(self) -> None:
        """Have signs and permutation drawn anew."""
        self._drawn = None

    def __call__(self, trace: lai.Trace) -> lai.Trace:
        """Return the trace with its last output gradients sketched."""
        gradients: Any = trace.layers[-1].output_gradients
        outputs = gradients.shape[-1]
        if self.width > outputs:
            msg = f"sketch: expected at most the last layer's {outputs} outputs, got {self.width}"
            raise ValueError(msg)
        if self._drawn is None:
            self._drawn = self._draw(outputs)
        signs, permutation = (part.to(gradients.device) for part in self._drawn)
        budget = max(AT_ONCE, 64 * (outputs + self.width))  # which holds one position of float64
        return sketch_outputs(
            trace, signs.to(gradients.dtype), permutation, width=self.width, memory_budget=budget
        )

    def take_up(self, drawn: list[Tensor]) -> None:
        """Draw as another process did that had the same generator: its draw is `drawn`."""
        self._draw(len(drawn[0]))
        self.load_state(drawn)

    def _draw(self, outputs: int) -> tuple[Tensor, Tensor]:
        signs = torch.randint(2, (outputs,), generator=self.generator, device="cpu") * 2 - 1
        return signs, torch.randperm(outputs, generator=self.generator, device="cpu")

    def state(self) -> list[Tensor] | None:
        """Return signs and permutation; None before they are drawn."""
        return None if self._drawn is None else list(self._drawn)

    def load_state(self, state: list[Tensor] | None) -> None:
        """Take up what `state` returned."""
        self._drawn = None if state is None else (state[0], state[1])
