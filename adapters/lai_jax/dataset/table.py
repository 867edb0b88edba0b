"""Which samples are bad? Score a whole data set once, into a table that survives the process."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from os import PathLike
from typing import Any

import jax
import numpy as np

from lai_core._adapters import check_batch
from lai_jax._curation.options import EstimatorName, check_counts
from lai_jax._program.losses import batch_size as count
from lai_jax._program.losses import check_targets, is_array, take
from lai_jax._recording.masks import Valid
from lai_jax.dataset.scorer import Scorer, is_summary


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

    The same table, read by `lai_storage.tables.read_scores`, as of `lai_torch.score_dataset`: `id`;
    `score`, positive helps; `standard_error` of the score over the draw of the validation set; the sample's
    own `loss`; `gradient_norm`, the norm of what the estimator sees of its gradient; `group` and `checkpoint`
    where they are given. An interrupted run goes on where it stopped when it is started again; a stream is
    read again from its start, and refused if its ids are not those in the table. One program is compiled,
    for batches of one size.

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
        Where the table is written; made where it is missing.
    estimator, positions
        As for `summarize`; not `preconditioned_lai`, which is of a training run.
    batch_size
        How many samples are scored at once.
    parts
        Into how many consecutive parts the validation set is cut for the standard error. Shuffle a set that
        is sorted. None: no standard error. Nor is there one for `exact` and `gate_lai`.
    checkpoints
        Names, and parameters in the place of `params`, with each of which the data set is scored.
    collate
        From the columns of items that are dictionaries to inputs and targets, as for `Scorer`.
    ids, groups
        The samples' ids and groups, whole numbers or text; or the keys of items that are dictionaries.
        None: the sample's number; no column.
    rows_per_file
        Samples in one file: what an interruption loses at most.
    process
        Which process this is and how many there are; each reads the whole stream. None: those of
        `jax.distributed`.
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
        If the folder holds scores of another model, validation set, estimator or size; if an argument does
        not fit.

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
    from lai_storage.tables import check_stream, digest, read_scores, score_parts, score_stream

    check_counts(batch_size=batch_size, rows_per_file=rows_per_file, parts=parts)
    given: Any = checkpoints
    if not isinstance(given, Mapping | None):
        msg = f"checkpoints: expected a mapping of names to parameters, got {type(given).__name__}"
        raise TypeError(msg)
    states = {"": params} if checkpoints is None else checkpoints
    process = (jax.process_index(), jax.process_count()) if process is None else process
    options: dict[str, Any] = {"rows": rows_per_file, "process": process, "progress": progress}
    columns = {"ids": ids, "groups": groups}
    written: Callable[..., None]
    if isinstance(dataset, Iterable) and not isinstance(dataset, tuple | Mapping) and not is_array(dataset):
        check_stream(dataset, columns, states)
        options["name"] = itemgetter(ids) if ids is not None else None
        written = partial(score_stream, stream=dataset, **options)
    else:
        check_batch("dataset", dataset)
        check_targets(*dataset)
        own: dict[str, Any] = {
            name: values for name, values in columns.items() if not isinstance(values, str)
        }
        written = partial(score_parts, samples=count(dataset[0]), **own, **options)
    shared: dict[str, Any] = {"estimator": estimator, "positions": positions, "last": last}
    scorer = Scorer(
        apply,
        params,
        loss,
        validation,
        **shared,
        valid=valid,
        parts=parts,
        batch_size=batch_size,
        collate=collate,
        ids=ids if isinstance(ids, str) else None,
        groups=groups if isinstance(groups, str) else None,
    )
    if is_summary(validation) and checkpoints is not None:
        msg = "validation: expected samples to sum up with each of the checkpoints, got a summary"
        raise ValueError(msg)
    settings = {**shared, "valid": valid is not None, "batch_size": batch_size, "parts": parts}
    settings["validation"] = digest(_bytes(scorer._validation()))

    def batches(part: Any) -> Iterator[Any]:
        if isinstance(part, range):
            yield take(dataset, slice(part.start, part.stop))
        else:
            yield from map(_collated, iter(lambda: list(islice(part, batch_size)), []))

    for name, state in states.items():
        content = settings | {"model": digest(_bytes(state))}
        written(folder, content, partial(_rows, scorer._at(state), batches), checkpoint=name)
    return read_scores(folder) if process[1] == 1 else None


def _rows(scorer: Scorer, batches: Callable[[Any], Iterable[Any]], part: Any) -> dict[str, Any]:
    """Return the columns of consecutive samples."""
    from lai_storage.columns import joined

    return joined(map(scorer, batches(part)))


def _collated(items: Sequence[Any]) -> Any:
    """Return samples as a batch: mappings as columns, pairs as pairs of arrays."""
    if isinstance(items[0], Mapping):
        return {name: [item[name] for item in items] for name in items[0]}
    return jax.tree.map(lambda *leaves: np.stack(leaves), *map(tuple, items))


def _bytes(tree: Any) -> Iterator[tuple[str, Any]]:
    for leaf in jax.tree.leaves(tree):
        if is_array(leaf):
            array = np.asarray(leaf, order="C")
            yield f"{array.dtype}{array.shape}", array.reshape(-1).view(np.uint8).data
