"""A sampler and a stream over sources whose weights may change between batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Sampler, get_worker_info

from lai_core._adapters import Draws, ShuffledDraws, Weighted, check_count, number_groups, source_names


class MixtureSampler(ShuffledDraws, Sampler[int]):
    """Draw each batch from several sources, by weights that may change between batches.

    For `DataLoader(data, batch_size=batch_size, sampler=...)`. The numbers of samples of the sources in a
    batch are multinomial. The samples of a source come in shuffled order, each once before any comes again.
    All randomness follows from the seed and the number of the batch, so that all processes draw the same and
    a resumed run goes on to the bit.

    `state_dict(batches=step)` is plain values for `load_state_dict`, where `step` is the number of batches
    trained on since the first run began: a loop's global step, in a resumed run too.

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
        # text is numbered by the weights' own names, so that a source keeps its weight
        found = torch.as_tensor(number_groups(groups, source_names(weights, fixed)), device="cpu")
        if found.ndim != 1 or not len(found):
            msg = f"groups: expected shape (n,), one source a sample, got {tuple(found.shape)}"
            raise ValueError(msg)
        if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
            msg = f"groups: expected whole numbers, got {found.dtype}"
            raise TypeError(msg)
        if int(found.min()) < 0:
            msg = f"groups: expected numbers from 0, got {int(found.min())}"
            raise ValueError(msg)
        members = [(found == source).nonzero().squeeze(1) for source in range(int(found.max()) + 1)]
        super().__init__(members, weights, batch_size, replicas=replicas, rank=rank, fixed=fixed, seed=seed)
        self.batches = max(1, sum(map(len, members)) // (batch_size * replicas))
        if batches is not None:
            self.batches = batches
        check_count("batches", self.batches, 1)

    def __len__(self) -> int:
        """Return the number of samples that an epoch has on this process."""
        return self.batches * self.batch_size

    def __iter__(self) -> Iterator[int]:
        """Yield indices from the present batch to the end of its epoch."""
        while True:
            yield from self._next()
            # an epoch ends where it would have without an interruption
            if self._batch % self.batches == 0:
                return

    def _shuffle(self, members: Tensor, seed: int) -> list[int]:
        stream = torch.Generator("cpu")
        stream.manual_seed(seed)
        found: list[int] = members[torch.randperm(len(members), generator=stream, device="cpu")].tolist()
        return found


class MixtureStream(Draws, IterableDataset[Any]):
    """Draw each item from one of several streams, by weights that may change between batches.

    `MixtureSampler` for sources that are read in order: `datasets.IterableDataset`, lists, functions that
    make a generator. `datasets.interleave_datasets` has probabilities that are fixed. A source that ends
    begins again, so that the stream has no end. All processes draw the same sources.

    `state_dict(batches=step)` is plain values for `load_state_dict`, where `step` is the number of batches
    trained on since the first run began: a loop's global step, in a resumed run too.

    Parameters
    ----------
    sources
        An iterable for each source, or a function that returns one. One that has `set_epoch` is told which
        turn begins, and shuffles anew.
    weights, batch_size, fixed, seed
        As for `MixtureSampler`.
    replicas, rank
        As for `MixtureSampler`: each process reads all items, and yields its own. Where each process has
        streams of its own already (`datasets.distributed.split_dataset_by_node`), leave these alone.
    source
        A key under which an item, a mapping, says the number of its source; None: items come as they are.

    Examples
    --------
    >>> import lai_torch
    >>> stream = lai_torch.MixtureStream([["a", "b"], lambda: iter("xyz")], [0.5, 0.5], 4)
    >>> batch = [item for item, _ in zip(stream, range(4))]
    """

    def __init__(
        self,
        sources: Sequence[Iterable[Any] | Callable[[], Iterable[Any]]],
        weights: Sequence[float] | Weighted,
        batch_size: int,
        *,
        replicas: int = 1,
        rank: int = 0,
        fixed: Mapping[int, int] | None = None,
        source: str | None = None,
        seed: int = 0,
    ) -> None:
        # iterated, these give letters or names
        if isinstance(sources, str | Mapping):
            msg = (
                "sources: expected a list of streams in the order of the weights, got "
                f"{type(sources).__name__}; pass list(sources.values())"
            )
            raise TypeError(msg)
        for number, one in enumerate(sources):
            # an iterator ends for good
            if isinstance(one, Iterator) or not (isinstance(one, Iterable) or callable(one)):
                msg = (
                    f"sources[{number}]: expected an iterable that can begin again, or a function that "
                    f"returns one, got {type(one).__name__}"
                )
                raise TypeError(msg)
        sizes = [1] * len(sources)
        super().__init__(sizes, weights, batch_size, replicas=replicas, rank=rank, fixed=fixed, seed=seed)
        self.sources, self.source = list(sources), source
        self._turns, self._taken = [0] * len(sizes), [0] * len(sizes)
        self._items: dict[int, Iterator[Any]] = {}
        self._resumed: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        """Yield items from the next batch on, without an end."""
        # a worker has a copy of the sampler
        if get_worker_info() is not None:
            msg = (
                "MixtureStream: expected num_workers=0, got a worker, whose copy of the weights does not move"
            )
            raise RuntimeError(msg)
        while True:
            yield from [self._take(source) for source in self._sources()][self.rank :: self.replicas]

    def _take(self, source: int) -> Any:
        """Return the next item of a source, which begins again where it ends."""
        # a second turn where the first is over; a source that is empty then stays so
        for _ in range(2):
            if source not in self._items:
                stream: Any = self.sources[source]
                # one of `datasets` is shuffled anew by it
                if hasattr(stream, "set_epoch"):
                    stream.set_epoch(self._turns[source])
                state, skipped = self._resumed.pop(source, None), self._taken[source]
                # it goes on by itself where it was: nothing has to be read a second time
                if state is not None:
                    stream.load_state_dict(state)
                    skipped = 0
                if not isinstance(stream, Iterable):
                    stream = stream()
                self._items[source] = islice(iter(stream), skipped, None)
            for item in self._items[source]:
                self._taken[source] += 1
                if self.source is None:
                    return item
                # it would be overwritten
                if self.source in item:
                    msg = f"source: expected a key that items do not have, got {self.source!r}"
                    raise ValueError(msg)
                return {**item, self.source: source}
            del self._items[source]
            self._turns[source] += 1
            self._taken[source] = 0
        msg = f"sources[{source}]: expected an item at least, each time it is iterated, got none"
        raise ValueError(msg)

    def _place(self) -> dict[str, Any]:
        streams = []
        for number, one in enumerate(self.sources):
            # a source's own state is that of its last item, where it has begun
            state = self._resumed.get(number)
            if number in self._items and hasattr(one, "state_dict"):
                state = one.state_dict()
            streams.append(state)
        return {"turns": list(self._turns), "taken": list(self._taken), "streams": streams}

    def _return_to(self, state: Mapping[str, Any]) -> None:
        self._turns, self._taken, self._items = list(state["turns"]), list(state["taken"]), {}
        streams = enumerate(state["streams"])
        self._resumed = {number: one for number, one in streams if one is not None}
