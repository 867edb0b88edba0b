"""The result of one recorded forward pass: uses of parameters, their sample axes, and what has no record."""

from dataclasses import astuple, dataclass
from typing import Any

from torch import Tensor, nn

from lai_torch._model.sample_axis import SampleAxis
from lai_torch._model.valid import Positions
from lai_torch._recording.watching.routed import Routed
from lai_torch._recording.watching.uses import Use


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
