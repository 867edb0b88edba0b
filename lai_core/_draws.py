"""Batches drawn from several sources, by weights that may change: what samplers of all frameworks share."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite
from random import Random
from typing import Any, NamedTuple, Protocol

from lai_core._engine.checks import check_count

AHEAD = 1024
"""How many batches, drawn ahead of the last one that was trained on, a state can hold."""


class Weighted(Protocol):
    """An object with mixture weights, such as `lai_core.mixtures.Mixture`."""

    @property
    def weights(self) -> Sequence[float]:
        """One share for each source."""


class _Draw(NamedTuple):
    """A batch that was drawn: its number, the sampler's place before it, and its weights."""

    batch: int
    place: dict[str, Any]
    weights: list[float]


class Draws:
    """Draws the source of each sample of a batch; a subclass takes the samples from the sources.

    All randomness follows from the seed and the number of the batch.

    Parameters
    ----------
    sizes
        Number of samples of each source; of a stream, 1.
    weights, batch_size, replicas, rank, fixed, seed
        As for the subclasses.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        weights: Any,
        batch_size: int,
        *,
        replicas: int,
        rank: int,
        fixed: Mapping[Any, int] | None,
        seed: int,
    ) -> None:
        check_count("batch_size", batch_size)
        check_count("replicas", replicas)
        check_count("rank", rank, 0)
        if rank >= replicas:
            msg = f"rank: expected a number below replicas={replicas}, got {rank}"
            raise ValueError(msg)
        self.weights, self.seed = weights, seed
        self.batch_size, self.replicas, self.rank = batch_size, replicas, rank
        self._sizes = list(sizes)
        self.names = source_names(weights, fixed)
        places = {name: place for place, name in enumerate(self.names)}
        for source in fixed or {}:
            if places.get(source, source) not in range(len(self._sizes)):
                msg = f"fixed: expected sources below {len(self._sizes)}, got {source!r}"
                raise ValueError(msg)
        shares = {places.get(source, source): count for source, count in (fixed or {}).items()}
        self._fixed = _fixed(shares, batch_size * replicas)
        self._shares()
        self._batch = 0
        self._drawn: deque[_Draw] = deque(maxlen=AHEAD)  # the newest last
        self._planned: deque[list[float]] = deque()

    def _place(self) -> dict[str, Any]:
        """Return how far the sources are, of plain values."""
        raise NotImplementedError

    def _return_to(self, state: Mapping[str, Any]) -> None:
        """Take up what `_place` returned."""
        raise NotImplementedError

    def _sources(self) -> list[int]:
        """Draw the next batch: return the source of each sample, of all processes."""
        shares = self._planned.popleft() if self._planned else self._shares()
        self._drawn.append(_Draw(self._batch, self._place(), shares))
        stream, size = Random(f"{self.seed} {self._batch}"), self.batch_size * self.replicas
        drawn = stream.choices(range(len(shares)), shares, k=size - len(self._fixed))
        if self._fixed:
            drawn += self._fixed
            stream.shuffle(drawn)  # each process, and each part of a batch, has its share of them
        self._batch += 1
        return drawn

    def _shares(self) -> list[float]:
        """Return the weights as they are now, one for each source, checked."""
        weights = getattr(self.weights, "weights", self.weights)
        if isinstance(weights, Mapping):
            msg = "weights: expected a share for each source in order, got a mapping; Mixture({name: share})"
            raise TypeError(msg)
        shares = [float(one) for one in weights]
        sources = len(self._sizes)
        if not set(range(len(shares), sources)) <= set(self._fixed):  # the last may always have their samples
            msg = f"weights: expected one for each of {sources} sources, got {len(shares)}"
            raise ValueError(msg)
        for place, share in enumerate(shares):
            if not (isfinite(share) and share >= 0):
                msg = f"weights[{place}]: expected a finite number >= 0, got {share}"
                raise ValueError(msg)
            if share and not (place < sources and self._sizes[place]):
                msg = f"weights[{place}]: expected 0 for a source without samples, got {share}"
                raise ValueError(msg)
        if not any(shares):
            msg = "weights: expected at least one above 0, got zeros"
            raise ValueError(msg)
        return shares

    def state_dict(self, *, batches: int | None = None) -> dict[str, Any]:
        """Return what a resumed run needs, as plain values.

        A data loader that fetches ahead draws batches before they are trained on. The state is that after
        `batches`, and holds the weights by which the later ones were drawn, so that they come again.

        Parameters
        ----------
        batches
            Number of batches that were trained on since the first run began, those before a state was loaded
            included: a training loop's global step. None: all that were drawn, which is right where nothing
            is fetched ahead.

        Returns
        -------
        dict
            For `load_state_dict` of an object over the same data.

        Raises
        ------
        TypeError
            If `batches` is no whole number.
        ValueError
            If that many batches were not drawn, or more than 1,024 after them.
        """
        batch = self._batch if batches is None else check_count("batches", batches, 0)
        ahead = [draw for draw in self._drawn if draw.batch >= batch]
        if batch > self._batch or len(ahead) != self._batch - batch:
            least = self._batch - len(self._drawn)
            msg = (
                f"batches: expected a number from {least} to {self._batch}, as many as were drawn since the "
                f"first run began, got {batches}"
            )
            raise ValueError(msg)
        place = ahead[0].place if ahead else self._place()
        weights = [draw.weights for draw in ahead] + list(self._planned)
        return {"batch": batch, **place, "ahead": weights, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another object over the same data was.

        Parameters
        ----------
        state
            What `state_dict` returned.

        Raises
        ------
        ValueError
            If a part is missing or unknown, or the number of sources differs.
        """
        place = self._place()
        names = {"batch", "ahead", "seed", *place}
        if set(state) != names:
            msg = f"state: expected the keys {sorted(names)}, got {sorted(map(str, state))}"
            raise ValueError(msg)
        for name in place:
            if len(state[name]) != len(self._sizes):
                msg = f"state[{name!r}]: expected {len(self._sizes)} sources, got {len(state[name])}"
                raise ValueError(msg)
        self._return_to(state)
        self.seed, self._batch = state["seed"], state["batch"]
        self._drawn = deque(maxlen=AHEAD)
        self._planned = deque([list(one) for one in state["ahead"]])


class ShuffledDraws(Draws):
    """Draws indices: those of a source come in shuffled order, each once before any comes again.

    Parameters
    ----------
    members
        The indices of each source's samples.
    options
        As for `Draws`.
    """

    def __init__(self, members: Sequence[Any], weights: Any, batch_size: int, **options: Any) -> None:
        super().__init__([len(one) for one in members], weights, batch_size, **options)
        self._members, self._taken = members, [0] * len(members)
        self._orders: dict[int, tuple[int, list[int]]] = {}

    def _shuffle(self, members: Any, seed: int) -> list[int]:
        """Return the indices in an order that follows from a seed of 63 bits."""
        raise NotImplementedError

    def _next(self) -> list[int]:
        """Draw the next batch, and return this process's samples of it."""
        return [self._take(source) for source in self._sources()][self.rank :: self.replicas]

    def _take(self, source: int) -> int:
        """Return the next sample of a source."""
        turn, place = divmod(self._taken[source], self._sizes[source])
        self._taken[source] += 1
        if source not in self._orders or self._orders[source][0] != turn:
            seed = Random(f"{self.seed} {source} {turn}").getrandbits(63)
            self._orders[source] = turn, self._shuffle(self._members[source], seed)
        return self._orders[source][1][place]

    def _place(self) -> dict[str, Any]:
        return {"taken": list(self._taken)}

    def _return_to(self, state: Mapping[str, Any]) -> None:
        self._taken, self._orders = list(state["taken"]), {}


def number_groups(groups: Any, names: Sequence[str]) -> Any:
    """Return text groups by number, their places among the names; others as they are."""
    if not (len(groups) and isinstance(next(iter(groups)), str)):
        return groups
    places = {name: place for place, name in enumerate(names)}
    try:
        return [places[one] for one in groups]
    except KeyError as error:
        (got,) = error.args
        got = str(got) if isinstance(got, str) else got  # numpy's text is longer
        known = f"one of {', '.join(map(repr, names))}" if names else "whole numbers, for no source is named"
        msg = f"groups: expected {known}, got {got!r}; number them, or Mixture({{name: share}})"
        raise ValueError(msg) from None


def source_names(weights: Any, fixed: Mapping[Any, int] | None) -> list[str]:
    """Return the names of a mixture's sources, in its order, and then those of fixed ones beyond it."""
    named = [*(getattr(weights, "names", None) or ()), *(one for one in fixed or {} if isinstance(one, str))]
    return list(dict.fromkeys(named))


def _fixed(fixed: Mapping[int, int], batch: int) -> list[int]:
    """Return the sources of the samples that every batch has."""
    for source, count in fixed.items():
        check_count(f"fixed[{source}]", count, 0)
    found = [source for source, count in fixed.items() for _ in range(count)]
    if len(found) >= batch:
        msg = f"fixed: expected fewer samples than a batch has, {batch}, got {len(found)}"
        raise ValueError(msg)
    return found
