"""One forward pass watched and, where wanted, one backward pass through the taps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import Loss, call, check_losses, count, tensors
from lai_torch._model.preserve import eager, preserved
from lai_torch._recording.layer_rules import EVERYTHING, LAYERS, READ_BY_LAI
from lai_torch._recording.probes import nearest
from lai_torch._recording.recorder import Recorder, Shortcut
from lai_torch._recording.sample_axis import Layout, candidates, chosen, magnitude, powers_of_two, proven
from lai_torch._recording.unread import warn_of_unread
from lai_torch._recording.uses import Use


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
        The use that is the last layer.
    layouts
        Where the samples are in each use's output.
    unexplained
        Parameters with a gradient that no use explains, and why.
    losses
        One loss per sample.
    parameters
        Trainable parameters by name.
    whole
        Of a batch of one sample: gradients that no use explains, which are that sample's own.
    every_layer
        Whether gradients arrived at every use.
    averaged
        Whether inputs before the last layer are their means over positions.
    live
        The losses on their graph, where it was left whole; else None.
    """

    samples: int
    uses: list[Use]
    last: Use
    layouts: dict[Use, Layout]
    unexplained: dict[str, str]
    losses: Tensor
    parameters: dict[str, nn.Parameter]
    whole: dict[str, Tensor]
    every_layer: bool
    averaged: bool
    live: Tensor | None = None


def record(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    every_layer: bool,
    last: str | None = None,
    verify: bool = True,
    shortcut: Shortcut | None = None,
    known: Sequence[Layout] = (),
    ghost_alone: bool = False,
    live: bool = False,
    gates: bool = False,
) -> Recording:
    """Run `model` and `loss` on one batch and record every use of a parameter.

    With `every_layer`, gradients arrive at every use, and a second backward pass with differently
    weighted samples proves that the recorded rows are each sample's own (`verify`). A `shortcut` that
    turns out not to hold is not taken. Where shapes leave open which axis holds the samples, and no
    `known` layouts of an earlier recording tell, that proof decides, for the output alone too. Which
    of several final layers is taken for the last does not matter to `ghost_alone`. With a `shortcut`,
    `live` makes it the forward pass of a training step: nothing is put back, and the graph stays whole.
    With `gates`, the derivatives between one layer and the next are read off as well, of a chain.
    """
    samples = count(inputs, targets)
    with eager() if live else preserved(model):
        recorder = Recorder(
            model,
            samples,
            tensors((inputs, targets)),
            EVERYTHING if every_layer else LAYERS,
            every_layer=every_layer,
            shortcut=shortcut,
            known=known,
            live=live,
            gates=gates,
        )
        with torch.set_grad_enabled(mode=live or shortcut is None), recorder:
            outputs = call(model, inputs)
            values = loss(outputs, targets)
        values = check_losses(values, samples)
        if shortcut is not None and not _holds(shortcut, recorder, values):
            return record(model, loss, inputs, targets, every_layer=every_layer, last=last, verify=verify)
        final = _final(recorder.uses, values, last, any_will_do=ghost_alone)
        trainable = {name: p for name, p in recorder.parameters.items() if p.requires_grad}
        leftovers = _receive(recorder, values, trainable if every_layer else {})
        layouts = _read(recorder)
        if every_layer and (verify or layouts is None):
            layouts = _prove(recorder, values)
    if layouts is None:
        if known:
            msg = (
                "model: expected the same layers whenever the batch is run, found others the second time, "
                "so that the axis of the samples stays open; call model.eval(), or use another batch size"
            )
            raise ValueError(msg)
        proof = record(model, loss, inputs, targets, every_layer=True, last=last)
        layers = [proof.layouts[use] for use in proof.uses if use.kind in READ_BY_LAI]
        return record(model, loss, inputs, targets, every_layer=False, last=last, known=layers)
    _check_untouched(recorder.uses)
    if not every_layer and shortcut is None and not known:
        warn_of_unread(recorder)
    alone = leftovers if samples == 1 else {}
    unexplained = {
        name: recorder.stuck.get(name, "a function that cannot be watched")
        for name in leftovers
        if name not in alone
    }
    return Recording(
        samples,
        recorder.uses,
        final,
        layouts,
        unexplained,
        values.detach(),
        trainable,
        alone,
        every_layer,
        averaged=shortcut is not None and shortcut.mean,
        live=values if live else None,
    )


def _holds(shortcut: Shortcut, recorder: Recorder, values: Tensor) -> bool:
    """Whether the layer at which gradients were switched on is the last one."""
    if len(recorder.uses) <= shortcut.last or not values.requires_grad:
        return False
    return nearest(values) == [recorder.uses[shortcut.last].tap]


def _final(uses: Iterable[Use], values: Tensor, last: str | None, *, any_will_do: bool) -> Use:
    """Return the last layer: the one whose output the losses reach without passing another layer."""
    layers = {use.tap: use for use in uses if use.kind in READ_BY_LAI}
    near = set(nearest(values))
    reached = [use for tap, use in layers.items() if tap in near]
    names = list(dict.fromkeys(use.name for use in reached))
    if last is not None:
        chosen = [use for use in reached if use.name == last]
        if len(chosen) != 1:
            found = f"used {len(chosen)} times there" if chosen else f"not one of {names}"
            msg = f"last: expected the name of one layer whose output the loss uses, got {last!r}, {found}"
            raise ValueError(msg)
        return chosen[0]
    if not reached:
        msg = (
            "model: expected the loss to depend on the output of a layer with a registered weight "
            f"(seen: {[use.name for use in layers.values()]}), it depends on none; the output may be "
            "detached, or computed by a function that cannot be watched"
        )
        raise ValueError(msg)
    if len(reached) > 1 and not any_will_do:
        msg = (
            f"model: expected one final layer, found {len(reached)} whose outputs reach the loss: {names}; "
            f"pass last={names[0]!r} (or another of them)"
        )
        raise ValueError(msg)
    return reached[-1]


def _receive(recorder: Recorder, values: Tensor, trainable: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Send the gradient of the summed losses to the uses; return what reached parameters themselves."""
    copies = [use for use in recorder.uses if use.kind == "direct"]
    wanted = [*recorder.anchors, *(use.activations for use in copies), *trainable.values()]
    found = recorder.differentiate(values.sum(), wanted)
    found = found[len(recorder.anchors) :]
    for use, gradient in zip(copies, found, strict=False):
        use.tap.gradient = gradient
    pairs = zip(trainable, found[len(copies) :], strict=True)
    return {name: gradient for name, gradient in pairs if gradient is not None}


def _read(recorder: Recorder) -> dict[Use, Layout] | None:
    """Read off the shapes, or what is known, where the samples are at each use; None if that is open.

    Raises
    ------
    ValueError
        If a use has no axis for the samples.
    """
    found = {}
    for index, use in enumerate(recorder.uses):
        allowed = _candidates(recorder, use)
        layout = allowed[0] if recorder.samples == 1 else chosen(allowed, recorder.known_layout(index))
        if layout is None:
            return None
        found[use] = layout
    return found


def _candidates(recorder: Recorder, use: Use) -> list[Layout]:
    if "layouts" in use.options:
        return list(use.options["layouts"])
    allowed = candidates(use.leading, recorder.samples, use.batch_axis)
    if not allowed:
        msg = (
            f"layer {use.name!r}: expected an axis for the {recorder.samples} samples in its input, "
            f"got shape {tuple(use.activations.shape)}"
        )
        raise ValueError(msg)
    return allowed


def _prove(recorder: Recorder, values: Tensor) -> dict[Use, Layout]:
    """Prove by a backward pass with other weights where the samples are in each use's output.

    Raises
    ------
    ValueError
        If an output of one sample goes into the losses of others.
    """
    received = [use.tap.gradient for use in recorder.uses if use.tap.gradient is not None]
    largest = max(map(magnitude, received), default=0.0)
    weights = powers_of_two(values, recorder.kinds)
    if torch.float16 in recorder.kinds and largest > 128.0:  # times a weight of 128 it might overflow
        weights = weights / 128.0
    precision = max(torch.finfo(kind).eps for kind in recorder.kinds)
    copies = [use for use in recorder.uses if use.kind == "direct"]
    for use in recorder.uses:
        use.tap.weighted = True
    wanted = [*recorder.anchors, *(use.activations for use in copies)]
    second = recorder.differentiate((values * weights).sum(), wanted)
    for use, gradient in zip(copies, second[len(recorder.anchors) :], strict=True):
        use.tap.second = gradient
    found = {}
    for use in recorder.uses:
        allowed, first, other = _candidates(recorder, use), use.tap.gradient, use.tap.second
        use.tap.second = None
        if first is None or other is None:
            found[use] = allowed[0]
            continue
        sides = use.flat(first), use.flat(other)
        layout = proven(*sides, allowed, weights, precision=precision, largest=largest)
        if layout is None:
            msg = (
                f"layer {use.name!r}: its output {tuple(first.shape)} for one sample goes into the losses "
                "of others (samples are coupled, or lie on no axis of their own), so that no per-sample "
                "gradient can be read off; lai_torch.exact_scores needs none"
            )
            raise ValueError(msg)
        found[use] = layout
    return found


def _check_untouched(uses: Iterable[Use]) -> None:
    """Raise if an input was overwritten after its layer read it.

    Raises
    ------
    ValueError
        If one was.
    """
    for use in uses:
        if use.activations._version != use.version:
            msg = (
                f"layer {use.name!r}: its input was modified in place after the layer read it, so it "
                "can no longer be recorded; replace the in-place operation by its out-of-place form"
            )
            raise ValueError(msg)
