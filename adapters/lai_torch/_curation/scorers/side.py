"""What a trace is scored against: a summary, or several whose scores add up."""

from dataclasses import dataclass
from typing import Any

from lai_storage import storable
from torch import Tensor

import lai_core as lai


@storable
@dataclass(frozen=True)
class ValidationSide:
    """What a batch is scored against: the scores are summed over the parts."""

    # A summary of the validation set; or traces of its parts, where products do not sum up
    parts: tuple[Any, ...]
    positions: str | None = None  # how positions are read; None where it does not matter
    layer_weights: Tensor | None = None  # `(L,)`: what each layer's product is multiplied by; None: nothing

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many validation samples each part has."""
        return tuple(_samples(part) for part in self.parts)


def _samples(part: lai.ValidationSummary | lai.Trace) -> int:
    """Return how many samples a summary was made of, or a trace has."""
    return int(part.samples if isinstance(part, lai.ValidationSummary) else part.layers[0].samples())
