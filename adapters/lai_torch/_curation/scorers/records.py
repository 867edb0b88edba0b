"""Whether batches have records of the same parameters: Ghost multiplies one with one.

An expert that no sample reaches has none, and a layer that runs until it is done has as many as it runs.
"""

from collections import defaultdict
from typing import Any

import lai_core as lai
from lai_torch._curation.scorers.tracer import Tracer

Records = dict[str, list[Any]]
"""Of each weight key what its records are, in order."""


class UnlikeError(ValueError):
    """A batch has other records than what it is scored against; made again, both have the same."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(
            f"model: expected records of the same parameters in every batch, got others of {sorted(names)}; "
            "use estimator 'exact'"
        )


class SharedLayout:
    """Compares each batch's records with those of the first that a summary is made of, for Ghost."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._first: tuple[Records, frozenset[str]] | None = None

    @property
    def begun(self) -> bool:
        """Whether there is something to compare with."""
        return self._first is not None

    def begin(self) -> None:
        """Begin another summary."""
        self._first = None

    def check(self, trace: Any) -> None:
        """Raise where a batch has other records than the first, once these are left to backward passes."""
        if not self.tracer.every_layer:
            return
        found = _records_of(trace)
        if self._first is None:
            self._first = found, self.tracer.left
            return
        before, left = self._first
        keys = {key for key in {*found, *before} if found.get(key) != before.get(key)}
        names = frozenset(key.partition("[")[0] for key in keys)  # a matrix of several is called NAME[i]
        if names - left:
            self.tracer.leave(names)
            raise UnlikeError(names)


def _records_of(trace: lai.Trace) -> Records:
    """Return of what kind the records of a trace are."""
    found: Records = defaultdict(list)
    for layer in trace.layers:
        found[str(layer.weight)].append((type(layer), getattr(layer, "bias", False)))
    return dict(found)
