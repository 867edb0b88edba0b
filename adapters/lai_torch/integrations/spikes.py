"""Watch a run's gradient norm, and name the rows of a step that spikes before the optimizer moves."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lai_core._adapters import accept_old_keywords
from lai_core.diagnosis import Diagnosis, SpikeLog
from lai_core.diagnosis import SpikeRule as SpikeRule
from lai_torch._exact.optimizer_step import check_optimizer, measure_step, read_norm
from lai_torch._graph.record import Reader
from lai_torch._model.batch import Loss, count
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import list_parameters, modules_of
from lai_torch.diagnose import Batch, add_gradients, diagnose_batches, prove

ALIKE = 0.01
"""How far the gradient that trains may be from a multiple of the summed losses', where rows are left out."""


class SpikeMonitor:
    """Diagnose a step whose gradient norm leaves its usual range, before the optimizer moves.

    In a loop of one's own, `watch` a batch before its forward pass (each of several micro-batches), and
    `check` the gradient's norm before `optimizer.step()`. Until a step spikes this costs a copy of the random
    state and one number read. Then the step's batches run again, from the random state that they had, in the
    mode in which the model trains: the diagnosis is of the gradient that is in `.grad`.

    Parameters
    ----------
    model, loss
        As for `diagnose`; `loss(outputs, targets) -> (n,)`, weighted as it is trained.
    path
        A file of JSON lines, one a spike, appended to. None: none is written.
    rule
        Which norms are spikes. None: `SpikeRule()`, 8 MAD above the median of the last 200 and 2 medians.
    most
        Diagnoses within one window of the rule.
    leave_out
        Whether a step is to train without the rows that are named: `.grad` then holds what the others give
        to it. Check before you clip, so that what is left is clipped by its own norm. The multiple of the
        summed losses that trains is read at the rule's step `warmup`. A spike whose gradient does not tell
        it, as one that is no number, takes that one if it has as many rows, else counts as a mean.
        What is written says whether it was done: not where the gradient is of another loss than `loss`, as
        where a penalty is added.
    optimizer
        An SGD, Adam or AdamW of `torch.optim` whose step is watched, too, before it is taken: a second moment
        that was lost makes it long while the gradient is ordinary. That costs about as much as the step.
    on_spike
        Called with what is written, a dictionary: `wandb.log`, or what you like.
    process_group
        The process group among which batches are divided, as for `diagnose`: its processes check equal norms.
        A trainer, `DistributedDataParallel` or a sharded model has one by itself. False: each process trains
        a model of its own.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets) ** 2
    >>> monitor = lai_torch.SpikeMonitor(model, loss, rule=lai_torch.SpikeRule(warmup=5))
    >>> for step in range(9):
    ...     inputs, targets = torch.randn(8, 4), torch.zeros(8)
    ...     targets[3] += 1000.0 * (step == 8)
    ...     monitor.watch(inputs, targets)
    ...     loss(model(inputs), targets).mean().backward()
    ...     norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    ...     found = monitor.check(norm)
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    >>> found.named
    (3,)
    """

    @accept_old_keywords(group="process_group")
    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        *,
        path: str | Path | None = None,
        rule: SpikeRule | None = None,
        most: int = 5,
        leave_out: bool = False,
        optimizer: torch.optim.Optimizer | None = None,
        on_spike: Callable[[dict[str, Any]], Any] | None = None,
        process_group: Any = None,
    ) -> None:
        self.model, self.loss = model, loss
        self.log, self.leave_out, self.on_spike = SpikeLog(path, rule, most), leave_out, on_spike
        self._divide(process_group)
        if optimizer is not None:
            check_optimizer(optimizer)
        self.optimizer, known = optimizer, self.log.rule
        self.updates = SpikeRule(
            deviations=known.deviations, ratio=known.ratio, window=known.window, warmup=known.warmup
        )
        # Proved on an ordinary batch, and not again: values that a spike has could refuse what is right, and
        # the norm that training saw stands beside the diagnosed one.
        # a batch of another shape than the one that is proved beside others is read for itself
        self._reader = Reader(model, loss, every=True, again=False, exchanged=False)
        self._batches: list[Batch] = []
        self._busy, self._proved = False, False
        # how many rows an ordinary step had, and the multiple of their summed losses that it trained
        self._known: tuple[int, float] | None = None

    def share(self, processes: int) -> None:
        """Share batches with the processes that a trainer has started, where it is not known with which.

        Parameters
        ----------
        processes
            How many there are.
        """
        if processes > 1 and self.process_group is None and not self._alone:
            self._divide(None)
            if not self._divided:
                self._divide(dist.group.WORLD)

    def _divide(self, process_group: Any) -> None:
        """Take what is known of the process group among which batches are divided."""
        if process_group is None and isinstance(self.model, nn.parallel.DistributedDataParallel):
            process_group = self.model.process_group
        self.process_group, self._alone = process_group or None, process_group is False
        sharded = any(hasattr(one, "device_mesh") for one in self.model.parameters())
        self._divided = self.process_group is not None or sharded
        if self.leave_out and self._divided:
            msg = (
                "leave_out: expected False with a process group or a sharded model: a process knows the "
                "gradient of its own rows alone"
            )
            raise ValueError(msg)
        if self._divided and dist.get_rank(self.process_group) > 0:
            self.log.path = None  # one file, by the first process

    def watch(self, inputs: Any, targets: Any, *, ids: Sequence[Any] | None = None) -> None:
        """Remember a batch that is about to run, and the random state; call it for each micro-batch."""
        running = not (self._divided or self._alone) and dist.is_available() and dist.is_initialized()
        # an ordinary row of this process would be named for a gradient that another's made
        if running and dist.get_world_size() > 1:
            msg = (
                f"process_group: torch.distributed runs {dist.get_world_size()} processes; pass "
                "torch.distributed.group.WORLD (one batch, divided among them), or False (each process "
                "trains a model of its own)"
            )
            raise ValueError(msg)
        self._batches.append(Batch((inputs, targets), ids, Streams(modules_of(self.model, self.loss))))

    def check(self, norm: float | Tensor) -> Diagnosis | None:
        """Judge the norm of a step's gradient, and forget its batches; diagnose these if it spikes.

        Parameters
        ----------
        norm
            Of the gradient before it was clipped, as `torch.nn.utils.clip_grad_norm_` returns it.

        Returns
        -------
        Diagnosis or None
            Rows are numbered through the step's batches. None of a step that does not spike.
        """
        batches, self._batches = self._batches, []
        number = read_norm(norm)
        first = not self._proved and self.log.step >= self.log.rule.warmup
        update_excess = None
        if self.optimizer is not None:
            usual, length = self.updates.usual, measure_step(self.optimizer)
            if self.updates.judge(length):
                update_excess = length / (usual or math.nan)
        known = bool(batches) or self._divided  # a process does not know what others watched
        excess = self.log.judge(number, known=known, also=update_excess is not None)
        self._proved = self._proved or (first and excess is None)
        if first and not known:
            warnings.warn(
                "SpikeMonitor: expected a batch in `watch` before `check`, got none; no spike is diagnosed "
                "(an attached trainer has to pass `labels` to its model)",
                stacklevel=2,
            )
        if excess is None and not (first and known):
            return None
        self._busy = True  # a diagnosis runs the model, whose hook watches
        try:
            if excess is None:  # a graph that is proved on an ordinary batch needs no proof in a spike
                prove(self._reader, batches, self.process_group)
                if self.leave_out:
                    rows = range(sum(count(*each.given) for each in batches))
                    scale, alike = _fit_scale(self._reader, batches, rows)
                    self._known = (len(rows), scale) if alike and scale else None
                return None
            found = diagnose_batches(
                self._reader,
                batches,
                excess=excess,
                trained_norm=number,
                update_excess=update_excess,
                process_group=self.process_group,
            )
            left_out = self.leave_out and _leave_out(self._reader, batches, found, self._known)
        except Exception as error:  # whatever it is: a run goes on as it would without a monitor
            what = "no spike can be diagnosed"
            if excess is not None:
                what = f"no diagnosis of a norm of {number:.3g}"
            warnings.warn(f"SpikeMonitor: {what}: {error}", stacklevel=2)
            return None
        finally:
            self._busy = False
        line = self.log.write(found, number, left_out=left_out)
        if self.on_spike is not None:
            self.on_spike(line)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what the monitor knows of the run, as plain numbers."""
        return self.log.state_dict() | {"updates": self.updates.state_dict(), "scale": self._known}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self.log.load_state_dict(state)
        if "updates" in state:  # a monitor that watched no optimizer may have left none
            self.updates.load_state_dict(state["updates"])
        self._known = state.get("scale")

    def attach(self, trainer: Any) -> "SpikeMonitor":
        """Watch a transformers or TRL Trainer: its batches as the model gets them, the norm before clipping.

        A Trainer's callbacks get neither, so its model is given a hook and `clip_grad_norm_` a cover. `loss`
        gets the batch as targets.

        Parameters
        ----------
        trainer
            One with `max_grad_norm` above 0, so that it clips.

        Returns
        -------
        SpikeMonitor
            This one.

        Raises
        ------
        ValueError
            If the trainer does not clip, so that it computes no norm, or leaves rows out (`CuratedTrainer`).
        """
        from lai_torch.integrations.transformers import Curated  # transformers is optional elsewhere

        if isinstance(trainer, Curated):
            got = type(trainer).__name__
            msg = f"trainer: expected one that trains on whole batches, got {got}, which leaves rows out"
            raise ValueError(msg)
        if not (trainer.args.max_grad_norm or 0) > 0:
            got = trainer.args.max_grad_norm
            msg = f"trainer: expected max_grad_norm above 0, by which the norm is computed, got {got}"
            raise ValueError(msg)
        self.share(trainer.args.world_size)
        clip = trainer.accelerator.clip_grad_norm_

        def check_and_clip(parameters: Any, max_norm: float, *others: Any, **options: Any) -> Any:
            listed = list(parameters)
            # clipped once the rows that spike are out of it
            norm = clip(listed, float("inf") if self.leave_out else max_norm, *others, **options)
            if norm is not None and self.check(norm) is not None:
                trainer.log({"spike/norm": float(norm)})
            if not self.leave_out:
                return norm
            # accelerate's own would unscale what a scaler has scaled a second time
            return nn.utils.clip_grad_norm_(listed, max_norm, *others, **options)

        def watch(module: nn.Module, _: Any, given: dict[str, Any]) -> None:
            # neither evaluation nor a diagnosis is watched
            if module.training and torch.is_grad_enabled() and not self._busy and "labels" in given:
                self.watch(dict(given), dict(given))

        trainer.accelerator.clip_grad_norm_ = check_and_clip
        trainer.model.register_forward_pre_hook(watch, with_kwargs=True)
        return self


def _leave_out(
    reader: Reader, batches: Sequence[Batch], found: Diagnosis, known: tuple[int, float] | None
) -> bool:
    """Put into `.grad` what the rows that are not named give to it; return whether that is known."""
    rows = range(len(found.losses))
    given, left = _list_gradients(reader), set(rows) - set(found.named)
    # with no row named, or none left, there is no gradient of the others
    if not (found.named and left and given):
        return False
    others = add_gradients(reader, batches, left, found.nonfinite)
    # In few digits, as under autocast, the roundings of a spike are longer than the gradient of the others.
    scale, before = 1 / len(rows), None
    if known is not None and known[0] == len(rows):
        scale = before = known[1]
    # a gradient that is not finite cannot be compared
    if all(bool(one.isfinite().all()) for one in given.values()):
        scale, alike = _fit_scale(reader, batches, rows, others)
        # what trains may be no multiple of these losses
        if not alike and (before is None or abs(scale - before) > ALIKE * abs(before)):
            return False
    for name, one in given.items():
        one.copy_(scale * others.get(name, torch.zeros_like(one)))
    return True


def _list_gradients(reader: Reader) -> dict[str, Tensor]:
    """Return what is in `.grad`; nothing where one is sparse or complex, of which no row is left out."""
    named = list_parameters(reader.model, reader.loss)
    found = {name: one.grad for name, one in named.items() if one.requires_grad and one.grad is not None}
    return {} if any(one.is_sparse or one.is_complex() for one in found.values()) else found


def _fit_scale(
    reader: Reader, batches: Sequence[Batch], rows: Sequence[int], beside: Mapping[str, Tensor] | None = None
) -> tuple[float, bool]:
    """Return the multiple of the rows' summed gradient that `.grad` is, and whether it is one.

    It is if what is left is short beside the gradient of some rows, or of all.
    """
    given, whole = _list_gradients(reader), add_gradients(reader, batches, rows, ())
    scale = _multiply(whole, given) / (_multiply(whole, whole) or math.inf)
    missed = {name: one.double() - scale * whole.get(name, 0.0) for name, one in given.items()}
    beside = whole if beside is None else beside
    return scale, _multiply(missed, missed) <= (ALIKE * scale) ** 2 * _multiply(beside, beside)


def _multiply(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """Return the inner product of two gradients, in double precision: squares of a spike overflow float32."""
    return sum(
        float((one.double() * right[name].double()).sum()) for name, one in left.items() if name in right
    )
