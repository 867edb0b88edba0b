"""Which samples are bad? Tables of a whole data set's scores, and each validation sample's extremes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Literal

import torch
from lai_storage.scoring import Stream, score_source
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import check_batch, check_count, kernel_of
from lai_torch._curation.validation import move_to_model
from lai_torch._graph.record import Reader, Recording
from lai_torch._graph.unlike import record_alike
from lai_torch._model.batch import Loss
from lai_torch._model.preserve import run_alone, use_eval_mode
from lai_torch.dataset.loaded import options_of, source_of, whole
from lai_torch.dataset.scorer import Scorer
from lai_torch.options import Estimator, EstimatorName
from lai_torch.trace import check_explained


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
    collate: tuple[str, str] | Callable[[dict[str, Any]], Any] | None = None,
    ids: Sequence[Any] | str | None = None,
    groups: Sequence[Any] | str | None = None,
    rows_per_file: int = 4096,
    process: tuple[int, int] | None = None,
    progress: bool = True,
) -> Any:
    r"""Score every sample of a data set against a validation set, into a folder of Parquet files.

    One row a sample, read by `lai_storage.tables.read_scores`: `id`; `score`, positive helps;
    `standard_error` of the score over the draw of the validation set; the sample's own `loss`;
    `gradient_norm`, the norm of what the estimator sees of its gradient (`lai_core.self_influence`); `group`
    and `checkpoint` where they are given. Memory holds one batch, and the validation set's summary `parts`
    times.

    An interrupted run goes on where it stopped when it is started again with the same arguments: each part
    appears whole or not at all, and no sample is lost or stands there twice. Resume with the same code:
    functions and classes are compared by name, data and parameters by content. Processes share the work. A
    stream is read again from its start, and only the missing parts are scored; a stream with other ids than
    those in the table is refused.

    Parameters
    ----------
    model
        Scored in eval mode; afterwards as before.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number per sample.
    dataset
        A pair `(inputs, targets)`; a data set with a length whose items are pairs (input, target) or
        dictionaries; a stream, an iterable over such items without a length; a `DataLoader` over either, of
        which the collation and, with a length, the workers are used, not the order.
    validation
        `(inputs, targets)`; a data set, which is loaded whole; or a summary, as for `Scorer`.
    folder
        Where the table is written; made where it is missing.
    estimator
        By name, or with its options but for `chunk` and `parts`, which are `batch_size` and `parts` here; not
        `midpoint` or `preconditioned_lai`, which are of a training run.
    checkpoints
        Names, and state dicts or their paths: the data set is scored with each, as TracIn does, and
        `read_scores(folder, average=True)` averages.
    batch_size
        How many samples are scored at once; larger batches are cut. Scores do not depend on it but for
        rounding; those of `calibrated_lai` do, which fits its weights on so many, and those of `lai` on
        models that route or sort rows (see `LAI`).
    parts
        Into how many consecutive parts the validation set is cut for the standard error; shuffle a set that
        is sorted. None: no standard error; nor has `exact` or `gate_lai` one.
    collate
        From a batch's columns to inputs and targets: the names of two columns, or a function of all columns
        but those of `ids` and `groups`. Numbers come as tensors, those with a fraction in the type of the
        model's parameters; all else, and rows of several shapes, as lists. None: the model gets all columns
        by name, and the loss the mapping.
    ids
        The samples' ids, whole numbers or text; or the name of the column that holds them. None: numbers.
    groups
        The samples' groups, whole numbers or text; or the name of the column that holds them.
    rows_per_file
        How many rows an interruption loses at most.
    process
        This process's number, and how many there are; each reads the whole stream. None: the framework's.
    progress
        Whether to show a bar.

    Returns
    -------
    pyarrow.Table
        What `lai_storage.tables.read_scores(folder)` returns. None where several processes share the
        work: read the table when all of them are done.

    Raises
    ------
    ValueError
        If the folder belongs to another run, named by what differs; if an argument does not fit.

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
    check_count("rows_per_file", rows_per_file, 1)
    names = {name: values for name, values in (("ids", ids), ("groups", groups)) if isinstance(values, str)}
    # a loader is read once, for all checkpoints
    if not Scorer._is_summary(validation):
        validation = whole(validation)
    made = partial(
        Scorer,
        model,
        loss,
        validation,
        estimator=estimator,
        parts=parts,
        batch_size=batch_size,
        collate=collate,
        **names,
    )
    scorer = made()
    if process is None:
        process = 0, 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            process = torch.distributed.get_rank(), torch.distributed.get_world_size()
    # checkpoints are loaded into the user's own model
    begun = {}
    if checkpoints is not None:
        begun = {
            name: value.clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)
        }

    def load(checkpoint: str, state: Any) -> Scorer:
        load_state(model, checkpoint, state)
        return made()

    try:
        return score_source(
            folder,
            scorer,
            source_of("dataset", dataset, batch_size),
            checkpoints,
            load,
            {"estimator": options_of(scorer.estimator), "parts": parts, "batch_size": batch_size},
            {"ids": ids, "groups": groups},
            rows=rows_per_file,
            process=process,
            progress=progress,
        )
    finally:
        if checkpoints is not None:
            model.load_state_dict(begun, strict=False)  # but for what is no tensor


def load_state(model: nn.Module, checkpoint: str, state: Any) -> None:
    """Load a checkpoint, a state dict or the path of one, into a model."""
    try:
        # a path: checkpoints need not be in memory together
        if not isinstance(state, Mapping):
            state = torch.load(state, weights_only=True, map_location="cpu")
        model.load_state_dict(state)
    except Exception as error:  # of a file of another kind torch raises any
        why = str(error).partition("\n\n")[0]
        msg = f"checkpoints[{checkpoint!r}]: expected a state dict of the model, or the path of one: {why}"
        raise ValueError(msg) from error


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
    model, loss, dataset, validation, batch_size
        As for `score_dataset`; the model is in eval mode meanwhile.
    estimator
        `ghost`, `lai` or `lli`: those that have a kernel.
    relative
        Whether each score is divided by the norm of the training sample's gradient (RelatIF), which else
        puts samples with large gradients first.
    top, ids, validation_ids, progress
        As for `lai_storage.top.top_samples`.

    Returns
    -------
    pyarrow.Table
        See `lai_storage.top.top_samples`.

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
    from lai_storage.top import top_samples

    kernel, gradients = kernel_of(estimator)
    check_count("batch_size", batch_size, 1)
    source = source_of("dataset", dataset, batch_size)
    if isinstance(source, Stream):
        msg = f"dataset: expected samples that have numbers, got {type(dataset).__name__}"
        raise TypeError(msg)
    reader = Reader(model, loss, every=gradients == "all")
    read = run_alone(partial(record_alike, reader))

    def pair(role: str, batch: Any) -> Any:
        # as a loader collates a pair
        if isinstance(batch, list):
            batch = tuple(batch)
        check_batch(role, batch)
        return move_to_model(batch, model)

    def blocks() -> Iterator[Tensor]:
        known, before = pair("validation", whole(validation)), list[Recording]()
        with use_eval_mode(model):
            for batch in source.load(range(source.samples), batch_size):
                found = read(known, pair("dataset, a batch", batch), before=before)
                for one in found:
                    check_explained(one.plan.unexplained)
                before, (held_out, training) = found[:1], (one.trace for one in found)
                scores = kernel(held_out, training)
                if relative:
                    scores = scores / lai.self_influence(training, estimator).sqrt()
                yield scores

    named: dict[str, Any] = {"ids": ids, "validation_ids": validation_ids}
    return top_samples(blocks(), top=top, **named, samples=source.samples, progress=progress)
