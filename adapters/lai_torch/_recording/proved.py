"""Record a batch and verify the record; parameters that fail get one backward pass per sample."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils.checkpoint import CheckpointError

from lai_torch._model.batch import check_losses
from lai_torch._model.precision import OwnAutocast
from lai_torch._model.preserve import once, preserved, unhooked
from lai_torch._model.sample_axis import SampleAxis
from lai_torch._model.snapshot import written
from lai_torch._model.walk import Step, forget, named_parameters
from lai_torch._recording.proving.backward import check_gradients_apart, check_owned_leaves, check_unhooked
from lai_torch._recording.proving.last_layer import (
    check_read_once,
    last_layer,
    parameters_downstream,
    unrecognised_products,
    warn_of_unread,
)
from lai_torch._recording.proving.sample_axes import (
    AxisUnknown,
    PermutedBatch,
    SampleAxes,
    check_behind_zeros,
    compared,
    run_permuted,
)
from lai_torch._recording.proving.weighted_sums import wrongly_recorded
from lai_torch._recording.task import Task, check_untouched, received, recorded
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.recording import CachedProof, Recording
from lai_torch._recording.watching.uses import READ_BY_LAI, Ends, Use


def proved(task: Task, before: CachedProof | None) -> Recording:
    """Record and prove; parameters that fail get one backward pass per sample.

    `before` is the proof of an earlier batch.
    """
    step, Step.current = Step.current, None  # a first forward pass may make what it needs
    try:
        return _proved(task, before)
    finally:
        Step.current = step
        forget()


def _proved(task: Task, before: CachedProof | None) -> Recording:
    names = frozenset(named_parameters(task.model, task.loss))
    skipped: frozenset[str] = frozenset() if before is None else before.skipped
    while True:
        try:
            recording, precision = _attempted(task, skipped, before)
            wrong: frozenset[str] = frozenset()
            if task.every_layer:
                wrong = wrongly_recorded(task.model, task.loss, task.batch, recording, precision)
            else:
                problem = task.model, task.loss, task.batch
                check_owned_leaves(problem)
                check_gradients_apart(problem, recording.parameters, precision)
                check_unhooked(problem, recording, precision)
        except AxisUnknown as found:
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
        if wrong <= skipped and skipped != names:
            wrong = names  # a recorded layer is computed in other steps, and rounded elsewhere: record none
        if wrong <= skipped:
            msg = (
                f"model: the samples' gradients of {sorted(wrong)} do not add up to the batch's: a hook "
                "on a module or a parameter, or something else, changes gradients on their way; remove it"
            )
            raise ValueError(msg)
        skipped |= wrong


def _attempted(
    task: Task, skipped: frozenset[str], before: CachedProof | None = None
) -> tuple[Recording, float]:
    """Record a batch and find its sample axes; `before` may have proved the same layers in other calls.

    Raises
    ------
    AxisUnknown
        If a use has no sample axis.
    """
    with preserved(task.model, task.loss), once(), _all_differentiable(task):
        recorder = task.recorder(skipped=skipped)
        problem = task.model, task.loss, task.batch
        other = run_permuted(problem, recorder)  # first: what it writes in place no graph may have saved
        if other is not None:
            check_behind_zeros(problem, recorder, other)
        with OwnAutocast(), recorder:
            values = task.losses()
        values = check_losses(values, recorder.samples)
        if other is not None:
            with _written_back(recorder):
                other = compared(other, problem, recorder, values)
        ends = Ends(values)
        behind, past = _behind(task, recorder, ends)
        places = SampleAxes(recorder)
        if task.every_layer and values.requires_grad:
            found = received(task, recorder, values)
            _narrow(places, values, other)
            final = last_layer(recorder, values, ends, task.last, past, ghost_alone=task.ghost_alone)
        else:
            if other is not None:
                places.check_uncoupled(values, other)
            final = last_layer(recorder, values, ends, task.last, past, ghost_alone=task.ghost_alone)
            found = received(task, recorder, values)
            _narrow(places, values, other)
        final = check_read_once(final, recorder, behind)
        sample_axes, certain = places.chosen(), places.certain()
        if not task.every_layer and recorder.samples > 1 and (other is None or not other.moved):
            rerouted = other is not None and other.rerouted
            sample_axes, certain = _by_every_layer(task, recorder, skipped, rerouted=rerouted)
        check_untouched(recorder)
        if not task.every_layer:
            warn_of_unread(recorder, _hidden(task, recorder))
        signatures = tuple(use.signature for use in recorder.uses)
        several = recorder.samples > 1
        kinds = recorder.calls.kinds()
        if before is not None and before.signatures == signatures:
            kinds |= before.calls
        precision = places.precision
        proof = (
            certain,
            skipped,
            task.trainable,
            several,
            behind,
            frozenset(past),
            kinds,
            precision,
            task.hooks,
        )
        known = CachedProof(signatures, *proof)
        recording = recorded(task, recorder, values, final, sample_axes, found, known)
        return recording, precision


def _behind(task: Task, recorder: Recorder, ends: Ends) -> tuple[frozenset[str], dict[str, str]]:
    """Return the parameters after the last layer, and those in an unrecognised product, by its function."""
    if task.ghost_alone:
        return frozenset(), {}
    names = parameters_downstream(recorder, ends)
    return frozenset(names), unrecognised_products(recorder, names)


def _written_back(recorder: Recorder) -> AbstractContextManager[None]:
    """Keep version counters over the body's passes: graphs may have saved what these write and restore."""
    every = (*recorder.parameters.values(), *recorder.buffers.values())
    return _unsafe_preserve_version_counter(tuple(one for one in every if not one.is_inference()))


def _narrow(places: SampleAxes, values: Tensor, other: PermutedBatch | None) -> None:
    """Narrow the sample axes by gradients and by the permuted batch.

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
    task: Task, recorder: Recorder, skipped: frozenset[str], *, rerouted: bool
) -> tuple[dict[Use, SampleAxis], tuple[SampleAxis | None, ...]]:
    """Return each layer's sample axis by its gradients, which LAI itself does not compute.

    Raises
    ------
    AxisUnknown
        If a layer has no sample axis, or, in a `rerouted` model, one that gradients do not determine.
    ValueError
        If the second pass has other layers.
    """
    every = replace(task, every_layer=True, ghost_alone=True, gates=False)
    proof, _ = _attempted(every, skipped)
    if rerouted:
        _check_determined(proof)
    layers = [
        (use.signature, proof.sample_axes[use], certain)
        for use, certain in zip(proof.uses, proof.known.sample_axes, strict=True)
        if use.kind in READ_BY_LAI
    ]
    if [signature for signature, _, _ in layers] != [use.signature for use in recorder.uses]:
        msg = (
            "model: expected the same layers in every forward pass of a batch, got others in the second one, "
            "so that the batch axis cannot be determined; call model.eval(), or use another batch size"
        )
        raise ValueError(msg)
    pairs = zip(recorder.uses, layers, strict=True)
    return {use: sample_axis for use, (_, sample_axis, _) in pairs}, tuple(
        certain for _, _, certain in layers
    )


def _check_determined(proof: Recording) -> None:
    """Raise `AxisUnknown` for layers that may hold rows of some samples alone.

    Rows whose gradient is zero tell nothing. So an axis is determined where it alone is left, and where each
    sample that reaches its loss through any layer does so through this one.
    """
    layers = [
        (use, proof.sample_axes[use], certain)
        for use, certain in zip(proof.uses, proof.known.sample_axes, strict=True)
        if use.kind in READ_BY_LAI and use.place is None
    ]
    reached = {
        use: sample_axis.in_front(use.flat(use.probe.gradient)).flatten(1).ne(0).any(1)
        for use, sample_axis, _ in layers
        if use.probe.gradient is not None
    }
    nobody = torch.zeros((), dtype=torch.bool, device="cpu")
    alive = functools.reduce(torch.logical_or, reached.values(), nobody)
    unknown = {
        name
        for use, _, certain in layers
        if certain is None or use not in reached or not torch.equal(reached[use], alive)
        for name in use.weight.names
    }
    if unknown:
        raise AxisUnknown(frozenset(unknown))


def _hidden(task: Task, recorder: Recorder) -> list[str]:
    """Return matrices that the losses depend on by functions that cannot be recorded."""
    read = {name for use in recorder.uses for name in use.weight.names}
    unseen = {
        name: parameter
        for name, parameter in recorder.parameters.items()
        if parameter.ndim > 1 and parameter.requires_grad and name not in read and name not in recorder.stuck
    }
    if not unseen:
        return []
    with preserved(task.model, task.loss), unhooked(unseen.values()):
        total = check_losses(task.losses(), recorder.samples).sum()
        found = torch.autograd.grad(total, list(unseen.values()), allow_unused=True)
    return [name for name, gradient in zip(unseen, found, strict=True) if gradient is not None]


@contextmanager
def _all_differentiable(task: Task) -> Iterator[None]:
    """Let frozen parameters require gradients inside: LAI reads their products as well.

    Not those that forward writes in place, which torch allows for frozen parameters alone.
    """
    frozen = [
        p
        for p in named_parameters(task.model, task.loss).values()
        if not p.requires_grad and (p.is_floating_point() or p.is_complex())
    ]
    if frozen:
        held = [each for each in (task.model, task.loss) if isinstance(each, nn.Module)]
        if any(written(each) is None for each in held):
            with preserved(task.model, task.loss), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                task.losses()
        by_forward = [written(each) or () for each in held]
        frozen = [p for p in frozen if not any(id(p) in ids for ids in by_forward)]
    for parameter in frozen:
        parameter.requires_grad_()
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
