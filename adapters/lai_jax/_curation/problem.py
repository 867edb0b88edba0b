"""What a step trains: a model and its loss, at some parameters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lai_core as lai
from lai_jax._curation.meshes import Spread
from lai_jax._program.model import Model, read
from lai_jax._recording.plan import Plan, make_plan
from lai_jax._recording.recorders import Valid, mask_trace

Batch = tuple[Any, Any]


@dataclass(frozen=True)
class Problem:
    # `apply`, `loss`, `last`: as `trace` takes them
    apply: Callable[..., Any]
    params: Any  # the parameters
    loss: Callable[..., Any]
    last: str | None = None
    valid: Valid | None = None  # from a batch's inputs to the positions that count; None: all do
    spread: Spread = field(default_factory=Spread)  # over which devices chosen rows lie

    def masked(self, trace: lai.Trace, batch: Batch) -> lai.Trace:
        return mask_trace(trace, self.valid, batch[0])

    def read(self, batch: Batch) -> Model:
        return read(self.apply, self.params, self.loss, *batch)

    def plan_trace(self, batch: Batch, *, everything: bool) -> tuple[Model, Plan]:
        model = self.read(batch)
        return model, make_plan(model, self.last, everything=everything)
