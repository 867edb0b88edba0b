"""Find the sample axis of every use: from gradients, from a permuted batch, or from the cached proof."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lai_torch._model.sample_axis import (
    SampleAxis,
    candidates,
    fitting,
    magnitude,
    one_sample_each,
    own_rows,
    powers_of_two,
    rounding,
)
from lai_torch._recording.proving.independence import CoupledError, check_sized, check_uncoupled
from lai_torch._recording.proving.permuted import PermutedBatch, alike, moves_along, precision_of
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.recording import CachedProof
from lai_torch._recording.watching.uses import Use


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
