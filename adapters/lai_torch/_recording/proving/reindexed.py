"""Find the sample axis of each tensor by permuting the batch.

Run on rows `pi(0), ..., pi(n - 1)` of a batch, a model whose samples do not see each other gives loss
`pi(i)` at place i, and every array of its inside with the samples' rows exchanged likewise. So one more
forward pass tells on which axis the samples lie, whatever the shapes, and finds samples that are coupled:
pi takes one half of the samples, and whoever saw one of the others gets another loss. A second pass takes
the other half, so that no sample is without influence in both.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lai_torch._model.batch import check_losses, tensors
from lai_torch._model.preserve import preserved
from lai_torch._model.sample_axis import SampleAxis, differ
from lai_torch._model.snapshot.streams import Streams
from lai_torch._model.untouched import losses_of
from lai_torch._model.walk import modules_of
from lai_torch._recording.proving.company import (
    Asked,
    Company,
    check_apart,
    companies,
    drawn_alike,
    losses_differ,
    roundings,
    run,
    without_the_last,
)
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.uses import Use


@dataclass(frozen=True)
class Reindexed:
    """A batch's samples in other company, and what one half of them is used on at all places.

    There are no uses where they are not those of the batch itself, or cannot move. `shorter` are the losses
    of the batch without its last sample, where these tell something. `precision` is that of the model,
    `streams` are the random ones before it ran, `asked` is what was run.
    """

    uses: list[Use]
    companies: list[Company]
    shorter: Tensor | None
    precision: float
    streams: Streams
    asked: Asked

    @property
    def index(self) -> Tensor:
        """Return which samples the uses hold."""
        return self.companies[0].index


def reindex(asked: Asked, recorder: Recorder) -> Reindexed | None:
    """Run the batch that `recorder` will see in other company; None where that is impossible.

    It is for a single sample, and for a batch that runs in no order but its own.
    """
    found = companies(asked, lambda batch: recorder.fresh(tensors(batch)))
    if not found:
        return None
    watched = found[0].watched
    uses, precision = ([], 0.0) if watched is None else (watched.uses, precision_of(watched))
    return Reindexed(uses, found, without_the_last(asked), precision, Streams(modules_of(*asked[:2])), asked)


def compared(other: Reindexed, asked: Asked, recorder: Recorder, values: Tensor) -> Reindexed:
    """Leave out uses that are not those of the batch itself, and company in which other numbers were drawn.

    Raises
    ------
    ValueError
        If other losses are no wonder: the same batch does not give the same ones twice.
    """
    precision, found = precision_of(recorder), other.companies
    if not all(alike(one.losses, values.detach()[one.index], precision) for one in found):
        model, loss, batch = asked
        other.streams.restore()  # the batch's own pass has drawn
        with preserved(model, loss), recorder.fresh(tensors(batch)):
            again = check_losses(losses_of(model, loss, batch), recorder.samples)
        check_same(asked, values.detach(), again.detach(), precision)
        found = found if drawn_alike(asked, found) else []
    same = [use.signature for use in other.uses] == [use.signature for use in recorder.uses]
    return replace(other, companies=found, uses=other.uses if same else [])


def check_same(asked: Asked, values: Tensor, again: Tensor, precision: float) -> None:
    """Raise unless the same batch gave the same losses again."""
    if losses_differ(asked, again, values, torch.arange(len(values), device=values.device), precision):
        msg = (
            "model: expected the same losses when the same batch is run again, got others: it draws from a "
            "random stream of its own, or keeps a state that is no buffer"
        )
        raise ValueError(msg)


def check_behind_zeros(asked: Asked, recorder: Recorder, other: Reindexed) -> None:
    """Raise if samples would be coupled as soon as a parameter is no longer zero all over.

    A gate that starts at zero hides what it multiplies, and opens after the first step: so both orders
    run once more with such parameters at other values. Offsets of layers hide nothing.

    Raises
    ------
    ValueError
        If they would.
    """
    offsets = {name for use in other.uses if use.bias is not None for name in use.bias.names}
    gates = [
        parameter
        for name, parameter in recorder.parameters.items()
        if name in recorder.trainable and name not in offsets and parameter.is_floating_point()
    ]
    gates = [gate for gate in gates if gate.numel() and not bool(gate.any())]
    if not gates:
        return
    generator = torch.Generator().manual_seed(0)
    try:
        for gate in gates:
            gate.data.copy_(torch.randn(gate.shape, generator=generator, device="cpu"))
        try:
            values = run(asked)[0]
        except Exception:  # not every model runs at such values
            return
        check_apart(asked, values, "behind a parameter that is zero so far", other.precision)
    finally:
        for gate in gates:
            gate.data.zero_()


def precision_of(recorder: Recorder) -> float:
    """Return the precision of the coarsest type that the model computes in."""
    return max((torch.finfo(dtype).eps for dtype in recorder.dtypes), default=0.0)


def moves_along(
    found: Tensor, other: Tensor, sample_axis: SampleAxis, index: Tensor, precision: float
) -> bool:
    """Whether the other array's rows are those of the first at the samples `index`."""
    if found.shape != other.shape:
        return False
    first, second = (sample_axis.in_front(side.detach()) for side in (found, other))
    return alike(first[index.to(first.device)], second, precision)


def alike(found: Tensor, other: Tensor, precision: float) -> bool:
    """Whether two arrays are the same but for roundings."""
    if found.shape != other.shape:
        return False
    if not (found.is_floating_point() or found.is_complex()):
        return torch.equal(found, other)
    return not differ(other.detach(), found.detach(), roundings(found, precision))
