"""Which layer is the last: the one whose output the losses reach without passing another layer."""

from collections.abc import Container, Mapping

from torch import Tensor

from lai_torch._recording.rules.unread import check_last
from lai_torch._recording.watching.probes import Ends
from lai_torch._recording.watching.recorder import Recorder, Shortcut
from lai_torch._recording.watching.uses import READ_BY_LAI, Use


def last_layer(
    recorder: Recorder,
    values: Tensor,
    ends: Ends,
    last: str | None,
    past: Mapping[str, str],
    *,
    ghost_alone: bool,
) -> Use | None:
    """Return the last layer; None where LAI could read none, or several, and Ghost is recorded.

    What makes one more layer, which LAI does not read, is named in `past`, and by which function.

    Raises
    ------
    ValueError
        If there is none that LAI could read, or several.
    """
    layers = {use.probe: use for use in recorder.uses if use.kind in READ_BY_LAI}
    near = set(ends.probes)
    reached = [use for probe, use in layers.items() if probe in near]
    if last is not None:
        return _named(last, reached)
    if not reached and past and not recorder.every_layer:
        check_last(past, recorder.parameters)
    if not reached and not (recorder.every_layer and values.requires_grad):
        msg = (
            "model: expected the loss to depend on the output of a layer with a registered weight "
            f"(seen: {[use.name for use in layers.values()]}), it depends on none; the output may be "
            "detached, or computed by a function that cannot be watched"
        )
        raise ValueError(msg)
    if ghost_alone:
        return reached[-1] if reached else None
    if len(reached) > 1:
        if recorder.every_layer:
            return None  # Ghost needs none
        names = list(dict.fromkeys(use.name for use in reached))
        raise ValueError(_several(names, len(reached)))
    if past and not recorder.every_layer:
        check_last(past, recorder.parameters)
    return reached[0] if reached and not past else None


def check_read_once(final: Use | None, recorder: Recorder, behind: Container[str]) -> Use | None:
    """Return the last layer; None for Ghost if the losses use its parameters after it, too.

    What they read there, such as a penalty on the weight, is no part of the layer's record.

    Raises
    ------
    ValueError
        If they do, and only the last layer is recorded.
    """
    if final is None:
        return None
    names = [*final.weight.names, *(() if final.bias is None else final.bias.names)]
    twice = next((name for name in names if name in behind and name in recorder.trainable), None)
    if twice is None:
        return final
    if recorder.every_layer:
        return None
    msg = (
        f"model: the loss reads {twice!r}, a parameter of the last layer, in another way too, which LAI and "
        "LLI do not see: leave a penalty to the optimizer's weight_decay or lai_torch.Kept(auxiliary=), or "
        "use estimator 'ghost' or 'exact'"
    )
    raise ValueError(msg)


def is_last(shortcut: Shortcut, recorder: Recorder, ends: Ends) -> bool:
    """Whether the layer at which gradients were switched on is the last one."""
    return len(recorder.uses) > shortcut.last and ends.probes == [recorder.uses[shortcut.last].probe]


def _named(last: str, reached: list[Use]) -> Use:
    chosen = [use for use in reached if use.name == last]
    if len(chosen) != 1:
        names = list(dict.fromkeys(use.name for use in reached))
        found = f"used {len(chosen)} times there" if chosen else f"not one of {names}"
        msg = f"last: expected the name of one layer whose output the loss uses, got {last!r}, {found}"
        raise ValueError(msg)
    return chosen[0]


def _several(names: list[str], uses: int) -> str:
    if len(names) < uses:
        return (
            f"model: expected one final layer, found {uses} uses of {names} whose outputs reach the loss "
            "side by side: a layer on several inputs of one sample has no single readout; put these "
            "inputs on an axis of positions (of a loss in chunks: in eval mode, in which a curator scores, "
            "fewer samples at a time by chunk=), or use estimator 'ghost' or 'exact'"
        )
    return (
        f"model: expected one final layer, found {uses} whose outputs reach the loss: {names}; "
        f"pass last={names[0]!r} (or another of them)"
    )
