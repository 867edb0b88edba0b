"""Find the sample axis of every use: from gradients, from a permuted batch, or from the cached proof.

On the rows `pi(0), ..., pi(n - 1)` of a batch, a model with independent samples returns loss `pi(i)` in
row i, and each of its activations with rows permuted alike. So one more forward pass finds the sample axis,
whatever the shapes. It also detects coupled samples: pi takes one half of the samples, so that a sample that
depends on one of the other half gets another loss. A second pass takes the other half, so that each sample
is left out once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lai_torch._model.batch import check_losses, tensors
from lai_torch._model.function import losses_of
from lai_torch._model.precision import zeros_filled
from lai_torch._model.preserve import preserved
from lai_torch._model.sample_axis import (
    SampleAxis,
    candidates,
    differ,
    fitting,
    magnitude,
    one_sample_each,
    own_rows,
    powers_of_two,
    rounding,
)
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of
from lai_torch._recording.proving.independence import (
    CoupledError,
    Exchanged,
    Problem,
    check_apart,
    check_sized,
    check_uncoupled,
    drawn_alike,
    exchanges,
    losses_differ,
    roundings,
    run,
    without_the_last,
)
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.recording import CachedProof
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


class AxisUnknown(Exception):  # noqa: N818, it asks for another recording and is no error of the user's
    """Some uses have no sample axis; `names` are their parameters."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(*sorted(names))
        self.names = names


class SampleAxes:
    """The candidate sample axes of each use of a recording; each test removes some."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        if ragged := [use for use in recorder.uses if use.activations.is_nested]:
            raise AxisUnknown(frozenset(name for use in ragged for name in use.weight.names))
        few = 1 if recorder.samples == 1 else None  # whatever the sample axis, all is that sample's
        self.allowed = {use: _shaped(use, recorder.samples)[:few] for use in recorder.uses}
        self.told: set[Use] = set()
        self.precision = precision_of(recorder)

    def narrow_by_gradients(self, values: Tensor, *, compared: bool) -> None:
        """Keep the axes under which each sample's output reaches its own loss alone.

        Where the losses are `compared` to those of other batches, an operation that has no such sample axis
        may stay without: its result need hold no samples at all, as one expert's matrix does.
        """
        uses = [use for use in self.recorder.uses if use.probe.gradient is not None]
        largest = max(
            (magnitude(use.probe.gradient) for use in uses if use.probe.gradient is not None), default=0.0
        )
        # The gradient of sum_j c_j loss_j: what goes into loss i alone receives c_i times its gradient of
        # before, to the bit, since c_i is a power of two.
        weights = powers_of_two(values, self.recorder.dtypes)
        if (
            torch.float16 in self.recorder.dtypes and largest > 128.0
        ):  # times a weight of 128 it might overflow
            weights = weights / 128.0
        receive(self.recorder, (values * weights).sum(), "second")
        for use in uses:
            first, second = use.probe.gradient, use.probe.second
            use.probe.second = None
            if first is None or second is None:
                continue
            within = rounding(first, precision=self.precision, largest=largest)
            sides = use.flat(first), use.flat(second)
            # under sample axis a, entry i of the second is c_i times entry i of the first
            kept = [one for one in self.allowed[use] if own_rows(*sides, one, weights, within)]
            left = compared and use.kind == "operation"
            if not kept and not left and not one_sample_each(first, second, weights, within):
                msg = (
                    f"layer {use.name!r}: its output {tuple(first.shape)} for one sample goes into the "
                    "losses of others (samples are coupled, or lie on no axis of their own), so that no "
                    "per-sample gradient can be read off; call model.eval() where a normalisation couples "
                    "them, or score what is coupled as one sample (the sum of its rows' losses)"
                )
                raise CoupledError(msg)
            self._keep(use, kept, telling=magnitude(first) > within)

    def narrow_by_moving(self, other: PermutedBatch) -> None:
        """Keep the sample axes under which a layer's input moves with the samples."""
        for use, moved, index in self._moved(other):
            if use.kind not in {"direct", "operation"}:
                sides = _rows(use), _rows(moved)
                # the other batch holds the same samples in another order, and so does an input's sample axis
                kept = [one for one in self.allowed[use] if moves_along(*sides, one, index, self.precision)]
                self._keep(use, kept, telling=not alike(*sides, self.precision))

    def check_uncoupled(self, values: Tensor, other: PermutedBatch) -> None:
        """Raise, naming where it shows first, if a sample's loss is another one among other samples."""
        moved = self._moved(other)
        where = next((use.name for use, one, index in moved if self._coupled(use, one, index)), None)
        behind = "behind the last layer, in the loss or on its way there" if other.moved else "somewhere"
        place = behind if where is None else f"before {where!r}"
        for exchanged in other.exchanges:
            check_uncoupled(other.problem, values, exchanged, place, self.precision)
        if other.shorter is not None:
            check_sized(other.problem, values, other.shorter, self.precision)

    def _moved(self, other: PermutedBatch) -> list[tuple[Use, Use, Tensor]]:
        """Return each use, the same use of a permuted batch, and the samples in that one's rows."""
        own = self.recorder.uses
        return [(*pair, index) for index, uses in other.moved for pair in zip(own, uses, strict=False)]

    def _coupled(self, use: Use, moved: Use, index: Tensor) -> bool:
        if use.kind in {"direct", "operation"}:
            return False
        sides = _rows(use), _rows(moved)
        return not any(moves_along(*sides, one, index, self.precision) for one in self.allowed[use])

    def _keep(self, use: Use, kept: list[SampleAxis], *, telling: bool) -> None:
        self.allowed[use] = kept
        if telling:
            self.told.add(use)

    def chosen(self) -> dict[Use, SampleAxis]:
        """Return the likeliest sample axis of each use."""
        without = [use for use, allowed in self.allowed.items() if not allowed]
        if without:
            names = {name for use in without for name in use.weight.names}
            raise AxisUnknown(frozenset(names))
        return {use: allowed[0] for use, allowed in self.allowed.items()}

    def certain(self) -> tuple[SampleAxis | None, ...]:
        """Return the sample axes that later batches may take over; None where this one left them open."""
        pairs = ((use, self.allowed[use]) for use in self.recorder.uses)
        return tuple(allowed[0] if len(allowed) == 1 and use in self.told else None for use, allowed in pairs)


def cached_axes(recorder: Recorder, known: CachedProof) -> dict[Use, SampleAxis] | None:
    """Return the sample axes by the proof of another batch; None where it does not determine them."""
    if tuple(use.signature for use in recorder.uses) != known.signatures:
        return None
    found = {}
    for use, sample_axis in zip(recorder.uses, known.sample_axes, strict=True):
        if use.place is not None:
            found[use] = use.place
            continue
        allowed = _shaped(use, recorder.samples)
        if use.averaged_from is not None:
            chosen: SampleAxis | None = SampleAxis(0)
        elif sample_axis is not None:
            chosen = fitting(sample_axis, allowed)
        else:
            # to look at a gradient is to wait for it
            plain = len(allowed) == 1 or (recorder.every_layer and bool(allowed) and _is_silent(use))
            chosen = allowed[0] if plain else None
        if chosen is None:
            return None
        found[use] = chosen
    return found


def _is_silent(use: Use) -> bool:
    """Whether no gradient, or one of zeros, arrives at a use."""
    return use.probe.gradient is None or not magnitude(use.probe.gradient)


def receive(
    recorder: Recorder, total: Tensor, into: str, *, also: Sequence[Tensor] = ()
) -> list[Tensor | None]:
    """Send the gradient of `total` to the uses, kept as their gradient `into`; return that of `also`."""
    copies = [use for use in recorder.uses if use.kind == "direct"]
    wanted = [*recorder.probe_leaves, *(use.activations for use in copies), *also]
    found = recorder.differentiate(total, wanted, into)[len(recorder.probe_leaves) :] if wanted else ()
    for use, gradient in zip(copies, found, strict=False):
        setattr(use.probe, into, gradient)
    return list(found[len(copies) :])


def _shaped(use: Use, samples: int) -> list[SampleAxis]:
    """Return the sample axes that the shapes allow."""
    if "sample_axes" in use.options:
        return list(use.options["sample_axes"])
    return candidates(use.leading, samples, use.batch_axis)


def _rows(use: Use) -> Tensor:
    """Return what a layer is used on, with one axis of features behind the `leading` ones."""
    if use.kind == "convolution":
        return use.activations.flatten(1)
    return use.activations.unsqueeze(-1) if use.kind == "embedding" else use.activations
