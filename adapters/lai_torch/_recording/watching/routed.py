"""Which rows of a batch go to which of an expert layer's matrices, and whose samples they are."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from lai_torch._recording.watching.probes import Probe
from lai_torch._recording.watching.uses import Source


@dataclass(frozen=True)
class Slice:
    """One matrix of a parameter that holds many."""

    source: Source
    matrix: int


@dataclass(frozen=True, eq=False)
class Routed:
    """One matrix of many, used on the rows that were routed to it."""

    source: Source  # source, matrix: the parameter, and which of its matrices
    matrix: int
    probe: Probe  # where the output gradient arrives; this use's are its `rows`
    activations: Tensor  # what the matrix is used on, `(k, d)`
    samples: Tensor  # which sample each row is of, `(k,)`
    rows: slice  # which rows of what arrives at the probe are this use's
    version: int  # how often the activations had been written to when they were read

    @property
    def width(self) -> int:
        """How many outputs the matrix has: of its two sides, the one that is not the input's."""
        _, one, other = self.source.tensor.shape
        return int(other if one == self.activations.shape[1] else one)

    @property
    def name(self) -> str:
        """What the matrix is called."""
        return f"{self.source.name}[{self.matrix}]"


class Experts:
    """What is known of routed rows while a forward pass is watched.

    Attributes
    ----------
    uses
        The uses of single matrices, in order.
    slices
        Matrices that were read from a parameter.
    """

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.uses: list[Routed] = []
        self.slices: Any = WeakTensorKeyDictionary()
        self._rows: Any = WeakTensorKeyDictionary()

    def samples_of(self, rows: Tensor) -> Tensor | None:
        """Return which sample each row is of; None where they were not followed."""
        found: Tensor | None = self._rows.get(rows)
        return found

    def follow(self, result: Tensor, samples: Tensor) -> None:
        """Note which sample each row of `result` is of."""
        if result.ndim and result.shape[0] == samples.shape[0]:
            self._rows[result] = samples

    def follow_from(self, func: Any, involved: list[Tensor], results: list[Tensor]) -> None:
        """Note whose samples the rows of results are, that were read by number, or computed row by row."""
        if func in _READING and len(involved) > 1:
            self._read(involved[0], involved[1], results[0])
            return
        known = [found for tensor in involved if (found := self._rows.get(tensor)) is not None]
        if known and all(found is known[0] for found in known):
            for result in results:
                self.follow(result, known[0])

    def _read(self, tokens: Tensor, key: Tensor, result: Tensor) -> None:
        """Rows of tokens, samples outermost, by their numbers."""
        whole = key.ndim == 1 and not key.is_floating_point() and key.dtype is not torch.bool
        if not whole or tokens.ndim != 2 or tokens.shape[0] % self.samples or result.shape[:1] != key.shape:
            return
        # row i of (n t, d) tokens is of sample i // t; of rows that were read before, of whom they were then
        before = self._rows.get(tokens)
        self._rows[result] = key // (tokens.shape[0] // self.samples) if before is None else before[key]


_READING = {Tensor.__getitem__, torch.index_select, Tensor.index_select}
"""Functions that read rows by their numbers."""
