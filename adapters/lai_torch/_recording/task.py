"""What is to be recorded of what, and how what was watched becomes a recording."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lai_torch._model.batch import Loss, call, count, tensors
from lai_torch._model.function import losses_of
from lai_torch._model.sample_axis import SampleAxis
from lai_torch._model.valid import Positions
from lai_torch._model.walk import held
from lai_torch._recording.per_sample import foreign, one_by_one
from lai_torch._recording.proving.sample_axes import AxisUnknown, receive
from lai_torch._recording.rules.elementwise import operation
from lai_torch._recording.rules.layers import EVERYTHING, LAYERS
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.recording import CachedProof, Recording, Routed
from lai_torch._recording.watching.uses import Use


@dataclass(frozen=True)
class Task:
    """A model, a loss and a batch, and what is to be recorded of them."""

    model: nn.Module
    loss: Loss
    batch: tuple[Any, Any]
    every_layer: bool
    last: str | None
    ghost_alone: bool
    gates: bool
    trainable: frozenset[str]
    valid: Positions
    hooks: frozenset[int]

    @property
    def samples(self) -> int:
        return count(*self.batch)

    def trained(self, recorder: Recorder) -> dict[str, nn.Parameter]:
        """Return the parameters that train, by name."""
        return {name: p for name, p in recorder.parameters.items() if name in self.trainable}

    def recorder(self, **options: Any) -> Recorder:
        """Return a recorder for the task."""
        return Recorder(
            held(self.model, self.loss),
            self.samples,
            tensors(self.batch),
            EVERYTHING if self.every_layer else LAYERS,
            every_layer=self.every_layer,
            other=operation if self.every_layer else None,
            gates=self.gates,
            trainable=self.trainable,
            valid=self.valid,
            **options,
        )

    def losses(self, *, trains: bool = False) -> Tensor:
        """Run model and loss, which may write to the batch where that is what `trains`."""
        if trains:
            return self.loss(call(self.model, self.batch[0]), self.batch[1])
        values: Tensor = losses_of(self.model, self.loss, self.batch)
        return values


def received(task: Task, recorder: Recorder, values: Tensor) -> list[str]:
    """Send the losses' gradient to the uses; return the parameters that it reached themselves."""
    wanted = task.trained(recorder) if task.every_layer else {}
    found = receive(recorder, values.sum(), "gradient", also=list(wanted.values()))
    # what is left to backward passes has a record in every batch, also where no sample reaches it
    return [
        name
        for name, gradient in zip(wanted, found, strict=True)
        if gradient is not None or name in recorder.skipped
    ]


def recorded(
    task: Task,
    recorder: Recorder,
    values: Tensor,
    final: Use | None,
    sample_axes: dict[Use, SampleAxis],
    connected: list[str],
    known: CachedProof,
    *,
    averaged: bool = False,
    live: bool = False,
) -> Recording:
    """Return what was watched, with what no use explains, as a recording."""
    routed = recorder.experts.uses
    shared = {use.source.name for use in routed} & {*connected, *_names(recorder)}
    if shared:  # of a parameter that is used in other ways, too, no record would do
        raise AxisUnknown(frozenset(shared))
    per_sample, unexplained = one_by_one(recorder, values, connected)
    if task.every_layer:
        unexplained |= foreign(recorder, values)
    return Recording(
        recorder.samples,
        recorder.uses,
        final,
        sample_axes,
        unexplained,
        values.detach(),
        task.trained(recorder),
        per_sample,
        task.every_layer,
        averaged,
        known,
        live=values if live else None,
        valid=task.valid,
        routed=tuple(routed),
    )


def _names(recorder: Recorder) -> set[str]:
    """Return the parameters of all uses whose samples lie on an axis."""
    sources = (source for use in recorder.uses for source in (use.weight, use.bias))
    return {name for source in sources if source is not None for name in source.names}


def check_untouched(recorder: Recorder) -> None:
    """Raise if an input was overwritten after its layer read it."""
    uses: list[Use | Routed] = [*recorder.uses, *recorder.experts.uses]
    for use in uses:
        if use.activations._version != use.version:
            msg = (
                f"layer {use.name!r}: its input was modified in place after the layer read it, so it "
                "can no longer be recorded; replace the in-place operation by its out-of-place form"
            )
            raise ValueError(msg)
