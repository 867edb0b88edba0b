"""A sampler over sources whose weights may change between batches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from lai_core._adapters import ShuffledDraws, Weighted, check_count, numbered, source_names


class MixtureSampler(ShuffledDraws, Sampler[int]):
    """Draw each batch from several sources, by weights that may change between batches.

    For `DataLoader(data, batch_size=batch_size, sampler=...)`. The numbers of samples of the sources in a
    batch are multinomial. The samples of a source come in shuffled order, each once before any comes again.
    All randomness follows from the seed and the number of the batch, so that all processes draw the same and
    a resumed run goes on to the bit.

    `state_dict(batches=...)`, the number trained on where a loader fetches ahead, is plain values for
    `load_state_dict`.

    Parameters
    ----------
    groups
        `(n,)` whole numbers from 0, the source of each sample of the data set; or names, of a `Mixture` that
        has them.
    weights
        A share for each source, or an object whose `weights` change while the model trains, such as
        `lai_core.mixtures.Mixture`: it is read at each batch.
    batch_size
        Number of samples in a batch of the data loader. Weights change at its multiples.
    replicas, rank
        Number of processes, and this one's, where the data loader of each draws its own share of the batch:
        then a batch has `replicas * batch_size` samples in all. Trainers that share out batches themselves
        (transformers, accelerate) leave these alone.
    batches
        Number of batches of an epoch; None: as many as one pass over a data set of that size has.
    fixed
        How many samples of each batch, of all processes, come from a source whatever the weights: so a
        validation batch is mixed in, `{K: 16}`, whose samples are those of source K (a number, or a name) in
        the data set. The others of the batch are drawn by the weights.
    seed
        A whole number; the same on all processes.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> from lai_core.mixtures import Mixture
    >>> mixture = Mixture([0.5, 0.25, 0.25])
    >>> sampler = lai_torch.MixtureSampler(torch.tensor([0, 0, 1, 1, 1, 2]), mixture, 3)
    >>> len(list(sampler))
    6
    """

    def __init__(
        self,
        groups: Tensor | Sequence[int] | Sequence[str],
        weights: Sequence[float] | Weighted,
        batch_size: int,
        *,
        replicas: int = 1,
        rank: int = 0,
        batches: int | None = None,
        fixed: Mapping[Any, int] | None = None,
        seed: int = 0,
    ) -> None:
        members = _members(numbered(groups, source_names(weights, fixed)))
        super().__init__(members, weights, batch_size, replicas=replicas, rank=rank, fixed=fixed, seed=seed)
        samples = sum(map(len, members))
        self.batches = max(1, samples // (batch_size * replicas)) if batches is None else batches
        check_count("batches", self.batches, 1)

    def __len__(self) -> int:
        """Return the number of samples that an epoch has on this process."""
        return self.batches * self.batch_size

    def __iter__(self) -> Iterator[int]:
        """Yield indices from the present batch to the end of its epoch."""
        while True:
            yield from self._next()
            if self._batch % self.batches == 0:
                return

    def _shuffled(self, members: Tensor, seed: int) -> list[int]:
        stream = torch.Generator("cpu")
        stream.manual_seed(seed)
        found: list[int] = members[torch.randperm(len(members), generator=stream, device="cpu")].tolist()
        return found


def _members(groups: Any) -> list[Tensor]:
    """Return the indices of each source's samples."""
    found = torch.as_tensor(groups, device="cpu")
    if found.ndim != 1 or not len(found):
        msg = f"groups: expected shape (n,), one source a sample, got {tuple(found.shape)}"
        raise ValueError(msg)
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        msg = f"groups: expected whole numbers, got {found.dtype}"
        raise TypeError(msg)
    if int(found.min()) < 0:
        msg = f"groups: expected numbers from 0, got {int(found.min())}"
        raise ValueError(msg)
    return [(found == source).nonzero().squeeze(1) for source in range(int(found.max()) + 1)]
