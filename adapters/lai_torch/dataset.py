"""Which samples are bad? Score a whole data set once, into a table that survives the process."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

import lai_core as lai
from lai_core._adapters import check_batch, kernel_of
from lai_torch._curation.scorers.base import chunks
from lai_torch._curation.table import Columns, placed
from lai_torch._curation.validation import own_stream
from lai_torch._model.batch import Loss, count, rows, tensors
from lai_torch._model.preserve import evaluating
from lai_torch.options import Estimator, EstimatorName, check_count, with_defaults
from lai_torch.options.hosts import check_host
from lai_torch.options.keywords import answering
from lai_torch.trace import trace

Batch = tuple[Any, Any]


@answering
def score_dataset(
    model: nn.Module,
    loss: Loss,
    dataset: Any,
    validation: Any,
    folder: str | PathLike[str],
    *,
    estimator: EstimatorName | Estimator = "lai",
    batch_size: int = 64,
    parts: int | None = 16,
    checkpoints: Mapping[str, Any] | None = None,
    ids: Sequence[Any] | None = None,
    groups: Sequence[Any] | None = None,
    rows_per_file: int = 4096,
    process: tuple[int, int] | None = None,
    progress: bool = True,
) -> Any:
    r"""Score every sample of a data set against a validation set, into a folder of Parquet files.

    One row a sample, read by `lai_core.storage.tables.read_scores`: `id`; `score`, positive helps;
    `standard_error` of the score over the draw of the validation set; the sample's own `loss`;
    `gradient_norm`, the norm of what the estimator sees of its gradient (`lai_core.self_influence`); `group`
    and `checkpoint` where they are given. Memory holds one batch, and the validation set's summary `parts`
    times.

    An interrupted run goes on where it stopped when it is started again with the same arguments: each part
    appears whole or not at all, and no sample is lost or stands there twice. Processes share the work.

    Parameters
    ----------
    model
        Scored in eval mode; afterwards as before.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number per sample.
    dataset
        A pair `(inputs, targets)`; a data set with a length whose items are pairs (input, target); a
        `DataLoader` over one, whose collation and workers are used, not its order.
    validation
        `(inputs, targets)`, or a data set, which is loaded whole.
    folder
        Where the table is written; made where it is missing.
    estimator
        By name, or with its options but for `chunk` and `parts`, which are `batch_size` and `parts` here; not
        `midpoint` or `preconditioned_lai`, which are of a training run.
    batch_size
        How many samples are scored, and at most traced of the validation set, at once. Scores do not depend
        on it but for rounding; those of `calibrated_lai` do, which fits its weights on so many.
    parts
        Into how many consecutive parts the validation set is cut for the standard error: the
        estimator's own `parts`, at 16. Shuffle a set that is sorted. None: no standard
        error. Nor is there one for `exact` and `gate_lai`.
    checkpoints
        Names, and state dicts or their paths: the data set is scored with each, as TracIn does, and
        `read_scores(folder, average=True)` averages.
    ids, groups
        What the samples are called, and to what they belong; whole numbers or text. None: the sample's
        number; no column.
    rows_per_file
        Samples in one file: what an interruption loses at most.
    process
        Which process this is and how many there are. None: from `torch.distributed` where it is set up, else
        `(0, 1)`.
    progress
        Whether to show a bar.

    Returns
    -------
    pyarrow.Table
        What `lai_core.storage.tables.read_scores(folder)` returns. None where several processes share the
        work: read the table when all of them are done.

    Raises
    ------
    ValueError
        If the folder holds scores of another model, validation set, estimator or size; if an argument does
        not fit.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> import lai_torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> data, validation = ((torch.randn(n, 4), torch.randint(3, (n,))) for n in (50, 32))
    >>> folder = tempfile.mkdtemp()
    >>> lai_torch.score_dataset(model, loss, data, validation, folder, progress=False).column_names
    ['id', 'score', 'standard_error', 'loss', 'gradient_norm', 'rank']
    """
    from lai_core.storage.tables import digest, read_scores, score_parts  # needs pyarrow

    chosen = with_defaults(estimator)
    _check_estimator(chosen)
    check_host("score_dataset", **vars(chosen))
    check_count("batch_size", batch_size, 1)
    check_count("rows_per_file", rows_per_file, 1)
    if hasattr(chosen, "parts"):
        chosen = replace(chosen, parts=parts)  # type: ignore[call-arg]  # of those that sum parts up
    samples, load = _loaded("dataset", dataset, batch_size)
    held_out = _whole(validation)
    settings = {
        "estimator": repr(chosen),
        "batch_size": batch_size,
        "validation": digest(_bytes(tensors(held_out))),
    }
    process = _process() if process is None else process
    begun = {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    try:
        for name, state in ({"": begun} if checkpoints is None else checkpoints).items():
            if name:
                model.load_state_dict(_state(state))
            columns = Columns(model, loss, chosen, held_out, size=batch_size)
            score_parts(
                folder,
                settings | {"model": digest(_bytes(tensors(model.state_dict())))},
                partial(_rows, columns, load),
                samples=samples,
                rows=rows_per_file,
                process=process,
                progress=progress,
                checkpoint=name,
                ids=ids,
                groups=groups,
            )
    finally:
        if checkpoints is not None:
            model.load_state_dict(begun, strict=False)  # but for what is no tensor
    return read_scores(folder) if process[1] == 1 else None


@answering
def top_samples(
    model: nn.Module,
    loss: Loss,
    dataset: Any,
    validation: Any,
    *,
    top: int = 10,
    estimator: Literal["ghost", "lai", "lli"] = "ghost",
    relative: bool = False,
    batch_size: int = 64,
    ids: Sequence[Any] | None = None,
    validation_ids: Sequence[Any] | None = None,
    progress: bool = True,
) -> Any:
    """Find the training samples that help and hurt each validation sample most.

    Scores are the entries of the estimator's kernel: what a step on the training sample does to the
    validation sample's own loss, to first order. Memory holds both traces, of the validation set and of one
    batch, and their kernel.

    Parameters
    ----------
    model, loss, dataset, validation, batch_size, ids, progress
        As for `score_dataset`; the model is in eval mode meanwhile.
    top
        How many samples of either effect are listed for a validation sample.
    estimator
        `ghost`, `lai` or `lli`: those that have a kernel.
    relative
        Whether to divide each score by the norm of the training sample's gradient: what a step of unit length
        on it does (RelatIF of Barshan et al., 2020). Else samples with large gradients, such as wrong labels,
        stand first on both sides.
    validation_ids
        What the validation samples are called; None: their numbers.

    Returns
    -------
    pyarrow.Table
        See `lai_core.storage.top.top_samples`.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model, loss = torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(reduction="none")
    >>> data, validation = ((torch.randn(n, 4), torch.randint(3, (n,))) for n in (50, 2))
    >>> table = lai_torch.top_samples(model, loss, data, validation, top=3, progress=False)
    >>> table.column_names
    ['validation', 'effect', 'place', 'id', 'score']
    """
    from lai_core.storage.top import top_samples

    kernel, gradients = kernel_of(estimator)
    check_count("batch_size", batch_size, 1)
    samples, load = _loaded("dataset", dataset, batch_size)
    traced = partial(trace, model, loss, gradients=gradients)

    def blocks() -> Iterator[Tensor]:
        with evaluating(model):
            held_out = traced(*placed(_whole(validation), model))
            for batch in load(range(samples)):
                training = traced(*placed(_pair("dataset", batch), model))
                scores = kernel(held_out, training)
                yield scores / lai.self_influence(training, estimator).sqrt() if relative else scores

    named: dict[str, Any] = {"ids": ids, "validation_ids": validation_ids}
    return top_samples(blocks(), top=top, **named, samples=samples, progress=progress)


def _rows(columns: Columns, load: Callable[[range], Iterable[Any]], span: range) -> dict[str, Any]:
    """Return the columns of consecutive samples."""
    batches = [columns(placed(_pair("dataset", batch), columns.model)) for batch in load(span)]
    return {name: torch.cat([each[name] for each in batches]).cpu().numpy() for name in batches[0]}


def _loaded(role: str, dataset: Any, size: int) -> tuple[int, Callable[[range], Iterable[Any]]]:
    """Return how many samples there are, and what makes batches of consecutive ones."""
    if isinstance(dataset, tuple):
        check_batch(role, dataset)
        samples = count(*dataset)
        return samples, lambda span: chunks(rows(dataset, slice(span.start, span.stop), samples), size)
    options: dict[str, Any] = {}
    if isinstance(dataset, DataLoader):
        options = {name: getattr(dataset, name) for name in ("collate_fn", "num_workers")}
        dataset = dataset.dataset
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        msg = (
            f"{role}: expected one with a length and numbered samples, a pair (inputs, targets), or a "
            f"DataLoader over one, got {type(dataset).__name__}: what only streams cannot be taken up again"
        )
        raise TypeError(msg)
    if not len(dataset):
        msg = f"{role}: expected at least one sample, got none"
        raise ValueError(msg)
    # the loader's own stream: its workers' seeds are none of training's draws
    return len(dataset), lambda span: DataLoader(
        Subset(dataset, span), batch_size=size, generator=own_stream(), **options
    )


def _whole(validation: Any) -> Batch:
    """Return a validation set as one pair."""
    if isinstance(validation, tuple):
        check_batch("validation", validation)
        return validation
    samples, _ = _loaded("validation", validation, 1)
    _, load = _loaded("validation", validation, samples)
    return _pair("validation", next(iter(load(range(samples)))))


def _pair(role: str, batch: Any) -> Batch:
    pair = tuple(batch) if isinstance(batch, list) else batch
    check_batch(f"{role}, a batch", pair)
    return pair


def _check_estimator(estimator: Estimator) -> None:
    if estimator.name in {"midpoint", "preconditioned_lai"}:
        msg = (
            f"estimator: expected one that scores a sample by itself, got {estimator.name!r}, which depends "
            "on the training run's optimizer or past; use 'lai', 'ghost' or 'exact'"
        )
        raise ValueError(msg)


def _state(state: Any) -> Mapping[str, Any]:
    return state if isinstance(state, Mapping) else torch.load(state, weights_only=True, map_location="cpu")


def _process() -> tuple[int, int]:
    spread = torch.distributed.is_available() and torch.distributed.is_initialized()
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if spread else (0, 1)


def _bytes(values: Iterable[Tensor]) -> Iterator[tuple[str, Any]]:
    for value in values:
        bits = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        yield f"{value.dtype}{tuple(value.shape)}", bits.numpy().data
