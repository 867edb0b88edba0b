"""The same batch in another order: what moves with its samples, and whether one moves another.

Run on rows `pi(0), ..., pi(n - 1)` of a batch, a model whose samples do not see each other gives loss
`pi(i)` at place i, and every array of its inside with the samples' rows exchanged likewise. So one more
forward pass tells on which axis the samples lie, whatever the shapes, and finds samples that are coupled:
pi takes one half of the samples, and whoever saw one of the others gets another loss. A second pass takes
the other half, so that no sample is without influence in both.
"""

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import Loss, call, check_losses, count, rows, tensors, unaligned
from lai_torch._model.preserve import preserved
from lai_torch._model.sample_axis import SampleAxis, by_sample, differ, magnitude
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.uses import Use

Halves = Sequence[tuple[Tensor, Tensor]]
"""Which samples stood at a batch's places, and their losses there."""
_UNWATCHED = nullcontext()


class CoupledError(ValueError):
    """A sample's loss or gradient is another one among other samples."""


@dataclass(frozen=True)
class Reindexed:
    """One half of a batch's samples at all places, and what they are used on; the losses of both halves.

    There are no uses where they are not those of the batch itself. `precision` is that of the model.
    """

    index: Tensor
    uses: list[Use]
    halves: Halves
    precision: float


def reindex(model: nn.Module, loss: Loss, batch: tuple[Any, Any], recorder: Recorder) -> Reindexed | None:
    """Run the batch that `recorder` will see in another order; None where that is impossible.

    It is for a single sample, for a model that draws random numbers (each place has its own, not each
    sample), and for one that takes no batch in that order.
    """
    samples = recorder.samples
    if samples < 2:
        return None
    indices = _drawn(samples)
    first, second = (rows(batch, index, samples) for index in indices)
    other = recorder.fresh(tensors(first))
    losses = [
        _reordered(model, loss, batch, first, other, recorder.fresh(tensors(batch))),
        _reordered(model, loss, batch, second),
    ]
    halves = [
        (index.to(found.device), found)
        for index, found in zip(indices, losses, strict=True)
        if found is not None
    ]
    if len(halves) < len(losses):
        return None
    return Reindexed(halves[0][0], other.uses, halves, precision_of(other))


def _reordered(
    model: nn.Module,
    loss: Loss,
    batch: tuple[Any, Any],
    other: tuple[Any, Any],
    watch: AbstractContextManager[Any] = _UNWATCHED,
    own_watch: AbstractContextManager[Any] = _UNWATCHED,
) -> Tensor | None:
    """Return the losses of the batch in another order; None where it cannot be run, or draws at random.

    Who watches the batch's own pass may refuse it too.

    Raises
    ------
    CoupledError
        If it cannot be run and holds samples in another way than by rows: what stayed in its place (where
        each sample's words start, say) is no longer that of the samples.
    """
    try:
        return _run(model, loss, other, watch)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a batch that has to be in an order of its own tells nothing here
        if not unaligned(batch, count(*batch)):
            return None
        _run(model, loss, batch, own_watch)  # raises what is about the batch itself
        msg = f"model: it does not run on the batch's samples in another order ({error})"
        raise CoupledError(msg) from error


def _run(
    model: nn.Module,
    loss: Loss,
    batch: tuple[Any, Any],
    watch: AbstractContextManager[Any] = _UNWATCHED,
) -> Tensor | None:
    """Return the losses of a batch; None where random numbers are drawn."""
    with preserved(model, loss), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        streams = Streams(modules_of(model, loss))
        with watch:
            losses = check_losses(loss(call(model, batch[0]), batch[1]), count(*batch)).detach()
        return None if streams.moved() else losses


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
    if not all(alike(losses, values.detach()[index], precision) for index, losses in other.halves):
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
    generator = torch.Generator().manual_seed(0)
    try:
        for gate in gates:
            gate.data.copy_(torch.randn(gate.shape, generator=generator))
        try:
            values = _run(model, loss, batch)
        except Exception:  # not every model runs at such values
            values = None
        if values is not None:
            where = "behind a parameter that is zero so far"
            _check_halves(model, loss, batch, values, where, other.precision)
    finally:
        for gate in gates:
            gate.data.zero_()


def check_apart(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], values: Tensor, precision: float
) -> None:
    """Raise if the samples of a batch with losses `values` are coupled; of a random model nothing is known.

    That a sample has its loss in other company too is all that is looked at, by two forward passes of a
    model that computes in `precision`.

    Raises
    ------
    ValueError
        If they are coupled.
    """
    _check_halves(model, loss, batch, values, "by an operation that mixes them at some values", precision)


def _check_halves(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], values: Tensor, where: str, precision: float
) -> None:
    """Raise if a sample's loss is another one where one half of the samples fills the others' places."""
    if len(values) < 2:
        return
    for index in _drawn(len(values)):
        losses = _reordered(model, loss, batch, rows(batch, index, len(values)))
        if losses is not None:
            check_uncoupled(values, [(index.to(losses.device), losses)], where, precision)


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


def check_uncoupled(values: Tensor, halves: Halves, where: str, precision: float) -> None:
    """Raise if a sample's loss is another one among other samples."""
    within = _within(values.detach(), precision)
    for index, losses in halves:
        expected = values.detach()[index]
        if differ(losses, expected, within):
            break
    else:
        return
    moved = int((losses - expected).abs().nan_to_num().argmax())
    msg = (
        f"model: the loss of sample {int(index[moved])} is {float(expected[moved]):.6g} in this batch "
        f"and {float(losses[moved]):.6g} among other samples: samples are coupled ({where}), so that "
        "no sample has a gradient of its own; call model.eval() where a normalisation couples them, or score "
        "what is coupled as one sample (a group, with one loss)"
    )
    raise CoupledError(msg)


def _within(values: Tensor, precision: float) -> float:
    """Return what roundings explain: a kernel may add up a row in another order at another place."""
    return (precision**0.5 if precision > 1e-4 else 1024 * precision) * magnitude(values)


def _drawn(samples: int) -> tuple[Tensor, Tensor]:
    """Return n indices of each half of the samples, none of several at its own place."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(0))
    first, second = order.tensor_split(2)
    return _spread(first, second), _spread(second, first)


def _spread(half: Tensor, others: Tensor) -> Tensor:
    """Return an index that holds one half of the samples, each at another's place, the first most often."""
    index = half[:1].expand(len(half) + len(others)).clone()
    index[half] = half.roll(1)
    return index
