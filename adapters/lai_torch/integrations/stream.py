"""A stream over sources whose weights may change between batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from lai_core._adapters import Draws, Weighted


class MixtureStream(Draws, IterableDataset[Any]):
    """Draw each item from one of several streams, by weights that may change between batches.

    `MixtureSampler` for sources that are read in order: `datasets.IterableDataset`, lists, functions that
    make a generator. `datasets.interleave_datasets` has probabilities that are fixed. A source that ends
    begins again, so that the stream has no end. All processes draw the same sources.

    `state_dict(batches=...)`, the number trained on where a loader fetches ahead, is plain values for
    `load_state_dict`.

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
        for number, one in enumerate(sources):
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
        if get_worker_info() is not None:
            msg = (
                "MixtureStream: expected num_workers=0, got a worker, whose copy of the weights does not move"
            )
            raise RuntimeError(msg)
        while True:
            yield from [self._take(source) for source in self._sources()][self.rank :: self.replicas]

    def _take(self, source: int) -> Any:
        """Return the next item of a source, which begins again where it ends."""
        for _ in range(2):
            for item in self._opened(source):
                self._taken[source] += 1
                return self._named(item, source)
            del self._items[source]
            self._turns[source] += 1
            self._taken[source] = 0
        msg = f"sources[{source}]: expected an item at least, each time it is iterated, got none"
        raise ValueError(msg)

    def _opened(self, source: int) -> Iterator[Any]:
        """Return the rest of a source's turn."""
        if source not in self._items:
            stream: Any = self.sources[source]
            if hasattr(stream, "set_epoch"):
                stream.set_epoch(self._turns[source])
            state, skipped = self._resumed.pop(source, None), self._taken[source]
            if state is not None:
                stream.load_state_dict(state)
                skipped = 0
            items = iter(stream if isinstance(stream, Iterable) else stream())
            self._items[source] = islice(items, skipped, None)
        return self._items[source]

    def _named(self, item: Any, source: int) -> Any:
        if self.source is None:
            return item
        if not isinstance(item, Mapping):
            msg = f"source: expected items that are mappings, which take a key, got {type(item).__name__}"
            raise TypeError(msg)
        if self.source in item:
            msg = f"source: expected a key that items do not have, got {self.source!r}"
            raise ValueError(msg)
        return {**item, self.source: source}

    def _place(self) -> dict[str, Any]:
        streams = [self._state_of(number, one) for number, one in enumerate(self.sources)]
        return {"turns": list(self._turns), "taken": list(self._taken), "streams": streams}

    def _state_of(self, number: int, stream: Any) -> Any:
        """Return a source's own state; None of one that has none or was not begun."""
        if number in self._items and hasattr(stream, "state_dict"):
            return stream.state_dict()
        return self._resumed.get(number)

    def _return_to(self, state: Mapping[str, Any]) -> None:
        self._turns, self._taken, self._items = list(state["turns"]), list(state["taken"]), {}
        streams = enumerate(state["streams"])
        self._resumed = {number: one for number, one in streams if one is not None}
