"""From a model and a batch to a recording that is proved, or taken over from one that was."""

import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils.checkpoint import CheckpointError

from lai_torch._model.batch import Loss, call, check_losses, count, tensors, usable
from lai_torch._model.function import named_parameters
from lai_torch._model.precision import OwnAutocast
from lai_torch._model.preserve import eager, modules_of, preserved
from lai_torch._model.valid import Valid, valid_positions
from lai_torch._recording.masked import check_masked
from lai_torch._recording.proving.adding_up import wrongly_recorded
from lai_torch._recording.proving.behind import layers_in_disguise, parameters_behind
from lai_torch._recording.proving.last_layer import is_last, last_layer
from lai_torch._recording.proving.leftovers import foreign, one_by_one
from lai_torch._recording.proving.placing import Places, Unplaced, known_places, receive
from lai_torch._recording.proving.reindexed import Reindexed, compared, reindex
from lai_torch._recording.rules.layers import EVERYTHING, LAYERS, READ_BY_LAI
from lai_torch._recording.rules.operations import operation
from lai_torch._recording.rules.unread import HIDDEN, warn_of_unread
from lai_torch._recording.watching.plan import Calls, Plans
from lai_torch._recording.watching.recorder import Recorder, Shortcut
from lai_torch._recording.watching.recording import Known, Recording
from lai_torch._recording.watching.routed import Routed
from lai_torch._recording.watching.sample_axis import Layout
from lai_torch._recording.watching.uses import Use


@dataclass(frozen=True)
class _Task:
    """What is to be recorded of what."""

    model: nn.Module
    loss: Loss
    batch: tuple[Any, Any]
    every_layer: bool
    last: str | None
    ghost_alone: bool
    gates: bool
    trainable: frozenset[str]
    valid: Tensor | None

    @property
    def samples(self) -> int:
        return count(*self.batch)

    def recorder(self, **options: Any) -> Recorder:
        """Return a recorder for the task."""
        return Recorder(
            named_parameters(self.model, self.loss),
            dict(self.model.named_buffers()),
            self.samples,
            tensors(self.batch),
            EVERYTHING if self.every_layer else LAYERS,
            every_layer=self.every_layer,
            other=operation if self.every_layer else None,
            gates=self.gates,
            trainable=self.trainable,
            valid=self.valid,
            **options,
        )

    def losses(self) -> Tensor:
        """Run model and loss."""
        inputs, targets = self.batch
        return self.loss(call(self.model, inputs), targets)


def record(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    every_layer: bool,
    last: str | None = None,
    shortcut: Shortcut | None = None,
    known: Known | None = None,
    ghost_alone: bool = False,
    live: bool = False,
    gates: bool = False,
    valid: Tensor | Valid | None = None,
    plans: Plans | None = None,
) -> Recording:
    """Run `model` and `loss` on one batch and record every use of a parameter.

    With `every_layer`, gradients arrive at every use. What an earlier recording has proved is `known`
    and taken over where this batch is like that one; else it is proved anew: where the samples lie,
    that none depends on another, which layer is the last and, of every layer's gradients, that they add
    up to the plain one. A `shortcut` that turns out not to hold is not taken. Which of several final
    layers is taken for the last does not matter to `ghost_alone`. With a `shortcut`, `live` makes it the
    forward pass of a training step: nothing is put back, and the graph stays whole. With `gates`, the
    derivatives between one layer and the next are read off as well, of a chain. Positions that are not
    `valid` count for nothing, in records and in means. With `plans`, a pass with a `shortcut` looks only at
    what is a layer by the plan of one before.
    """
    names = named_parameters(model, loss)
    trainable = frozenset(name for name, parameter in names.items() if parameter.requires_grad)
    batch = usable((inputs, targets))
    if every_layer and not trainable:
        msg = "model: expected at least one trainable parameter, got none: all are frozen"
        raise ValueError(msg)
    mask = valid_positions(model, batch[0], count(*batch), valid)
    task = _Task(model, loss, batch, every_layer, last, ghost_alone, gates, trainable, mask)
    if known is not None and known.proved and known.trainable == trainable:
        try:
            if plans is None or shortcut is None or live:
                taken = _taken_over(task, known, shortcut, Calls(), live=live)
            else:
                taken = _planned(task, known, shortcut, plans)
        except Unplaced:  # rows went where they did not go before
            taken = None
        if taken is not None:
            return taken
    found = _proved(task, frozenset() if known is None else known.skipped, frozenset(names))
    check_masked(found, asked=valid is not None)
    return found


def _planned(task: _Task, known: Known, shortcut: Shortcut, plans: Plans) -> Recording | None:
    """Record by a plan where there is one that holds; else in full, which makes one for the next time."""
    key = plans.key(modules_of(task.model, task.loss), task.batch, task.valid, shortcut)
    plan = plans.get(key, known)
    if plan is not None:
        calls = Calls(plan)
        try:
            found = _taken_over(task, known, shortcut, calls, live=False)
        except Exception:  # what a plan does not fit may fail in any way; what the model raises comes again
            found = None
        if found is not None and calls.done():
            return found
    calls = Calls()
    found = _taken_over(task, known, shortcut, calls, live=False)
    plans.put(key, None if found is None else calls.made())
    return found


def _taken_over(
    task: _Task, known: Known, shortcut: Shortcut | None, calls: Calls, *, live: bool
) -> Recording | None:
    """Record by what is known; None where that does not hold."""
    live = live and shortcut is not None
    options: dict[str, Any] = {"known": known.layouts, "skipped": known.skipped, "live": live}
    options["calls"] = calls
    with eager() if live else preserved(task.model, task.loss):
        recorder = task.recorder(shortcut=shortcut, **options)
        with torch.set_grad_enabled(mode=live or shortcut is None), recorder:
            values = task.losses()
        values = check_losses(values, recorder.samples)
        if shortcut is not None and not is_last(shortcut, recorder, values):
            return None
        if not known.behind.issuperset(parameters_behind(recorder, values)):
            return None
        past = dict.fromkeys(sorted(known.past), HIDDEN)
        final = last_layer(recorder, values, task.last, past, ghost_alone=task.ghost_alone)
        found = _received(task, recorder, values)
        places = known_places(recorder, known)
        if places is None:
            return None
        _check_untouched(recorder)
        averaged = shortcut is not None and shortcut.mean
        return _recording(task, recorder, values, final, places, found, known, averaged=averaged, live=live)


def _proved(task: _Task, skipped: frozenset[str], names: frozenset[str]) -> Recording:
    """Record and prove, leaving more and more parameters to backward passes of their own."""
    while True:
        try:
            recording, precision = _attempted(task, skipped)
            wrong: frozenset[str] = frozenset()
            if task.every_layer:
                wrong = wrongly_recorded(task.model, task.loss, task.batch, recording, precision)
        except Unplaced as found:
            skipped |= found.names
            continue
        except (ValueError, KeyboardInterrupt):
            raise
        except Exception as error:
            if task.every_layer and skipped != names:
                skipped = (
                    names  # what the recorder did may be to blame: nothing recorded, all backward passes
                )
                continue
            if not isinstance(error, CheckpointError):
                raise
            msg = "model: a checkpoint computes other tensors when it is run again; switch checkpointing off"
            raise ValueError(msg) from error
        if not wrong:
            return recording
        if wrong <= skipped:
            msg = (
                f"model: the samples' gradients of {sorted(wrong)} do not add up to the batch's: a hook "
                "on a module or a parameter, or something else, changes gradients on their way; remove it"
            )
            raise ValueError(msg)
        skipped |= wrong


def _attempted(task: _Task, skipped: frozenset[str]) -> tuple[Recording, float]:
    """Record and prove where the samples lie.

    Raises
    ------
    Unplaced
        If the rows of a use lie on no axis of the samples.
    """
    with preserved(task.model, task.loss), _all_differentiable(task):
        recorder = task.recorder(skipped=skipped)
        asked = task.model, task.loss, task.batch
        other = reindex(*asked, recorder)  # first: what it writes in place no graph may have saved
        with OwnAutocast(), recorder:
            values = task.losses()
        values = check_losses(values, recorder.samples)
        other = None if other is None else compared(other, *asked, recorder, values)
        behind, past = _behind(task, recorder, values)
        places = Places(recorder)
        if task.every_layer and values.requires_grad:
            found = _received(task, recorder, values)
            _narrow(places, values, other)
            final = last_layer(recorder, values, task.last, past, ghost_alone=task.ghost_alone)
        else:
            if other is not None:
                places.check_uncoupled(values, other)
            final = last_layer(recorder, values, task.last, past, ghost_alone=task.ghost_alone)
            found = _received(task, recorder, values)
            _narrow(places, values, other)
        layouts, certain = places.chosen(), places.certain()
        if not task.every_layer and recorder.samples > 1 and (other is None or not other.uses):
            layouts, certain = _by_every_layer(task, recorder, skipped)
        _check_untouched(recorder)
        if not task.every_layer:
            warn_of_unread(recorder, _hidden(task, recorder))
        signatures = tuple(use.signature for use in recorder.uses)
        proved = recorder.samples > 1
        known = Known(signatures, certain, skipped, task.trainable, proved, behind, frozenset(past))
        recording = _recording(task, recorder, values, final, layouts, found, known)
        return recording, places.precision


def _behind(task: _Task, recorder: Recorder, values: Tensor) -> tuple[frozenset[str], dict[str, str]]:
    """Return the parameters behind the last layer; which of them make one more, and by what functions."""
    if task.ghost_alone:
        return frozenset(), {}
    names = parameters_behind(recorder, values)

    # what a forward pass writes is put back, so that graphs which saved it are as good as before
    written = (*recorder.parameters.values(), *recorder.buffers.values())
    written = tuple(tensor for tensor in written if not tensor.is_inference())

    def run(replay: Recorder) -> None:
        with (
            _unsafe_preserve_version_counter(written),
            preserved(task.model, task.loss),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            with replay:
                task.losses()

    return frozenset(names), layers_in_disguise(recorder, run, tensors(task.batch), names)


def _narrow(places: Places, values: Tensor, other: Reindexed | None) -> None:
    """Find out where the samples lie, by all that there is to tell.

    Raises
    ------
    ValueError
        If samples are coupled.
    """
    if places.recorder.samples > 1:
        places.narrow_by_gradients(values, compared=other is not None)
    if other is not None:
        places.check_uncoupled(values, other)
        places.narrow_by_moving(other)


def _by_every_layer(
    task: _Task, recorder: Recorder, skipped: frozenset[str]
) -> tuple[dict[Use, Layout], tuple[Layout | None, ...]]:
    """Return where the samples lie in each layer by its gradients: what LAI itself does not take.

    Raises
    ------
    Unplaced
        If that finds a layer whose rows lie on no axis of the samples.
    ValueError
        If it finds other layers.
    """
    every = _Task(task.model, task.loss, task.batch, True, task.last, True, False, task.trainable, task.valid)
    proof, _ = _attempted(every, skipped)
    layers = [
        (use.signature, proof.layouts[use], certain)
        for use, certain in zip(proof.uses, proof.known.layouts, strict=True)
        if use.kind in READ_BY_LAI
    ]
    if [signature for signature, _, _ in layers] != [use.signature for use in recorder.uses]:
        msg = (
            "model: expected the same layers whenever the batch is run, found others the second time, "
            "so that the axis of the samples stays open; call model.eval(), or use another batch size"
        )
        raise ValueError(msg)
    pairs = zip(recorder.uses, layers, strict=True)
    return {use: layout for use, (_, layout, _) in pairs}, tuple(certain for _, _, certain in layers)


def _received(task: _Task, recorder: Recorder, values: Tensor) -> list[str]:
    """Send the losses' gradient to the uses; return the parameters that it reached themselves."""
    trainable = {name: p for name, p in recorder.parameters.items() if name in task.trainable}
    wanted = trainable if task.every_layer else {}
    found = receive(recorder, values.sum(), "gradient", also=list(wanted.values()))
    return [name for name, gradient in zip(wanted, found, strict=True) if gradient is not None]


def _recording(
    task: _Task,
    recorder: Recorder,
    values: Tensor,
    final: Use | None,
    layouts: dict[Use, Layout],
    connected: list[str],
    known: Known,
    *,
    averaged: bool = False,
    live: bool = False,
) -> Recording:
    routed = recorder.experts.uses
    shared = {use.source.name for use in routed} & {*connected, *_names(recorder)}
    if shared:  # of a parameter that is used in other ways, too, no record would do
        raise Unplaced(frozenset(shared))
    leftovers, unexplained = one_by_one(recorder, values, connected)
    if task.every_layer:
        unexplained |= foreign(recorder, values)
    return Recording(
        recorder.samples,
        recorder.uses,
        final,
        layouts,
        unexplained,
        values.detach(),
        {name: p for name, p in recorder.parameters.items() if name in task.trainable},
        leftovers,
        task.every_layer,
        averaged,
        known,
        live=values if live else None,
        valid=task.valid,
        routed=tuple(routed),
    )


def _names(recorder: Recorder) -> set[str]:
    """Return the parameters of all uses whose samples lie on an axis."""
    sources = (source for use in recorder.uses for source in (use.weight, use.bias))
    return {name for source in sources if source is not None for name in source.names}


def _hidden(task: _Task, recorder: Recorder) -> list[str]:
    """Return matrices that the losses depend on by functions that cannot be watched."""
    read = {name for use in recorder.uses for name in use.weight.names}
    unseen = {
        name: parameter
        for name, parameter in recorder.parameters.items()
        if parameter.ndim > 1 and parameter.requires_grad and name not in read and name not in recorder.stuck
    }
    if not unseen:
        return []
    with preserved(task.model, task.loss), _unhooked(unseen.values()):
        total = check_losses(task.losses(), recorder.samples).sum()
        found = torch.autograd.grad(total, list(unseen.values()), allow_unused=True)
    return [name for name, gradient in zip(unseen, found, strict=True) if gradient is not None]


@contextmanager
def _unhooked(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Set the user's hooks on parameters aside: they are for gradients of training."""
    saved = [(parameter, parameter._backward_hooks) for parameter in parameters if parameter._backward_hooks]
    for parameter, _ in saved:
        parameter._backward_hooks = OrderedDict()
    try:
        yield
    finally:
        for parameter, hooks in saved:
            parameter._backward_hooks = hooks


@contextmanager
def _all_differentiable(task: _Task) -> Iterator[None]:
    """Let frozen parameters require a gradient for the while: their products are products all the same."""
    frozen = [
        p
        for p in named_parameters(task.model, task.loss).values()
        if not p.requires_grad and (p.is_floating_point() or p.is_complex())
    ]
    for parameter in frozen:
        parameter.requires_grad_()
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _check_untouched(recorder: Recorder) -> None:
    """Raise if an input was overwritten after its layer read it.

    Raises
    ------
    ValueError
        If one was.
    """
    uses: list[Use | Routed] = [*recorder.uses, *recorder.experts.uses]
    for use in uses:
        if use.activations._version != use.version:
            msg = (
                f"layer {use.name!r}: its input was modified in place after the layer read it, so it "
                "can no longer be recorded; replace the in-place operation by its out-of-place form"
            )
            raise ValueError(msg)
