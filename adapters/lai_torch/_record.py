"""One forward pass watched and, where wanted, one backward pass through the taps."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._batch import Loss, call, check_losses, count, tensors
from lai_torch._layout import Layout, candidates, distinct_weights, proven
from lai_torch._preserve import preserved
from lai_torch._recorder import Recorder, Use
from lai_torch._rules import EVERYTHING, LAYERS, READ_BY_LAI
from lai_torch._tap import nearest


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
    """

    samples: int
    uses: list[Use]
    last: Use
    layouts: dict[Use, Layout]
    unexplained: dict[str, str]
    losses: Tensor
    parameters: dict[str, nn.Parameter]


def record(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    every_layer: bool,
    last: str | None = None,
    verify: bool = True,
) -> Recording:
    """Run `model` and `loss` on one batch and record every use of a parameter.

    With `every_layer`, gradients arrive at every use, and a second backward pass with differently
    weighted samples proves that the recorded rows are each sample's own (`verify`).
    """
    samples = count(inputs, targets)
    proved = every_layer and verify
    with preserved(model):
        recorder = Recorder(
            model,
            samples,
            tensors((inputs, targets)),
            EVERYTHING if every_layer else LAYERS,
            every_layer=every_layer,
        )
        with recorder:
            outputs = call(model, inputs)
            values = loss(outputs, targets)
        values = check_losses(values, samples)
        final = _final(recorder.uses, values, last)
        trainable = {name: p for name, p in recorder.parameters.items() if p.requires_grad}
        leftovers = _receive(recorder, values, trainable if every_layer else {}, retain=proved)
        layouts = _layouts(recorder, values, final, proved=proved)
    _check_untouched(recorder.uses)
    unexplained = {name: recorder.stuck.get(name, "a function that cannot be watched") for name in leftovers}
    return Recording(samples, recorder.uses, final, layouts, unexplained, values.detach(), trainable)


def _final(uses: Iterable[Use], values: Tensor, last: str | None) -> Use:
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
    if len(reached) > 1:
        msg = (
            f"model: expected one final layer, found {len(reached)} whose outputs reach the loss: {names}; "
            f"pass last={names[0]!r} (or another of them)"
        )
        raise ValueError(msg)
    return reached[0]


def _receive(
    recorder: Recorder, values: Tensor, trainable: dict[str, nn.Parameter], *, retain: bool
) -> list[str]:
    """Send the gradient of the summed losses to the taps; return the parameters it reached itself."""
    wanted = [*recorder.anchors, *trainable.values()]
    found = torch.autograd.grad(values.sum(), wanted, retain_graph=retain, allow_unused=True)
    direct = found[len(recorder.anchors) :]
    return [name for name, gradient in zip(trainable, direct, strict=True) if gradient is not None]


def _layouts(recorder: Recorder, values: Tensor, final: Use, *, proved: bool) -> dict[Use, Layout]:
    """Find where the samples are in each use's output; proved by a second pass where wanted."""
    weights = distinct_weights(recorder.samples, values)
    if proved:
        for use in recorder.uses:
            use.tap.receive = use.tap.receive_second
        torch.autograd.grad((values * weights).sum(), recorder.anchors, allow_unused=True)
    return {use: _layout(recorder, use, weights, proved=proved) for use in recorder.uses}


def _layout(recorder: Recorder, use: Use, weights: Tensor, *, proved: bool) -> Layout:
    shape = use.leading
    allowed = candidates(shape, recorder.samples, use.batch_axis)
    if not allowed:
        msg = (
            f"layer {use.name!r}: expected an axis for the {recorder.samples} samples in its input, "
            f"got shape {(*shape, ...)}"
        )
        raise ValueError(msg)
    first, second = use.tap.gradient, use.tap.second
    if not proved or first is None or second is None:
        return allowed[0]
    layout = proven(first, second, allowed, weights)
    if layout is None:
        msg = (
            f"layer {use.name!r}: its output {tuple(first.shape)} for one sample goes into the losses of "
            "others (samples are coupled, or lie on no axis of their own), so that no per-sample gradient "
            "can be read off; lai_torch.exact_scores needs none"
        )
        raise ValueError(msg)
    return layout


def _check_untouched(uses: Iterable[Use]) -> None:
    """Raise if an input was overwritten after its layer read it.

    Raises
    ------
    ValueError
        If one was.
    """
    for use in uses:
        if use.activations is not None and use.activations._version != use.version:
            msg = (
                f"layer {use.name!r}: its input was modified in place after the layer read it, so it "
                "can no longer be recorded; replace the in-place operation by its out-of-place form"
            )
            raise ValueError(msg)
