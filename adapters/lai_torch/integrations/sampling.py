"""A sampler over sources whose weights may change between batches."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from random import Random
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import Sampler

AHEAD = 1024
"""How many batches, drawn ahead of the last one that was trained on, a state can hold."""


class Weighted(Protocol):
    """An object with mixture weights, such as `lai_core.mixtures.Mixture`."""

    @property
    def weights(self) -> Sequence[float]:
        """One share for each source."""


class MixtureSampler(Sampler[int]):
    """Draw each batch from several sources, by weights that may change between batches.

    For `DataLoader(data, batch_size=batch_size, sampler=...)`. The numbers of samples of the sources in a
    batch are multinomial. The samples of a source come in shuffled order, each once before any comes again.
    All randomness follows from the seed and the number of the batch, so that all processes draw the same and
    a resumed run goes on to the bit.

    Parameters
    ----------
    groups
        `(n,)` whole numbers from 0, the source of each sample of the data set.
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
        validation batch is mixed in, `{K: 16}`, whose samples are those of source K in the data set. The
        others of the batch are drawn by the weights.
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
        groups: Tensor | Sequence[int],
        weights: Sequence[float] | Weighted,
        batch_size: int,
        *,
        replicas: int = 1,
        rank: int = 0,
        batches: int | None = None,
        fixed: Mapping[int, int] | None = None,
        seed: int = 0,
    ) -> None:
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("replicas", replicas, 1),
            ("rank", rank, 0),
        ):
            _check_whole(name, value, least)
        if rank >= replicas:
            msg = f"rank: expected a number below replicas={replicas}, got {rank}"
            raise ValueError(msg)
        self.weights, self.seed = weights, seed
        self.batch_size, self.replicas, self.rank = batch_size, replicas, rank
        self._members = _members(groups)
        self._fixed = _fixed(fixed or {}, len(self._members), batch_size * replicas)
        self._shares()
        samples = sum(map(len, self._members))
        self.batches = max(1, samples // (batch_size * replicas)) if batches is None else batches
        _check_whole("batches", self.batches, 1)
        self._begun = self._batch = 0
        self._taken = [0] * len(self._members)
        self._orders: dict[int, tuple[int, list[int]]] = {}
        self._drawn: deque[_Draw] = deque(maxlen=AHEAD)  # the newest last
        self._planned: deque[list[float]] = deque()

    def __len__(self) -> int:
        """Return the number of samples that an epoch has on this process."""
        return self.batches * self.batch_size

    def __iter__(self) -> Iterator[int]:
        """Yield indices from the present batch to the end of its epoch."""
        while True:
            yield from self._next()
            if self._batch % self.batches == 0:
                return

    def _next(self) -> list[int]:
        """Draw the next batch, and return this process's samples of it."""
        shares = self._planned.popleft() if self._planned else self._shares()
        self._drawn.append(_Draw(self._batch, tuple(self._taken), shares))
        sources, stream = range(len(shares)), Random(f"{self.seed} {self._batch}")
        free = self.batch_size * self.replicas - len(self._fixed)
        drawn = stream.choices(sources, shares, k=free)
        if self._fixed:
            drawn += self._fixed
            stream.shuffle(drawn)  # each process, and each part of a batch, has its share of them
        self._batch += 1
        return [self._take(source) for source in drawn][self.rank :: self.replicas]

    def _take(self, source: int) -> int:
        """Return the next sample of a source."""
        members = self._members[source]
        turn, place = divmod(self._taken[source], len(members))
        self._taken[source] += 1
        if self._orders.get(source, (-1, []))[0] != turn:
            stream = torch.Generator("cpu")
            stream.manual_seed(Random(f"{self.seed} {source} {turn}").getrandbits(63))
            order = torch.randperm(len(members), generator=stream, device="cpu")
            self._orders[source] = turn, members[order].tolist()
        return self._orders[source][1][place]

    def _shares(self) -> list[float]:
        """Return the weights as they are now, one for each source, checked."""
        weights = self.weights if isinstance(self.weights, Sequence) else self.weights.weights
        shares = [float(one) for one in weights]
        sources = len(self._members)
        if not set(range(len(shares), sources)) <= set(self._fixed):  # the last may always have their samples
            msg = f"weights: expected one for each of {sources} sources, got {len(shares)}"
            raise ValueError(msg)
        for place, share in enumerate(shares):
            if not (isfinite(share) and share >= 0):
                msg = f"weights[{place}]: expected a finite number >= 0, got {share}"
                raise ValueError(msg)
            if share and not (place < sources and len(self._members[place])):
                msg = (
                    f"weights[{place}]: expected 0, since groups holds no sample of this source, got {share}"
                )
                raise ValueError(msg)
        if not any(shares):
            msg = "weights: expected at least one above 0, got zeros"
            raise ValueError(msg)
        return shares

    def state_dict(self, *, batches: int | None = None) -> dict[str, Any]:
        """Return what a resumed run needs, as Python numbers.

        A data loader with workers draws batches ahead of those that were trained on. The state is that after
        `batches`, and holds the weights by which the later ones were drawn, so that they come again.

        Parameters
        ----------
        batches
            Number of batches that were trained on since the sampler was made or its state loaded; None: all
            that were drawn, which is right without workers.

        Returns
        -------
        dict
            For `load_state_dict` of a sampler over the same data.

        Raises
        ------
        ValueError
            If that many batches were not drawn, or more than 1,024 after them.
        """
        batch = self._batch if batches is None else self._begun + batches
        ahead = [draw for draw in self._drawn if draw.batch >= batch]
        if batch > self._batch or len(ahead) != self._batch - batch:
            most, least = self._batch - self._begun, self._batch - self._begun - len(self._drawn)
            msg = f"batches: expected a number from {least} to {most}, as many as were drawn, got {batches}"
            raise ValueError(msg)
        taken = ahead[0].taken if ahead else self._taken
        weights = [draw.weights for draw in ahead] + list(self._planned)
        return {"batch": batch, "taken": list(taken), "ahead": weights, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another sampler over the same data was.

        Parameters
        ----------
        state
            What `state_dict` returned.

        Raises
        ------
        ValueError
            If a part is missing or unknown, or the number of sources differs.
        """
        names = {"batch", "taken", "ahead", "seed"}
        if set(state) != names:
            msg = f"state: expected the keys {sorted(names)}, got {sorted(map(str, state))}"
            raise ValueError(msg)
        if len(state["taken"]) != len(self._members):
            msg = f"state['taken']: expected {len(self._members)} sources, got {len(state['taken'])}"
            raise ValueError(msg)
        self.seed, self._taken = state["seed"], list(state["taken"])
        self._begun = self._batch = state["batch"]
        self._orders, self._drawn = {}, deque(maxlen=AHEAD)
        self._planned = deque([list(one) for one in state["ahead"]])


class _Draw(NamedTuple):
    """A batch that was drawn: its number, how often each source was drawn before, and its weights."""

    batch: int
    taken: tuple[int, ...]
    weights: list[float]


def _members(groups: Tensor | Sequence[int]) -> list[Tensor]:
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


def _fixed(fixed: Mapping[int, int], sources: int, batch: int) -> list[int]:
    """Return the sources of the samples that every batch has."""
    for source, count in fixed.items():
        if source not in range(sources):
            msg = f"fixed: expected sources below {sources}, got {source!r}"
            raise ValueError(msg)
        _check_whole(f"fixed[{source}]", count, 0)
    found = [source for source, count in fixed.items() for _ in range(count)]
    if len(found) >= batch:
        msg = f"fixed: expected fewer samples than a batch has, {batch}, got {len(found)}"
        raise ValueError(msg)
    return found


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        msg = f"{name}: expected a whole number >= {least}, got {value!r}"
        raise ValueError(msg)
