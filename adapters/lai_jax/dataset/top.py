"""List the training samples that help and hurt each validation sample most."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import lai_core as lai
from lai_core._adapters import check_batch, kernel_of
from lai_jax._curation.options import check_counts
from lai_jax._program.losses import batch_size as count
from lai_jax._program.losses import check_targets, take
from lai_jax._recording.recorders import Valid
from lai_jax.trace import trace


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
