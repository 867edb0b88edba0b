"""Find the sample axis of each tensor by permuting the batch.

On the rows `pi(0), ..., pi(n - 1)` of a batch, a model with independent samples returns loss `pi(i)` in
row i, and each of its activations with rows permuted alike. So one more forward pass finds the sample axis,
whatever the shapes. It also detects coupled samples: pi takes one half of the samples, so that a sample that
depends on one of the other half gets another loss. A second pass takes the other half, so that each sample
is left out once.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lai_torch._model.batch import check_losses, tensors
from lai_torch._model.precision import zeros_filled
from lai_torch._model.preserve import preserved
from lai_torch._model.sample_axis import SampleAxis, differ
from lai_torch._model.snapshot.streams import Streams
from lai_torch._model.untouched import losses_of
from lai_torch._model.walk import modules_of
from lai_torch._recording.proving.independence import (
    Exchanged,
    Problem,
    check_apart,
    drawn_alike,
    exchanges,
    losses_differ,
    roundings,
    run,
    without_the_last,
)
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.uses import Use


@dataclass(frozen=True)
class PermutedBatch:
    """The losses and recorded uses of a permuted batch.

    `moved` has the samples in the rows of each half's run, and its uses: both halves, for rows that an expert
    takes of one half alone may look like one a sample. It is empty where uses are not those of the batch
    itself (then the model is `rerouted`: values decide which layers a sample takes), or where samples have to
    keep their rows.
    `shorter` are the losses of the batch without its last sample, or None. `precision` is the model's,
    `streams` the state of the random streams before the run, `problem` what was run.
    """

    moved: list[tuple[Tensor, list[Use]]]
    exchanges: list[Exchanged]
    shorter: Tensor | None
    precision: float
    streams: Streams
    problem: Problem
    rerouted: bool = False


def run_permuted(problem: Problem, recorder: Recorder) -> PermutedBatch | None:
    """Run the batch of `recorder` with exchanged samples; None where that is impossible.

    It is impossible for a single sample, and for a batch that cannot be permuted.
    """
    found = exchanges(problem, lambda batch: recorder.fresh(tensors(batch)))
    if not found:
        return None
    moved = [(one.index, one.watched.uses) for one in found if one.watched is not None]
    precision = precision_of(found[0].watched) if moved else 0.0
    return PermutedBatch(
        moved, found, without_the_last(problem), precision, Streams(modules_of(*problem[:2])), problem
    )


def compared(other: PermutedBatch, problem: Problem, recorder: Recorder, values: Tensor) -> PermutedBatch:
    """Drop uses that are not those of the batch itself, and runs that drew other random numbers.

    Raises
    ------
    ValueError
        If the model is not deterministic: the same batch gives other losses when it is run again.
    """
    precision, found = precision_of(recorder), other.exchanges
    if not all(alike(one.losses, values.detach()[one.index], precision) for one in found):
        model, loss, batch = problem
        other.streams.restore()  # the batch's own pass has drawn
        with preserved(model, loss), recorder.fresh(tensors(batch)):
            again = check_losses(losses_of(model, loss, batch), recorder.samples)
        check_same(problem, values.detach(), again.detach(), precision)
        found = found if drawn_alike(problem, found) else []
    own = [use.signature for use in recorder.uses]
    same = all([use.signature for use in uses] == own for _, uses in other.moved)
    return replace(other, exchanges=found, moved=other.moved if same else [], rerouted=not same)


def check_same(problem: Problem, values: Tensor, again: Tensor, precision: float) -> None:
    """Raise unless the second run of a batch gave the same losses."""
    if losses_differ(problem, again, values, torch.arange(len(values), device=values.device), precision):
        msg = (
            "model: expected the same losses when the same batch is run again, got others: it draws from a "
            "random stream of its own, or keeps a state that is no buffer"
        )
        raise ValueError(msg)


def check_behind_zeros(problem: Problem, recorder: Recorder, other: PermutedBatch) -> None:
    """Raise if samples would be coupled as soon as a parameter that is zero everywhere changes.

    Both orders run once more with random values in such parameters (see `zeros_filled`). Biases of layers are
    left out: they hide nothing.
    """
    used = [use for _, uses in other.moved for use in uses if use.bias is not None]
    offsets = {name for use in used if use.bias is not None for name in use.bias.names}
    gates = (
        parameter
        for name, parameter in recorder.parameters.items()
        if name in recorder.trainable and name not in offsets
    )
    with zeros_filled(gates) as found:
        if not found:
            return
        try:
            values = run(problem)[0]
        except Exception:  # not every model runs at such values
            return
        check_apart(problem, values, "behind a parameter that is zero so far", other.precision)


def precision_of(recorder: Recorder) -> float:
    """Return the machine epsilon of the coarsest type that the model computes in."""
    return max((torch.finfo(dtype).eps for dtype in recorder.dtypes), default=0.0)


def moves_along(
    found: Tensor, other: Tensor, sample_axis: SampleAxis, index: Tensor, precision: float
) -> bool:
    """Whether the rows of `other` are the rows `index` of `found`, along a sample axis."""
    if found.shape != other.shape:
        return False
    first, second = (sample_axis.in_front(side.detach()) for side in (found, other))
    return alike(first[index.to(first.device)], second, precision)


def alike(found: Tensor, other: Tensor, precision: float) -> bool:
    """Whether two arrays are equal within rounding."""
    if found.shape != other.shape:
        return False
    if not (found.is_floating_point() or found.is_complex()):
        return torch.equal(found, other)
    return not differ(other.detach(), found.detach(), roundings(found, precision))
