"""Which samples are bad? Score a whole data set once, into a table that survives the process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from os import PathLike
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import lai_core as lai
from lai_core._adapters import check_batch, kernel_of
from lai_core.estimators.catalogue import find_estimator
from lai_core.estimators.policies import standard_errors
from lai_core.estimators.scores import SUMMED
from lai_jax._curation.estimators import scored_in_parts, sound_scores
from lai_jax._curation.moments import Moment
from lai_jax._curation.options import EstimatorName, check_counts, estimator_of
from lai_jax._curation.problem import Problem
from lai_jax._program.losses import batch_size as count
from lai_jax._program.losses import check_targets, is_array, take
from lai_jax._recording.masks import Valid
from lai_jax.summarize import summarize
from lai_jax.trace import trace
from lai_jax.validation import Validation


def score_dataset(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    dataset: tuple[Any, Any],
    validation: tuple[Any, Any],
    folder: str | PathLike[str],
    *,
    estimator: EstimatorName = "lai",
    positions: str | None = None,
    batch_size: int = 64,
    parts: int | None = 16,
    checkpoints: Mapping[str, Any] | None = None,
    ids: Sequence[Any] | None = None,
    groups: Sequence[Any] | None = None,
    rows_per_file: int = 4096,
    process: tuple[int, int] | None = None,
    progress: bool = True,
    last: str | None = None,
    valid: Valid | None = None,
) -> Any:
    """Score every sample of a data set against a validation set, into a folder of Parquet files.

    The same table, read by `lai_core.storage.tables.read_scores`, as of `lai_torch.score_dataset`: `id`;
    `score`, positive helps; `standard_error` of the score over the draw of the validation set; the sample's
    own `loss`; `gradient_norm`, the norm of what the estimator sees of its gradient; `group` and `checkpoint`
    where they are given. An interrupted run goes on where it stopped when it is started again. One program
    is compiled, for batches of one size.

    Parameters
    ----------
    apply, params, loss, last, valid
        As for `summarize`.
    dataset, validation
        `(inputs, targets)`: pytrees of arrays, of which numpy's and memory maps stay where they are.
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
    ids, groups
        What the samples are called, and to what they belong; whole numbers or text. None: the sample's
        number; no column.
    rows_per_file
        Samples in one file: what an interruption loses at most.
    process
        Which process this is and how many there are. None: those of `jax.distributed`.
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
    from lai_core.storage.tables import digest, read_scores, score_parts  # needs pyarrow

    chosen, facts = estimator_of(estimator), find_estimator(estimator)
    if estimator == "preconditioned_lai":
        msg = (
            "estimator: expected one that scores a sample by itself, got 'preconditioned_lai', which depends "
            "on the training run's past; use 'lai', 'ghost' or 'exact'"
        )
        raise ValueError(msg)
    for role, batch in (("dataset", dataset), ("validation", validation)):
        check_batch(role, batch)
        check_targets(*batch)
    check_counts(batch_size=batch_size, rows_per_file=rows_per_file, parts=parts)
    given: Any = checkpoints
    if not isinstance(given, Mapping | None):
        msg = f"checkpoints: expected a mapping of names to parameters, got {type(given).__name__}"
        raise TypeError(msg)
    samples, held_out = count(dataset[0]), count(validation[0])
    cut = min(parts, held_out) if parts and facts.summary and held_out > 1 else None
    shared: dict[str, Any] = {"estimator": estimator, "positions": positions, "last": last, "valid": valid}

    @jax.jit
    def summed(params: Any, inputs: Any, targets: Any) -> Validation:
        return summarize(apply, params, loss, inputs, targets, parts=cut, **shared)

    @jax.jit
    def columns(params: Any, side: Validation, batch: Any) -> dict[str, jax.Array]:
        problem = Problem(apply, params, loss, last, valid)
        recorded = chosen.choose_pass(problem, None, recompute=False).forward(batch)
        scored = scored_in_parts(chosen, side, recorded, Moment(None, 0.0, 0.0))
        nothing = jnp.full_like(scored.scores, jnp.nan)
        found = {"score": sound_scores(scored), "standard_error": nothing, "loss": scored.losses}
        if scored.parts is not None:
            found["standard_error"] = standard_errors(scored.parts, sizes=scored.sizes)
        squared = jnp.square(nothing)
        if estimator in SUMMED:
            positions = getattr(side.side, "positions", None) or side.positions or "tokens"
            squared = lai.self_influence(recorded.trace, estimator, positions=positions)
        return found | {"gradient_norm": jnp.sqrt(squared)}

    settings = {**shared, "valid": valid is not None, "batch_size": batch_size, "parts": parts}
    settings["validation"] = digest(_bytes(validation))
    process = (jax.process_index(), jax.process_count()) if process is None else process
    for name, state in ({"": params} if checkpoints is None else checkpoints).items():
        side = cache(partial(summed, state, *validation))  # made where anything is missing

        def score(
            span: range, state: Any = state, side: Callable[[], Validation] = side
        ) -> dict[str, np.ndarray]:
            batches = []
            for start in range(span.start, span.stop, batch_size):
                index = np.minimum(np.arange(start, start + batch_size), samples - 1)  # one size: one program
                found = columns(state, side(), take(dataset, index))
                batches.append({name: np.asarray(values, float) for name, values in found.items()})
            names = ("score", "standard_error", "loss", "gradient_norm")
            return {name: np.concatenate([each[name] for each in batches])[: len(span)] for name in names}

        score_parts(
            folder,
            settings | {"model": digest(_bytes(state))},
            score,
            samples=samples,
            rows=rows_per_file,
            process=process,
            progress=progress,
            checkpoint=name,
            ids=ids,
            groups=groups,
        )
    return read_scores(folder) if process[1] == 1 else None


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
    apply, params, loss, dataset, validation, batch_size, ids, progress, last, valid
        As for `score_dataset`.
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
    """
    from lai_core.storage.top import top_samples

    kernel, gradients = kernel_of(estimator)
    for role, batch in (("dataset", dataset), ("validation", validation)):
        check_batch(role, batch)
        check_targets(*batch)
    check_counts(batch_size=batch_size)
    samples = count(dataset[0])

    @jax.jit
    def traced(params: Any, batch: Any) -> lai.Trace:
        return trace(apply, params, loss, *batch, gradients=gradients, last=last, valid=valid)

    @jax.jit
    def block(params: Any, held_out: lai.Trace, batch: Any) -> jax.Array:
        training = traced(params, batch)
        scores = kernel(held_out, training)
        return scores / jnp.sqrt(lai.self_influence(training, estimator)) if relative else scores

    def blocks() -> Iterator[jax.Array]:
        held_out = traced(params, validation)
        for start in range(0, samples, batch_size):
            index = np.minimum(np.arange(start, start + batch_size), samples - 1)  # one size: one program
            yield block(params, held_out, take(dataset, index))[:, : samples - start]

    named: dict[str, Any] = {"ids": ids, "validation_ids": validation_ids}
    return top_samples(blocks(), top=top, **named, samples=samples, progress=progress)


def _bytes(tree: Any) -> Iterator[tuple[str, Any]]:
    for leaf in jax.tree.leaves(tree):
        if is_array(leaf):
            array = np.asarray(leaf, order="C")
            yield f"{array.dtype}{array.shape}", array.reshape(-1).view(np.uint8).data
