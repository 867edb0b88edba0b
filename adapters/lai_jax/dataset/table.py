"""Which samples are bad? Tables of a whole data set's scores, and each validation sample's extremes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from lai_storage.columns import collate_items
from lai_storage.scoring import Indexed, Stream, score_source

import lai_core as lai
from lai_core._adapters import check_batch, kernel_of
from lai_jax._curation.options import EstimatorName, check_counts
from lai_jax._program.losses import batch_size as count
from lai_jax._program.losses import check_targets, is_array, take
from lai_jax._recording.recorders import Valid
from lai_jax.dataset.scorer import Scorer
from lai_jax.trace import trace


def score_dataset(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    dataset: Any,
    validation: Any,
    folder: str | PathLike[str],
    *,
    estimator: EstimatorName = "lai",
    positions: str | None = None,
    batch_size: int = 64,
    parts: int | None = 16,
    checkpoints: Mapping[str, Any] | None = None,
    collate: tuple[str, str] | Callable[[dict[str, Any]], Any] | None = None,
    ids: Sequence[Any] | str | None = None,
    groups: Sequence[Any] | str | None = None,
    rows_per_file: int = 4096,
    process: tuple[int, int] | None = None,
    progress: bool = True,
    last: str | None = None,
    valid: Valid | None = None,
) -> Any:
    """Score every sample of a data set against a validation set, into a folder of Parquet files.

    The table has the columns of `lai_torch.score_dataset`, and a run goes on where it stopped in the same
    way. One program is compiled, for batches of one size.

    Parameters
    ----------
    apply, params, loss, last, valid
        As for `summarize`.
    dataset
        `(inputs, targets)`: pytrees of arrays, of which numpy's and memory maps stay where they are. Or a
        stream: an iterable over samples, which are pairs (input, target) or dictionaries.
    validation
        `(inputs, targets)`, or a summary, as for `Scorer`.
    folder
        As for `lai_torch.score_dataset`.
    estimator, positions
        As for `summarize`; not `preconditioned_lai`, which is of a training run.
    checkpoints
        Names, and parameters in the place of `params`, with each of which the data set is scored.
    batch_size, parts, collate, ids, groups, rows_per_file, process, progress
        As for `lai_torch.score_dataset`.

    Returns
    -------
    pyarrow.Table
        What `lai_storage.tables.read_scores(folder)` returns. None where several processes share the
        work: read the table when all of them are done.

    Examples
    --------
    >>> import tempfile
    >>> import jax, jax.numpy as jnp
    >>> import lai_jax
    >>> data, validation = ((jax.random.normal(jax.random.key(n), (n, 4)), jnp.ones(n)) for n in (50, 32))
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets) ** 2
    >>> folder = tempfile.mkdtemp()
    >>> table = lai_jax.score_dataset(apply, jnp.ones((4, 1)), loss, data, validation, folder, progress=False)
    >>> table.column_names
    ['id', 'score', 'standard_error', 'loss', 'gradient_norm', 'rank']
    """
    check_counts(rows_per_file=rows_per_file)
    shared: dict[str, Any] = {"estimator": estimator, "positions": positions, "parts": parts}
    labels: dict[str, Any] = {"ids": ids, "groups": groups}
    columns: Any = {name: values for name, values in labels.items() if isinstance(values, str)}
    scorer = Scorer(
        apply,
        params,
        loss,
        validation,
        **shared,
        batch_size=batch_size,
        collate=collate,
        last=last,
        valid=valid,
        **columns,
    )
    source: Indexed | Stream
    if isinstance(dataset, tuple | Mapping) or is_array(dataset) or not isinstance(dataset, Iterable):
        check_batch("dataset", dataset)
        check_targets(*dataset)
        source = Indexed(
            count(dataset[0]), batch_size, lambda span, _: [take(dataset, slice(span.start, span.stop))]
        )
    else:
        source = Stream(dataset, batch_size, partial(collate_items, "dataset", _stack))
    return score_source(
        folder,
        scorer,
        source,
        checkpoints,
        lambda checkpoint, state: scorer._move_to(state),
        {**shared, "batch_size": batch_size},
        labels,
        rows=rows_per_file,
        process=(jax.process_index(), jax.process_count()) if process is None else process,
        progress=progress,
    )


def _stack(items: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *map(tuple, items))


def top_samples(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    dataset: tuple[Any, Any],
    validation: tuple[Any, Any],
    *,
    top: int = 10,
    estimator: Literal["ghost", "lai", "lli"] = "ghost",
    relative: bool = False,
    batch_size: int = 64,
    ids: Sequence[Any] | None = None,
    validation_ids: Sequence[Any] | None = None,
    progress: bool = True,
    last: str | None = None,
    valid: Valid | None = None,
) -> Any:
    """Find the training samples that help and hurt each validation sample most.

    The same table as of `lai_torch.top_samples`, from the estimator's kernel. Memory holds both traces, of
    the validation set and of one batch, and their kernel; one program is compiled for each.

    Parameters
    ----------
    apply, params, loss, dataset, validation, batch_size, last, valid
        As for `score_dataset`.
    estimator, relative
        As for `lai_torch.top_samples`.
    top, ids, validation_ids, progress
        As for `lai_storage.top.top_samples`.

    Returns
    -------
    pyarrow.Table
        See `lai_storage.top.top_samples`.
    """
    from lai_storage.top import top_samples

    kernel, gradients = kernel_of(estimator)
    check_counts(batch_size=batch_size)
    for role, side in (("dataset", dataset), ("validation", validation)):
        check_batch(role, side)
        check_targets(*side)
    samples = count(dataset[0])

    @jax.jit
    def read_trace(params: Any, batch: Any) -> lai.Trace:
        return trace(apply, params, loss, *batch, gradients=gradients, last=last, valid=valid)

    @jax.jit
    def block(params: Any, held_out: lai.Trace, batch: Any) -> jax.Array:
        training = read_trace(params, batch)
        scores = kernel(held_out, training)
        return scores / jnp.sqrt(lai.self_influence(training, estimator)) if relative else scores

    def blocks() -> Iterator[jax.Array]:
        held_out = read_trace(params, validation)
        for start in range(0, samples, batch_size):
            index = np.minimum(np.arange(start, start + batch_size), samples - 1)  # one size: one program
            yield block(params, held_out, take(dataset, index))[:, : samples - start]

    named: dict[str, Any] = {"ids": ids, "validation_ids": validation_ids}
    return top_samples(blocks(), top=top, **named, samples=samples, progress=progress)
