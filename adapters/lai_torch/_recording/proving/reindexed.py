"""The same batch in another order: what moves with its samples, and whether one moves another.

Run on rows `pi(0), ..., pi(n - 1)` of a batch, a model whose samples do not see each other gives loss
`pi(i)` at place i, and every array of its inside with the samples' rows exchanged likewise. So one more
forward pass tells on which axis the samples lie, whatever the shapes, and finds samples that are coupled:
pi leaves one of them out, and whoever saw that one gets another loss.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import Loss, call, check_losses, rows, tensors
from lai_torch._model.preserve import preserved
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.sample_axis import SampleAxis, by_sample, differ, magnitude
from lai_torch._recording.watching.uses import Use


@dataclass(frozen=True)
class Reindexed:
    """A batch's losses and uses in another order; no uses where they are not those of the batch itself."""

    index: Tensor
    losses: Tensor
    uses: list[Use]


def reindex(model: nn.Module, loss: Loss, batch: tuple[Any, Any], recorder: Recorder) -> Reindexed | None:
    """Run the batch that `recorder` will see in another order; None where that is impossible.

    It is for a single sample, for a model that draws random numbers (each place has its own, not each
    sample), and for one that takes no batch in that order.
    """
    samples = recorder.samples
    if samples < 2:
        return None
    index = _drawn(samples)
    with preserved(model, loss), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        streams = Streams(modules_of(model, loss))
        inputs, targets = rows(batch, index, samples)
        other = recorder.fresh(tensors((inputs, targets)))
        try:
            with other:
                losses = check_losses(loss(call(model, inputs), targets), samples)
        except Exception:  # a batch that has to be in an order of its own tells nothing here
            return None
        if streams.moved():
            return None
    return Reindexed(index.to(losses.device), losses.detach(), other.uses)


def compared(
    other: Reindexed, model: nn.Module, loss: Loss, batch: tuple[Any, Any], recorder: Recorder, values: Tensor
) -> Reindexed:
    """Leave out uses that are not those of the batch itself.

    Raises
    ------
    ValueError
        If other losses are no wonder: the same batch does not give the same ones twice.
    """
    precision = precision_of(recorder)
    if not alike(other.losses, values.detach()[other.index], precision):
        with preserved(model, loss), recorder.fresh(tensors(batch)):
            again = check_losses(loss(call(model, batch[0]), batch[1]), recorder.samples)
        check_same(values.detach(), again.detach(), precision)
    same = [use.signature for use in other.uses] == [use.signature for use in recorder.uses]
    return other if same else replace(other, uses=[])


def check_same(values: Tensor, again: Tensor, precision: float) -> None:
    """Raise unless the same batch gave the same losses again."""
    if not alike(values, again, precision):
        msg = (
            "model: expected the same losses when the same batch is run again, got others: it draws from a "
            "random stream of its own, or keeps a state that is no buffer"
        )
        raise ValueError(msg)


def check_behind_zeros(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], recorder: Recorder, other: Reindexed
) -> None:
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
    index = other.index.cpu()
    with preserved(model, loss), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        generator = torch.Generator().manual_seed(0)
        try:
            for gate in gates:
                gate.data.copy_(torch.randn(gate.shape, generator=generator))
            losses = []
            for inputs, targets in (batch, rows(batch, index, recorder.samples)):
                losses.append(check_losses(loss(call(model, inputs), targets), recorder.samples))
        except Exception:  # not every model runs at such values
            return
        finally:
            for gate in gates:
                gate.data.zero_()
    check_uncoupled(
        losses[0],
        replace(other, losses=losses[1]),
        "behind a parameter that is zero so far",
        precision_of(recorder),
    )


def precision_of(recorder: Recorder) -> float:
    """Return the precision of the coarsest type that the model computes in."""
    return max((torch.finfo(dtype).eps for dtype in recorder.dtypes), default=0.0)


def moves_along(
    found: Tensor, other: Tensor, sample_axis: SampleAxis, index: Tensor, precision: float
) -> bool:
    """Whether the other array's rows are those of the first at the samples `index`."""
    if found.shape != other.shape:
        return False
    first, second = (by_sample(side.detach(), sample_axis, len(index)) for side in (found, other))
    return alike(first[index.to(first.device)], second, precision)


def alike(found: Tensor, other: Tensor, precision: float) -> bool:
    """Whether two arrays are the same but for roundings."""
    if found.shape != other.shape:
        return False
    if not (found.is_floating_point() or found.is_complex()):
        return torch.equal(found, other)
    return not differ(other.detach(), found.detach(), _within(found.detach(), precision))


def check_uncoupled(values: Tensor, other: Reindexed, where: str, precision: float) -> None:
    """Raise if a sample's loss is another one among other samples."""
    expected = values.detach()[other.index]
    if not differ(other.losses, expected, _within(values.detach(), precision)):
        return
    moved = int((other.losses - expected).abs().nan_to_num().argmax())
    msg = (
        f"model: the loss of sample {int(other.index[moved])} is {float(expected[moved]):.6g} in this batch "
        f"and {float(other.losses[moved]):.6g} among other samples: samples are coupled ({where}), so that "
        "no sample has a gradient of its own; call model.eval() where a normalisation couples them, or score "
        "what is coupled as one sample (a group, with one loss)"
    )
    raise ValueError(msg)


def _within(values: Tensor, precision: float) -> float:
    """Return what roundings explain: a kernel may add up a row in another order at another place."""
    return (precision**0.5 if precision > 1e-4 else 1024 * precision) * magnitude(values)


def _drawn(samples: int) -> Tensor:
    """Return n indices, none of several at its own place, that leave one of the samples out."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(samples, generator=generator)
    index = torch.empty_like(order)
    index[order] = order[1 + torch.arange(samples) % (samples - 1)]
    return index
