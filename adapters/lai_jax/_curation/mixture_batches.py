"""Batches of indices over sources whose weights may change between batches."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lai_core._adapters import ShuffledDraws, number_groups, source_names


class MixtureBatches(ShuffledDraws):
    """Draw the indices of each batch from several sources, by weights that may change between batches.

    An iterator without an end, for a plain loop: `rows = next(batches)`, then `inputs[rows]`. The numbers of
    samples of the sources in a batch are multinomial. The samples of a source come in shuffled order, each
    once before any comes again. All randomness follows from the seed and the number of the batch.

    `state_dict(batches=step)` is plain values for `load_state_dict`, where `step` is the number of batches
    trained on since the first run began: a loop's global step, in a resumed run too.

    Parameters
    ----------
    groups
        `(n,)` whole numbers from 0, the source of each sample of the data set; or names, of a mixture that
        has them.
    weights
        A share for each source, or an object whose `weights` change while the model trains, such as
        `lai_core.mixtures.Mixture`: it is read at each batch. After `update_mixture`, set
        `batches.weights = state.weights`.
    batch_size
        Number of samples in a batch of one process.
    replicas, rank
        Number of processes, and this one's (`jax.process_count()`, `jax.process_index()`), where each loads
        its own share of the batch: then a batch has `replicas * batch_size` samples in all.
    fixed
        How many samples of each batch, of all processes, come from a source whatever the weights.
    seed
        A whole number; the same on all processes.

    Examples
    --------
    >>> import lai_jax
    >>> batches = lai_jax.MixtureBatches([0, 0, 1, 1, 1, 2], [0.5, 0.25, 0.25], 4)
    >>> next(batches).shape
    (4,)
    """

    def __init__(
        self,
        groups: Any,
        weights: Any,
        batch_size: int,
        *,
        replicas: int = 1,
        rank: int = 0,
        fixed: Mapping[Any, int] | None = None,
        seed: int = 0,
    ) -> None:
        numbers = np.asarray(number_groups(groups, source_names(weights, fixed)))
        if numbers.ndim != 1 or not len(numbers):
            msg = f"groups: expected shape (n,), one source a sample, got {numbers.shape}"
            raise ValueError(msg)
        if not np.issubdtype(numbers.dtype, np.integer):
            msg = f"groups: expected whole numbers, got {numbers.dtype}"
            raise TypeError(msg)
        if numbers.min() < 0:
            msg = f"groups: expected numbers from 0, got {numbers.min()}"
            raise ValueError(msg)
        members = [np.flatnonzero(numbers == source) for source in range(int(numbers.max()) + 1)]
        super().__init__(members, weights, batch_size, replicas=replicas, rank=rank, fixed=fixed, seed=seed)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Return itself: there is one place in the data, as `state_dict` says it."""
        return self

    def __next__(self) -> np.ndarray:
        """Return the indices of the next batch, `(batch_size,)`."""
        return np.array(self._next())

    def _shuffle(self, members: np.ndarray, seed: int) -> list[int]:
        return np.random.Generator(np.random.Philox(seed)).permutation(members).tolist()
