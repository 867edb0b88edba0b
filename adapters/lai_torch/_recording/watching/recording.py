"""What one watched forward pass gave: the uses, where their samples lie, and what nothing explains."""

from dataclasses import astuple, dataclass
from typing import Any

from torch import Tensor, nn

from lai_torch._model.sample_axis import SampleAxis
from lai_torch._model.valid import Positions
from lai_torch._recording.watching.routed import Routed
from lai_torch._recording.watching.uses import Use


@dataclass(frozen=True)
class Known:
    """What an earlier recording of the same model has proved, and later ones take over.

    Attributes
    ----------
    signatures
        The uses, in order: their kinds, parameters and axes.
    sample_axes
        Where the samples are in each; None where that batch did not tell.
    skipped
        Names of parameters whose uses have no axis for the samples, or do not explain them.
    trainable
        Names of the parameters that trained.
    proved
        Whether there were samples enough to prove anything.
    behind
        Names of the parameters that the losses reach without passing a layer.
    past
        Of these, the ones that make one more layer, which LAI does not read.
    calls
        The kinds of calls that were made, over all proofs of these uses.
    precision
        That of the coarsest type in which the model computes.
    hooks
        The hooks that there were on gradients. A state has none: one with hooks is proved anew.
    """

    signatures: tuple[tuple[str, str, int], ...]
    sample_axes: tuple[SampleAxis | None, ...]
    skipped: frozenset[str]
    trainable: frozenset[str]
    proved: bool
    behind: frozenset[str] = frozenset()
    past: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    precision: float = 0.0
    hooks: frozenset[int] = frozenset()

    def state(self) -> dict[str, Any]:
        """Return it as plain values."""
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
    def of_state(cls, state: dict[str, Any]) -> "Known":
        """Return what `state` was made of."""
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
class Alike:
    """What recordings of the same calls share, once the first of them has told.

    Attributes
    ----------
    own
        Which of the layers that LAI sees have records that are exact for their parameters.
    """

    own: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class Recording:
    """What was seen of one batch.

    Attributes
    ----------
    samples
        How many samples the batch has.
    uses
        Every use of a parameter that is understood, in order.
    last
        The use that is the last layer; None where Ghost needs none and LAI could read none.
    sample_axes
        Where the samples are in each use's output.
    unexplained
        Parameters with a gradient that no record explains, and why.
    losses
        One loss per sample.
    parameters
        Trainable parameters by name.
    leftovers
        Per parameter, each sample's gradient by ways that no use explains, `(n, *shape)`.
    every_layer
        Whether gradients arrived at every use.
    averaged
        Whether inputs before the last layer are their means over positions.
    known
        What later recordings of the model may take over.
    live
        The losses on their graph, where it was left whole; else None.
    valid
        Which positions count, as masks; none: all.
    routed
        Uses of the matrices of expert layers, on the rows that were routed to them.
    alike
        What is shared by all recordings of such a pass, if its calls were those of a plan.
    """

    samples: int
    uses: list[Use]
    last: Use | None
    sample_axes: dict[Use, SampleAxis]
    unexplained: dict[str, str]
    losses: Tensor
    parameters: dict[str, nn.Parameter]
    leftovers: dict[str, Tensor]
    every_layer: bool
    averaged: bool
    known: Known
    live: Tensor | None = None
    valid: Positions = ()
    routed: tuple[Routed, ...] = ()
    alike: Alike | None = None

    @property
    def final(self) -> Use:
        """The last layer, of a recording for LAI."""
        if self.last is None:
            msg = "model: expected a last layer that LAI can read, found none; use estimator 'ghost'"
            raise ValueError(msg)
        return self.last
