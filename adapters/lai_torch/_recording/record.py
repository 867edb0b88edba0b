"""From a model and a batch to a recording that is proved, or taken over from one that was."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import Loss, check_losses, count, unaligned, usable
from lai_torch._model.preserve import eager, evaluating, gradient_hooks, once, preserved
from lai_torch._model.sample_axis import SampleAxis
from lai_torch._model.valid import Masks, Valid
from lai_torch._model.walk import modules_of, named_parameters
from lai_torch._recording.averaging import averaged, averages
from lai_torch._recording.proved import proved
from lai_torch._recording.proving.independence import CoupledError, check_apart
from lai_torch._recording.proving.last_layer import (
    check_read_once,
    has_others,
    is_last,
    last_layer,
    parameters_downstream,
)
from lai_torch._recording.proving.sample_axes import AxisUnknown, cached_axes
from lai_torch._recording.task import Task, check_untouched, received, recorded
from lai_torch._recording.watching.plan import Calls, Plans
from lai_torch._recording.watching.recorder import Shortcut
from lai_torch._recording.watching.recording import CachedProof, Recording
from lai_torch._recording.watching.uses import HIDDEN, Ends


def record(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    every_layer: bool,
    last: str | None = None,
    shortcut: Shortcut | None = None,
    known: CachedProof | None = None,
    ghost_alone: bool = False,
    live: bool = False,
    gates: bool = False,
    valid: Tensor | Valid | Masks | None = None,
    plans: Plans | None = None,
    mixing: bool = False,
) -> Recording:
    """Run `model` and `loss` on one batch and record every use of a parameter.

    With `every_layer`, gradients arrive at every use; without, at the last layer. What an earlier recording
    proved is `known`, and is reused where this batch is like that one; else it is proved again: the sample
    axes, that samples are independent, which layer is the last, and that recorded gradients add up to the
    plain one. A `shortcut` is only taken if it holds. With `ghost_alone` it does not matter which of several
    final layers counts as the last. With a `shortcut`, `live` records the forward pass of a training step:
    nothing is put back, and the graph stays whole. With `gates`, the derivatives between consecutive layers
    of a chain are recorded, too. Positions that are not `valid` count for nothing, in records and in means.
    With `plans`, a pass with a `shortcut` only inspects the layers of an earlier pass. Where an operation is
    `mixing` samples, independence is checked on every batch.
    """
    names = named_parameters(model, loss)
    trainable = frozenset(name for name, parameter in names.items() if parameter.requires_grad)
    batch = usable((inputs, targets))
    if every_layer and not trainable:
        msg = "model: expected at least one trainable parameter, got none: all are frozen"
        raise ValueError(msg)
    masks = valid if isinstance(valid, Masks) else Masks(valid)
    positions = masks(model, batch[0], count(*batch))
    hooks = gradient_hooks(modules_of(model, loss), names.values())
    task = Task(model, loss, batch, every_layer, last, ghost_alone, gates, trainable, positions, hooks)
    with _naming_what_stays(batch):
        return _recorded(task, known, shortcut, plans, masks, live=live, mixing=mixing)


def _recorded(
    task: Task,
    known: CachedProof | None,
    shortcut: Shortcut | None,
    plans: Plans | None,
    masks: Masks,
    *,
    live: bool,
    mixing: bool,
) -> Recording:
    """Record by what is known where that holds, else in full."""
    same = known is not None and (known.trainable, known.hooks) == (task.trainable, task.hooks)
    if known is not None and known.proved and same:
        try:
            if plans is None or shortcut is None or live:
                taken = _reused(task, known, shortcut, Calls(), live=live)
            else:
                taken = _planned(task, known, shortcut, plans)
        except AxisUnknown:  # rows went where they did not go before
            taken = None
        if taken is not None:
            if mixing and not live:
                check_apart(
                    (task.model, task.loss, task.batch),
                    taken.losses,
                    "by an operation that mixes them at some values",
                    known.precision,
                )
            return taken
    found = proved(task, known)
    _check_masked(found, asked=masks.given is not None)
    return found


def _check_masked(recording: Recording, *, asked: bool) -> None:
    """Raise if a given mask fits no layer with positions; warn if a detected one does not."""
    counts = {prod(use.leading) // recording.samples for use in recording.uses if use.kind == "dense"}
    several = sorted(counts - {1})
    lengths = " or ".join(map(str, several)) or "none, no layer has any"
    for mask in recording.valid:
        if mask.shape[1] in counts or not (asked or several):
            continue
        got = tuple(mask.shape)
        if asked:
            msg = f"valid: expected shape (n, t) with the positions of a layer, {lengths}, got {got}"
            raise ValueError(msg)
        warnings.warn(
            f"attention_mask: expected the positions of a layer, {lengths}, got shape {got}: padding counts "
            "in means over positions; pass valid, a function of the inputs that returns the mask (an option "
            "of estimators and of lai_torch.trace)",
            UserWarning,
            stacklevel=2,
        )


@contextmanager
def _naming_what_stays(batch: tuple[Any, Any]) -> Iterator[None]:
    """Say of samples that seem coupled what in their batch holds them in another way than by rows."""
    try:
        yield
    except CoupledError as error:
        samples = count(*batch)
        shapes = [one.shape for one in unaligned(batch, samples) if isinstance(one, Tensor)]
        if not shapes:
            raise
        msg = (
            f"{error}; it may seem so where rows cannot stand in each other's place: a tensor of shape "
            f"{tuple(shapes[0])} holds {samples} samples in another way (offsets, packed sequences): pad it"
        )
        raise CoupledError(msg) from error


def _planned(task: Task, known: CachedProof, shortcut: Shortcut, plans: Plans) -> Recording | None:
    """Record by a plan where there is one that holds; else in full, which makes one for the next time."""
    key = plans.key(modules_of(task.model, task.loss), task.batch, task.valid, shortcut)
    plan = plans.get(key, known)
    if plan is not None:
        calls = Calls(plan)
        try:
            found = _reused(task, known, shortcut, calls, live=False)
        except Exception:  # what a plan does not fit may fail in any way; what the model raises comes again
            found = None
        if found is not None and calls.done():
            return replace(found, alike=plan.alike)
        plans.missed(key)
    calls = Calls()
    found = _reused(task, known, shortcut, calls, live=False)
    made = None if found is None else calls.made(found.sample_axes)
    plans.put(key, made)
    return found if found is None or made is None else replace(found, alike=made.alike)


def _reused(
    task: Task, known: CachedProof, shortcut: Shortcut | None, calls: Calls, *, live: bool
) -> Recording | None:
    """Record by what is known; None where that does not hold."""
    live = live and shortcut is not None
    options: dict[str, Any] = {"known": known.sample_axes, "skipped": known.skipped, "live": live}
    options["calls"] = calls
    with eager() if live else preserved(task.model, task.loss), nullcontext() if live else once():
        recorder = task.recorder(shortcut=shortcut, **options)
        with torch.set_grad_enabled(mode=live or shortcut is None), recorder:
            values = task.losses(trains=live)
        values = check_losses(values, recorder.samples)
        ends = Ends(values)
        if shortcut is not None and not is_last(shortcut, recorder, ends):
            return None
        if calls.plan is None and not known.calls.issuperset(kinds := calls.kinds()):
            if not live:
                return None
            with evaluating(task.model):
                proved(task, known)
            known = replace(known, calls=known.calls | kinds)
        if not known.behind.issuperset(parameters_downstream(recorder, ends)) or has_others(recorder, ends):
            return None
        past = dict.fromkeys(sorted(known.past), HIDDEN)
        final = last_layer(recorder, values, ends, task.last, past, ghost_alone=task.ghost_alone)
        final = check_read_once(final, recorder, known.behind)
        kind = None if calls.plan is None else calls.plan.averages
        found = received(task, recorder, values) if kind is None else []
        places = cached_axes(recorder, known)
        if places is None:
            return None
        check_untouched(recorder)
        if shortcut is not None and shortcut.mean_of_last and not live:
            use = recorder.uses[shortcut.last]
            asked = values, use, places[use], task.samples, task.valid
            if calls.plan is None:
                calls.averages = averages(*asked)
            elif kind is not None:
                final = averaged(*asked, kind)
                if final is None:
                    return None
                recorder.uses[shortcut.last], places[final] = final, SampleAxis(0)
        means = shortcut is not None and shortcut.mean
        return recorded(task, recorder, values, final, places, found, known, averaged=means, live=live)
