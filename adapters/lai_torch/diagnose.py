"""Which row of a batch makes its gradient: exact norms, by trace, or by one backward pass a sample."""

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

import lai_core as lai
from lai_core._adapters import GRADIENT_BUDGET, accept_old_keywords, check_segment_numbers, sum_gradients
from lai_core.diagnosis import Diagnosis as Diagnosis
from lai_core.diagnosis.measure import NOTHING, Gradients, Part, Sums, measure, measure_by_rows, measure_trace
from lai_core.diagnosis.report import check_ids, check_usual, conclude
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.group import Group
from lai_torch._exact.by_position import check_positions
from lai_torch._graph.assemble import TRANSPOSED
from lai_torch._graph.record import Reader, Recording
from lai_torch._graph.uses import CoupledError
from lai_torch._model.batch import Loss, call, check_losses, count, row_sources, rows, tensors, usable
from lai_torch._model.function import densify, losses_of, real_product, view_real
from lai_torch._model.preserve import preserve, run_alone, use_eval_mode
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import list_parameters, modules_of, set_training


@accept_old_keywords(group="process_group")
def diagnose(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    ids: Sequence[Any] | None = None,
    usual_norm: float | None = None,
    process_group: Any = None,
    segments: Tensor | None = None,
) -> Diagnosis:
    r"""Find which row of a batch makes its gradient, in which layer, at which positions.

    Norms and shares are exact: of one trace with all gradients where the model
    has one, else of two backward passes a sample, so that no batch is refused that can be trained on. The
    model runs in the mode it is in, and is left as it was.

    Rows with a loss or gradient that is not finite are named with the first module whose output is not
    finite, and the numbers are of the others. Where BatchNorm in training mode couples the samples, none has
    a gradient of its own: a row's numbers are then of the part of the batch's gradient that its activations
    make, :math:`\sum_l (\partial L / \partial s_j^l) (a_j^{l-1})^\top`. These parts add up to the gradient
    that training sees.

    Parameters
    ----------
    model, loss
        As for `trace`; `loss(outputs, targets) -> (n,)`, weighted as it is trained.
    inputs, targets
        The batch, in the form `trace` takes.
    ids
        What to call the rows.
    usual_norm
        The usual norm of a batch's summed gradient, where a run knows it (`SpikeMonitor` does). Rows are then
        named until what is left is usual, also where a few long rows are.
    process_group
        The process group among which a batch is divided. All of its processes call, each with its own rows
        and ids, and get the diagnosis of the whole batch, in which rows are numbered process by process. A
        model that is sharded by `fully_shard` has one by itself; its parameters are gathered meanwhile.
    segments
        `(n, t)` whole numbers from 0 on: the document of every position of packed rows, -1 of one that
        belongs to none. The rows of the diagnosis, and `ids`, are then the documents, and `loss` gives
        `(n, t)`, a number a position. Of a document the gradient is that of its own losses, whatever they
        read, by two backward passes a document on one process; positions are not told.

    Returns
    -------
    Diagnosis
        `print` says in three lines which row, where, and how long the gradient is without it; `rows()` is a
        table, `to_svg()` a picture, `to_json()` what a log keeps.

    Raises
    ------
    ValueError
        If the loss is not one number per sample, or no parameter trains.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets) ** 2
    >>> inputs, targets = torch.randn(16, 4), torch.zeros(16)
    >>> targets[3] = 400.0
    >>> found = lai_torch.diagnose(model, loss, inputs, targets, ids=[f"doc-{i}" for i in range(16)])
    >>> found.named, found.verdict
    ((3,), 'rows')
    """
    # Of this batch alone are the numbers: what its rows would be beside others need not be proved.
    reader, batch = Reader(model, loss, every=True, exchanged=False), Batch((inputs, targets), ids)
    if segments is None:
        return diagnose_batches(reader, [batch], usual_norm=usual_norm, process_group=process_group)
    if process_group is not None:
        msg = "segments: expected None with a process group; diagnose each process's documents by themselves"
        raise ValueError(msg)
    return _diagnose_documents(reader, batch, segments, usual_norm)


_TOGETHER = "a gradient, in this batch alone"
"""Where a row is not finite that by itself is."""


@dataclass(frozen=True)
class Batch:
    """A batch that ran, or a micro-batch of a step: `(inputs, targets)`, ids, and the random state before."""

    given: tuple[Any, Any]
    ids: Sequence[Any] | None = None
    streams: Streams | None = None


@dataclass(frozen=True)
class Measured:
    """A micro-batch: its losses, its part, what couples its rows, where they are not finite, their ids."""

    losses: Tensor
    part: Part
    coupled: tuple[str, ...]
    nonfinite: Mapping[int, str]
    ids: Sequence[Any]


@run_alone
def diagnose_batches(
    reader: Reader,
    batches: Sequence[Batch],
    *,
    usual_norm: float | None = None,
    excess: float | None = None,
    trained_norm: float | None = None,
    update_excess: float | None = None,
    process_group: Any = None,
) -> Diagnosis:
    """Diagnose the micro-batches of a step with a reader, which may have proved the model's graph before."""
    check_usual(usual_norm)
    with _gather_parameters(reader, process_group) as shared:
        trained = _list_trained(reader)
        counts = shared.objects(len(batches))
        # processes take part batch by batch
        if len({*counts}) > 1 or not batches:
            msg = f"watch: expected as many micro-batches on every process, at least one, got {counts}"
            raise ValueError(msg)
        with shared.raise_together():  # what one process refuses, each raises
            for batch in batches:
                check_ids(batch.ids, count(*usable(batch.given)))
            # one batch's trace can be kept; of several the passes run again
            found = [_measure_batch(reader, batch, again=len(batches) > 1) for batch in batches]
        listed = shared.objects([_list_forms(one.part) for one in found if one.part.rows])
        pairs = [pair for own in listed for forms in own for pair in forms.items()]
        first = dict(reversed(pairs))
        if any(form != first[name] for name, form in pairs):  # sums of two forms do not meet
            with shared.raise_together():
                found = [_measure_batch(reader, batch, again=True, traced=False) for batch in batches]
        found = [share(one, shared) for one in found]
        starts = [0, *accumulate(len(one.losses) for one in found)]
        kept: list[int] = []
        bad: dict[int, str] = {}
        for start, one in zip(starts, found, strict=False):
            kept += [start + row for row in one.part.rows]
            bad |= {start + row: where for row, where in one.nonfinite.items()}
        ids = [name for one in found for name in one.ids]
        return conclude(
            measure([one.part for one in found]),
            torch.cat([one.losses for one in found]),
            rows=kept,
            ids=None if all(name is None for name in ids) else ids,
            nonfinite=bad,
            coupled=tuple(dict.fromkeys(name for one in found for name in one.coupled)),
            usual_norm=usual_norm,
            excess=excess,
            trained_norm=trained_norm,
            update_excess=update_excess,
            parameters=[*trained],
        )


def _list_trained(reader: Reader) -> dict[str, nn.Parameter]:
    named = list_parameters(reader.model, reader.loss)
    trained = {name: one for name, one in named.items() if one.requires_grad}
    if not trained:
        msg = "model: expected at least one trainable parameter, got none"
        raise ValueError(msg)
    return trained


@run_alone
def _diagnose_documents(
    reader: Reader, batch: Batch, segments: Tensor, usual_norm: float | None
) -> Diagnosis:
    """Diagnose the documents of packed rows, each by the gradient of its own losses."""
    check_usual(usual_norm)
    model, loss, given = reader.model, reader.loss, usable(batch.given)
    known = segments[segments >= 0].unique().tolist()
    documents = len(known)
    # one without positions would be a row of gradient zero, and shift what is usual
    if not known or known[-1] != documents - 1:
        msg = f"segments: expected documents numbered from 0 without a gap, got {known[:8]}"
        raise ValueError(msg)
    check_ids(batch.ids, documents)

    def compute_losses() -> Tensor:
        losses = check_positions(losses_of(model, loss, given))
        check_segment_numbers(segments, losses.shape, documents)
        own = segments.flatten().to(losses.device) >= 0
        numbers = segments.flatten().to(losses.device)[own].long()
        return losses.new_zeros(documents).index_add(0, numbers, losses.flatten()[own])

    with _gather_parameters(reader, None):
        trained = _list_trained(reader)

        def start(_: Sequence[int]) -> Gradients:
            return partial(_differentiate_groups, reader, batch, compute_losses, kept)

        with preserve(model, loss, hooks=True):
            found = compute_losses().detach()
        kept = found.isfinite().nonzero().flatten().tolist()
        part = measure_by_rows(start, kept)
        # one that is not finite may spoil the gradients of all, and is then named alone
        bad = [row for row in range(documents) if row not in kept] or range(documents)
        where = dict.fromkeys(range(documents), "the loss") | dict.fromkeys(kept, _TOGETHER)
        return conclude(
            measure([part]),
            found,
            rows=part.rows,
            ids=batch.ids,
            nonfinite={row: where[row] for row in bad if row not in part.rows},
            usual_norm=usual_norm,
            parameters=[*trained],
        )


@contextmanager
def _gather_parameters(reader: Reader, process_group: Any) -> Iterator[Group]:
    """Have whole parameters in the model, and yield the processes that share its batches."""
    parameters = list_parameters(reader.model, reader.loss).values()
    if any(isinstance(one, DTensor) for one in parameters):
        engine = Engine(reader.model, reader.loss, process_group, own=True)
        with engine.gather():
            yield engine.group
    else:
        yield Group(process_group, next((one.device for one in parameters), torch.device("cpu")))


@run_alone
def prove(reader: Reader, batches: Sequence[Batch], process_group: Any = None) -> None:
    """Prove a model's graph on the first of some batches, if there is one and it can be proved.

    Raises
    ------
    ValueError
        Where no spike could be diagnosed either.
    """
    reader.exchanged = True  # a plan that holds for other batches is proved beside other samples
    try:
        with _gather_parameters(reader, process_group):
            for batch in batches[:1]:
                with _replay_draws(reader, batch):
                    _run(reader, usable(batch.given))
                    _record(reader, usable(batch.given), _find_coupling(reader.model))
    finally:
        reader.exchanged = False


@run_alone
def add_gradients(
    reader: Reader, batches: Sequence[Batch], some: Container[int], bad: Container[int]
) -> dict[str, Tensor]:
    """Return the summed gradient of some rows, numbered through the micro-batches; no `bad` one runs."""
    start = 0
    total: dict[str, Tensor] = {}
    for batch in batches:
        samples = count(*usable(batch.given))
        run = [row for row in range(samples) if start + row not in bad]
        own = [place for place, row in enumerate(run) if start + row in some]
        start += samples
        if own:
            (found,) = _start(reader, batch, usable(batch.given), run)([own])
            for name, one in found.items():
                total[name] = total.get(name, 0.0) + one
    return total


@contextmanager
def _replay_draws(reader: Reader, batch: Batch) -> Iterator[None]:
    """Run the body from the random state that a batch had."""
    if batch.streams is None:
        yield
        return
    now = Streams(modules_of(reader.model, reader.loss))
    batch.streams.restore()
    try:
        yield
    finally:
        now.restore()


def _measure_batch(reader: Reader, batch: Batch, *, again: bool, traced: bool = True) -> Measured:
    """Measure a micro-batch, by a trace if there is one, and find where its rows are not finite."""
    given = usable(batch.given)
    samples = count(*given)
    norms = _find_coupling(reader.model)
    losses, kept, part = None, list(range(samples)), NOTHING
    coupled: tuple[str, ...] = ()
    with _replay_draws(reader, batch):
        while kept:
            filled = _fill(given, kept, samples)
            if traced and (recording := _record(reader, filled, norms)) and not recording.plan.unexplained:
                found, coupled = recording.losses.detach(), tuple(norms)
                finite = [row in kept and value for row, value in enumerate(found.isfinite().tolist())]
                record = partial(_record_again, reader, batch, filled, norms, [recording.trace])
                part = measure_trace(record, finite, partial(_name_key, recording.explained), again=again)
            else:
                found = _run(reader, filled)
            if losses is None:
                losses = found
            else:
                index = torch.tensor(kept, device=losses.device)
                losses = losses.index_copy(0, index, found[index].to(losses.dtype))
            if part is not NOTHING:
                break
            # a row that is not finite can hide what the others are, or spoil them
            bad = [row for row in kept if not found[row].isfinite()]
            if len(bad) == len(kept):
                bad = [row for row in kept if _find_nonfinite(reader, given, row, samples) != _TOGETHER]
            if not bad:
                part = measure_by_rows(partial(_start, reader, batch, given), kept)
                break
            kept = [row for row in kept if row not in bad]
        rest = (row for row in range(samples) if row not in part.rows)
        where = {row: _find_nonfinite(reader, given, row, samples) for row in rest}
    assert losses is not None
    return Measured(losses, part, coupled, where, [None] * samples if batch.ids is None else list(batch.ids))


def _list_forms(part: Part) -> dict[str, set[Any]]:
    """Return how a part was measured, and by which keys, in which shapes, it sums each parameter up."""
    found: defaultdict[str, set[Any]] = defaultdict(set, {"": {part.traced}})
    for key, arrays in (part.total or {}).items():
        place: Any = key[0] if isinstance(key, tuple) else ("", key)
        # one matrix may be called otherwise where it is read the other way round, or as one of several
        name = str(place[1]).removesuffix(TRANSPOSED).partition("[")[0]
        found[name].add((key, tuple(tuple(one.shape) for one in arrays)))
    return found


def share(own: Measured, group: Group) -> Measured:
    """Return what all processes measured of a micro-batch, each of its own rows: the same on every one."""
    if group.size == 1:
        return own
    part = own.part
    shapes = {key: [(one.shape, one.dtype) for one in arrays] for key, arrays in (part.total or {}).items()}
    # what a process tells the others, as plain values: of sums their shapes and types
    plain: dict[str, Any] = {"total": shapes, "along": None, "add": None}
    numbers: dict[str, Any] = {"losses": own.losses.tolist(), "part": replace(part, **plain)}
    told: list[Any] = group.objects(replace(own, **numbers))
    starts = [0, *accumulate(len(one.losses) for one in told)]
    parts = [one.part for one in told]
    places = [0, *accumulate(len(one.rows) for one in parts)]
    known: dict[Hashable, list[Any]] = {}
    for key, arrays in (pair for one in parts for pair in one.total.items()):
        # a process whose rows are not all finite has measured in double precision
        before = zip(arrays, known.get(key, arrays), strict=True)
        known[key] = [(shape, torch.promote_types(kind, other)) for (shape, kind), (_, other) in before]

    def meet(sums: Sums | None) -> dict[Hashable, tuple[Tensor, ...]]:
        given = sums or {}
        found = {}
        for key in sorted(known, key=str):  # what a process has no rows of is zero there
            arrays = given.get(key) or [torch.zeros(shape, device=group.device) for shape, _ in known[key]]
            kinds = [kind for _, kind in known[key]]
            own = [one.to(kind).contiguous() for one, kind in zip(arrays, kinds, strict=True)]
            found[key] = tuple(group.reduce_sum(own))
        return found

    def project(total: Sums) -> list[float]:
        with group.raise_together():  # passes run again, and memory may end on one process
            found = part.along(total)
        return [one for many in group.objects(found) for one in many]

    def add(rows: Sequence[int]) -> Sums | None:
        first = places[group.rank]
        with group.raise_together():
            found = part.add([row - first for row in rows if first <= row < places[group.rank + 1]])
        return meet(found)

    names = dict.fromkeys(name for one in parts for name in one.squares)
    rows, bad = list[int](), dict[int, str]()
    for start, one in zip(starts, told, strict=False):
        rows += [start + row for row in one.part.rows]
        bad |= {start + row: where for row, where in one.nonfinite.items()}
    positions = [row for one in parts for row in one.positions or ()]
    whole = Part(
        rows,
        {name: [v for p in parts for v in p.squares.get(name, [0.0] * len(p.rows))] for name in names},
        meet(part.total) or None,
        project,
        add,
        positions if len(positions) == len(rows) and len({*map(len, positions)}) == 1 else None,
        traced=any(one.traced for one in parts),
    )
    every = [loss for one in told for loss in one.losses]
    losses = torch.tensor(every, dtype=own.losses.dtype, device=group.device)
    coupled = tuple(dict.fromkeys(name for one in told for name in one.coupled))
    return Measured(losses, whole, coupled, bad, [name for one in told for name in one.ids])


def _fill(given: tuple[Any, Any], kept: Sequence[int], samples: int) -> tuple[Any, Any]:
    """Return a batch in which copies of rows that are kept stand for the others."""
    # as large as before: random numbers, masks and the places of rows stay what they are
    if len(kept) == samples:
        return given
    part = torch.zeros(samples, dtype=torch.bool, device="cpu")
    part[list(kept)] = True
    filled: tuple[Any, Any] = rows(given, row_sources(part), samples)
    return filled


def _record_again(
    reader: Reader,
    batch: Batch,
    given: tuple[Any, Any],
    norms: Mapping[str, nn.Module],
    first: list[lai.Trace],
) -> lai.Trace:
    """Return the first trace, which is not kept, then others."""
    if first:
        return first.pop()
    with _replay_draws(reader, batch):
        found = _record(reader, given, norms)
    assert found is not None  # as it was before
    return found.trace


def _record(reader: Reader, given: tuple[Any, Any], norms: Mapping[str, nn.Module]) -> Recording | None:
    """Return a recording, None where the reader refuses."""
    try:
        if norms:
            return _record_parts(reader, given, norms)
        return reader.record(given)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever the reader refuses, or trips over, autograd differentiates
        return None


def _name_key(explained: Mapping[Any, list[str]], key: Any) -> str | None:
    """Return the parameter of a key under which a trace's gradients are measured; None of nothing's."""
    (kind, weight), part = key
    if kind == "layer":  # the record of nothing that stands where there is no single last layer
        return None
    names = explained.get(weight, [str(weight)])
    return names[-1] if part == "bias" else names[0]


# ---- samples that BatchNorm couples


def _find_coupling(model: nn.Module) -> dict[str, nn.Module]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.training and module.running_mean is not None
    }


def _record_parts(reader: Reader, batch: tuple[Any, Any], norms: Mapping[str, nn.Module]) -> Recording:
    """Record what each row's activations make of the gradient of a batch that norms couple."""
    # The graph is that of the pass with running statistics, which couples nothing: there it is proved where
    # the samples lie, and then once that the parts add up.
    model, loss = reader.model, reader.loss

    def read(proved: Recording | None) -> Recording:
        with preserve(model, loss, hooks=True):
            losses = check_losses(losses_of(model, loss, batch), count(*batch))
            found = reader.read_as(proved, losses)
            if proved is None:
                return found
            # the parts of rows add up to the gradient of the batch
            trained = [one for one in list_parameters(model, loss).values() if one.requires_grad]
            whole = torch.autograd.grad(losses.sum(), trained, allow_unused=True, retain_graph=True)
            total = sum(float(real_product(one, one).sum()) for one in whole if one is not None)
            sums = sum_gradients(found.trace, GRADIENT_BUDGET).values()
            summed = sum(float(real_product(one, one).sum()) for given in sums for one in given)
            if losses.isfinite().all() and abs(summed - total) > 1e-3 * total:
                msg = "model: parts of rows do not add up to the gradient of the batch"
                raise ValueError(msg)
        return found

    try:
        return read(None)
    except CoupledError:  # none was read before
        modules = list(norms.values())
        set_training(modules, mode=False)  # with running statistics
        try:
            proved = reader.record(batch)
        finally:
            set_training(modules, mode=True)
        return read(proved)


# ---- any model, by its losses


def _run(reader: Reader, batch: tuple[Any, Any]) -> Tensor:
    model, loss = reader.model, reader.loss
    with preserve(model, loss, hooks=True):  # with gradients: a model may take some in its forward pass
        return check_losses(losses_of(model, loss, batch), count(*batch)).detach()


def _start(reader: Reader, batch: Batch, given: tuple[Any, Any], some: Sequence[int]) -> Gradients:
    """Return what differentiates the losses of some rows, in one forward pass."""
    filled, samples = _fill(given, some, count(*given)), count(*given)

    def compute_losses() -> Tensor:
        losses = check_losses(losses_of(reader.model, reader.loss, filled), samples)
        if not losses.requires_grad:
            msg = "loss: expected losses that depend on a trainable parameter, got ones that depend on none"
            raise ValueError(msg)
        return losses

    return partial(_differentiate_groups, reader, batch, compute_losses, some)


def _differentiate_groups(
    reader: Reader,
    batch: Batch,
    compute_losses: Callable[[], Tensor],
    some: Sequence[int],
    groups: Iterable[Sequence[int]],
) -> Iterator[dict[str, Tensor]]:
    """Yield the gradient by parameter, of real numbers, of the sum of each group of some losses."""
    trained = _list_trained(reader)
    with _replay_draws(reader, batch), preserve(reader.model, reader.loss, hooks=True):
        losses = compute_losses()
        for group in groups:
            total = losses[[some[place] for place in group]].sum()
            found = torch.autograd.grad(total, [*trained.values()], allow_unused=True, retain_graph=True)
            pairs = zip(trained, found, strict=True)
            yield {name: view_real(densify(one)) for name, one in pairs if one is not None}


# ---- rows that are not finite


def _find_nonfinite(reader: Reader, given: tuple[Any, Any], row: int, samples: int) -> str:
    """Return where a row first is not finite: in the inputs, a module's output, the loss, or a gradient."""
    model, loss = reader.model, reader.loss
    inputs, targets = rows(given, torch.full((samples,), row, device="cpu"), samples)
    named = list_parameters(model, loss)
    parts = {"inputs": inputs, "targets": targets} | {f"parameter {n}": p for n, p in named.items()}
    for what, side in parts.items():
        if not _is_finite(side):
            return what
    found: list[str] = []

    def watch(name: str, _module: nn.Module, _args: Any, output: Any) -> None:
        if not _is_finite(output):
            found.append(name)

    leaves = [(name, one) for name, one in model.named_modules() if next(one.children(), None) is None]
    hooks = [one.register_forward_hook(partial(watch, name or "the model")) for name, one in leaves]
    try:
        norms: list[Any] = [*_find_coupling(model).values()]
        with preserve(model, loss), use_eval_mode(model):
            # training reads no running statistics; the step that is diagnosed may have spoilt them for all
            for norm in norms:
                if not _is_finite((norm.running_mean, norm.running_var)):
                    norm.reset_running_stats()
            output = call(model, inputs)
            if found or not _is_finite(output):
                return next(iter(found), "the model's output")
            losses = loss(output, targets)
            if not _is_finite(losses):
                return "the loss"
            trained = {name: one for name, one in named.items() if one.requires_grad}
            own = torch.autograd.grad(losses[row], [*trained.values()], allow_unused=True)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a loss of a batch need not take one row again and again
        return _TOGETHER
    finally:
        for hook in hooks:
            hook.remove()
    pairs = zip(trained, own, strict=True)
    bad = [f"the gradient of {name}" for name, one in pairs if one is not None and not _is_finite(one)]
    return next(reversed(bad), _TOGETHER)


def _is_finite(tree: Any) -> bool:
    return all(
        bool(one.isfinite().all()) for one in tensors(tree) if one.is_floating_point() or one.is_complex()
    )
