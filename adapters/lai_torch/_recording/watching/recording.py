"""The result of one recorded forward pass: uses of parameters, their sample axes, and routed rows."""

from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from lai_torch._model.sample_axis import SampleAxis
from lai_torch._model.valid import Positions
from lai_torch._recording.watching.uses import Probe, Source, Use


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


@dataclass(frozen=True)
class CachedProof:
    """What an earlier recording of the same model has proved; later recordings reuse it."""

    signatures: tuple[tuple[str, str, int], ...]  # kind, parameter and number of axes of each use, in order
    sample_axes: tuple[SampleAxis | None, ...]  # sample axis of each use; None where that batch left it open
    # names of parameters that have no record: a use without a sample axis, or a wrong gradient
    skipped: frozenset[str]
    trainable: frozenset[str]  # names of the trainable parameters
    proved: bool  # whether there was more than one sample
    # names of the parameters that the losses reach without passing a layer
    behind: frozenset[str] = frozenset()
    past: frozenset[str] = frozenset()  # of these, the ones in a matrix product that LAI does not read
    calls: frozenset[str] = frozenset()  # signatures of all calls that were proved with these uses
    precision: float = 0.0  # machine epsilon of the coarsest type in which the model computes
    # hooks on gradients. They are not part of a state: a model with hooks is proved again.
    hooks: frozenset[int] = frozenset()

    def state(self) -> dict[str, Any]:
        """Return the proof as plain values."""
        return {
            "signatures": [list(signature) for signature in self.signatures],
            "sample_axes": [
                None if sample_axis is None else astuple(sample_axis) for sample_axis in self.sample_axes
            ],
            "skipped": sorted(self.skipped),
            "trainable": sorted(self.trainable),
            "proved": self.proved,
            "behind": sorted(self.behind),
            "past": sorted(self.past),
            "calls": sorted(self.calls),
            "precision": self.precision,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> "CachedProof":
        """Return the proof of a state."""
        return cls(
            tuple((kind, name, axes) for kind, name, axes in state["signatures"]),
            tuple(
                None if sample_axis is None else SampleAxis(*sample_axis)
                for sample_axis in state["sample_axes"]
            ),
            frozenset(state["skipped"]),
            frozenset(state["trainable"]),
            state["proved"],
            frozenset(state["behind"]),
            frozenset(state["past"]),
            frozenset(state["calls"]),
            state["precision"],
        )


@dataclass
class SharedLayout:
    """What recordings of the same calls share, known after the first."""

    # which layers of LAI have a record that is the exact gradient of their parameters
    own: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Recording:
    """The recording of one batch."""

    samples: int  # number of samples
    uses: list[Use]  # every recorded use of a parameter, in order
    last: Use | None  # the use that is the last layer; None where Ghost needs none and LAI could read none
    sample_axes: dict[Use, SampleAxis]  # sample axis of each use's output
    unexplained: dict[str, str]  # parameters with a gradient and without a record, with the reason
    losses: Tensor  # one loss per sample
    parameters: dict[str, nn.Parameter]  # trainable parameters by name
    per_sample: dict[str, Tensor]  # per-sample gradients of parameters without a record, `(n, *shape)`
    every_layer: bool  # whether gradients arrived at every use
    averaged: bool  # whether inputs before the last layer are their means over positions
    known: CachedProof  # what later recordings of the model may reuse
    live: Tensor | None = None  # the losses on their graph, where it was left whole; else None
    valid: Positions = ()  # which positions count, as masks; none: all
    # uses of the matrices of expert layers, on the rows that were routed to them
    routed: tuple[Routed, ...] = ()
    alike: SharedLayout | None = None  # shared by all recordings that follow the same plan

    @property
    def final(self) -> Use:
        """The last layer, of a recording for LAI."""
        if self.last is None:
            msg = "model: expected a last layer that LAI can read, found none; use estimator 'ghost'"
            raise ValueError(msg)
        return self.last
