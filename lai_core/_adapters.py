"""What the adapters say alike: results, refusals, defaults, one budget, a loop's scores. Not for users."""

import functools
import statistics
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from jaxtyping import Bool, Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET as DEFAULT_MEMORY_BUDGET
from lai_core._engine.checks import check_choice as check_choice
from lai_core._engine.checks import check_count as check_count
from lai_core._engine.checks import check_number as check_number
from lai_core._engine.factored import are_cheaper as are_cheaper
from lai_core._engine.factored import width_of as width_of
from lai_core._engine.gradients import Workspace
from lai_core._engine.namespace import Array as Array
from lai_core._engine.namespace import Namespace as Namespace
from lai_core._engine.namespace import device_of as device_of
from lai_core._engine.namespace import is_array as is_array
from lai_core._engine.namespace import move_to_host as move_to_host
from lai_core._engine.namespace import namespace_of as namespace_of
from lai_core._engine.namespace import xp_of as xp_of
from lai_core._engine.rounding import Block as Block
from lai_core._engine.rounding import rounding_bound as rounding_bound
from lai_core._engine.rounding import sums_agree as sums_agree
from lai_core._engine.rounding import tolerance as tolerance
from lai_core.calibration import block_weights
from lai_core.estimators._parameters import ghost_gradients, sum_uses
from lai_core.estimators.by_position import check_segment_numbers as check_segment_numbers
from lai_core.estimators.by_position import segment_sums
from lai_core.estimators.catalogue import PAIRWISE, find_estimator
from lai_core.estimators.checks import fitting_positions
from lai_core.estimators.kernels import ghost_kernel, lai_kernel, lli_kernel
from lai_core.estimators.summaries import join_summaries as join_summaries
from lai_core.records.base import Record, Trace
from lai_core.records.compatible import check_trace

GRADIENT_BUDGET = 2**31
"""Bytes that the per-sample gradients of one parameter may take, where they are materialised: 2 GiB.

Twice what temporaries may take by default: these are held until the batch is scored, and a parameter that
no record factors has no smaller form.
"""

KERNELS = {"ghost": ghost_kernel, "lai": lai_kernel, "lli": lli_kernel}


# Names that changed: the old ones are understood for one release, with a warning.

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def warn_of_old_name(old: str, new: str) -> None:
    warnings.warn(
        f"{old} is called {new} now; the old name goes with the next release",
        DeprecationWarning,
        stacklevel=3,
    )


def accept_old_keywords(**renamed: str) -> Callable[[FunctionT], FunctionT]:
    """Return a decorator by which a function takes keywords by their old names, too: `old="new"`."""

    def decorate(function: FunctionT) -> FunctionT:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            # where both are given, the function itself refuses the one that it does not know
            for old in renamed.keys() & options.keys():
                if renamed[old] not in options:
                    warn_of_old_name(f"{old}=", f"{renamed[old]}=")
                    options[renamed[old]] = options.pop(old)
            return function(*arguments, **options)

        return call  # type: ignore[return-value]

    return decorate


@dataclass(frozen=True)
class Coverage:
    """Which parameters Ghost explains of a model on one batch.

    Attributes
    ----------
    fraction
        Fraction of all trainable scalars that Ghost explains, from 0 to 1.
    parameters
        How many trainable scalars there are.
    explained
        Of each explained parameter, how it is used; nothing where the losses do not depend on it.
    unexplained
        Of each other trainable parameter, why not.
    frozen
        Names of the weights that do not train.
    """

    fraction: float
    parameters: int
    explained: Mapping[str, tuple[str, ...]]
    unexplained: Mapping[str, str]
    frozen: tuple[str, ...]

    @property
    def share(self) -> float:
        """The old name of `fraction`, for one release."""
        warn_of_old_name("Coverage.share", "fraction")
        return self.fraction


@dataclass(frozen=True)
class SelfCheck:
    """How far Ghost and exact scores are from gradients taken one sample at a time.

    Attributes
    ----------
    relative_error
        `max |K - K_ref| / max |K_ref|` of Ghost's kernel K over all parameters together.
    layers
        The same for the parameters of one record, or of records that share one; where a layer's
        gradients are rounding beside the whole, relative to the whole's precision.
    exact
        `max |s - s_ref| / size` of the batch's exact scores, as a step takes them, along its own summed
        gradient. They are sums of K_ref's columns, which nearly cancel where a model is trained: `size` is
        the largest of `|s_ref|` and of the columns' roots of the sum of squares.
    float32
        Correlation over the samples with a float32 copy of the model: `scores`, of the batch's scores by an
        estimator along the batch itself; `gradients`, of the same sums by plain gradients of one sample at a
        time, in the format in which the model trains. None where no estimator was named.
    """

    relative_error: float
    layers: Mapping[str, float]
    exact: float
    float32: Mapping[str, float] | None = None


def agreements(own: Sequence[Array], full: Sequence[Array]) -> dict[str, float]:
    """Return Pearson's correlations for `SelfCheck.float32`, of three samples or more."""
    if own[0].shape[0] < 3:
        msg = f"inputs: expected three samples or more, whose scores correlate, got {own[0].shape[0]}"
        raise ValueError(msg)
    pairs = zip(("scores", "gradients"), own, full, strict=True)
    return {name: statistics.correlation(*(list(map(float, one)) for one in pair)) for name, *pair in pairs}


def relative_error(found: Array, expected: Array, least: float = 0.0, *, terms: Array | None = None) -> float:
    """Return the largest error over the largest entry, or over the size of what the entries are sums of.

    It is over `least` at least, and an error over nothing as it is. `terms` are arrays, one behind the other,
    whose sum is `expected`, if it is one: a sum is rounded by a share of the root of its terms' sum of
    squares (`rounding_bound`).
    """
    xp = xp_of(expected)
    sizes = [float(xp.max(xp.abs(expected))), least]
    if terms is not None:
        sizes.append(float(xp.max(xp.sum(terms * terms, axis=0))) ** 0.5)
    return float(xp.max(xp.abs(found - expected))) / (max(sizes) or 1.0)


def sum_by_segment(scores: Float[Array, "n t"], segments: Array, count: int) -> Float[Array, " count"]:
    """Return the sums of positions' scores over each segment, after checking the segments' numbers."""
    xp = namespace_of({"scores": scores, "segments": segments})
    check_segment_numbers(segments, scores.shape, count)
    return segment_sums(scores, segments, count, Workspace(xp, scores.dtype, DEFAULT_MEMORY_BUDGET))


def find_places(segments: Array) -> tuple[Array, Array, Array]:
    """Return of each position, `(n t,)`, its place in its segment, and two other positions.

    They are the segment's first one, and that of the same place in the next segment, which begins anew.
    """
    xp = namespace_of({"segments": segments})
    number = xp.reshape(xp.unique_inverse(segments).inverse_indices, (-1,))
    order, sizes = xp.argsort(number, stable=True), xp.unique_counts(segments).counts
    starts = xp.cumulative_sum(sizes) - sizes
    place, following = xp.argsort(order) - starts[number], (number + 1) % sizes.shape[0]
    return place, order[starts[number]], order[starts[following] + place % sizes[following]]


def yield_replacements(segments: Array) -> Iterator[tuple[Array, Array]]:
    """Yield which positions of a batch get other contents, `(n, t)`, and where theirs come from, `(n t,)`.

    Of every two segments of a row each moves once while the other stays: their numbers within the row differ
    in a bit. A segment that moves gets the contents of the next one in the batch, place by place.
    """
    xp, away = namespace_of({"segments": segments}), find_places(segments)[2]
    own, by = xp.arange(away.shape[0], device=device_of(away)), xp.argsort(segments, axis=1)
    values = xp.take_along_axis(segments, by, axis=1)
    begins = xp.astype(values[:, 1:] != values[:, :-1], by.dtype)
    numbers = xp.cumulative_sum(xp.concat([xp.zeros_like(by[:, :1]), begins], axis=1), axis=1)
    order = xp.take_along_axis(numbers, xp.argsort(by, axis=1), axis=1)
    for bit in range(int(xp.max(order)).bit_length()):
        for side in (1, 0):
            moved = order // 2**bit % 2 == side
            yield moved, xp.where(xp.reshape(moved, (-1,)), away, own)


def check_agreement(found: SelfCheck, eps: float, remark: str) -> None:
    """Raise if an error of a `SelfCheck` is above half of the digits of a type with precision `eps`."""
    errors = {"all parameters": found.relative_error, "exact scores": found.exact, **found.layers}
    wrong = {name: error for name, error in errors.items() if not error <= eps**0.5}
    if wrong:
        got = ", ".join(f"{error:.1e} for {name}" for name, error in wrong.items())
        msg = f"model: expected plain autograd's per-sample gradients, got relative errors of {got}; {remark}"
        raise ValueError(msg)


def check_batch(role: str, batch: Any) -> None:
    """Raise unless a batch is a pair of inputs and targets."""
    if not isinstance(batch, tuple) or len(batch) != 2:
        msg = f"{role}: expected a pair (inputs, targets), got {type(batch).__name__}"
        raise TypeError(msg)


def kernel_of(estimator: str) -> tuple[Callable[..., Array], Literal["output", "all"]]:
    """Return the kernel of an estimator that has one, and which output gradients it needs."""
    asked = find_estimator(estimator, among=PAIRWISE)
    return KERNELS[asked.name], asked.gradients or "all"


def check_exact_options(at: Any, learning_rate: Any, reduction: Any, optimizer: Any) -> None:
    """Raise unless the options of `exact_scores` are known and go together."""
    check_choice("at", at, ("start", "midpoint"))
    check_choice("reduction", reduction, ("mean", "sum"))
    number = not isinstance(learning_rate, str | bool) and hasattr(learning_rate, "__mul__")
    if learning_rate is not None and not number:
        msg = f"learning_rate: expected a number, or None, got {learning_rate!r}"
        raise TypeError(msg)
    if at == "midpoint" and optimizer is None and learning_rate is None:
        msg = "learning_rate: at='midpoint' needs an optimizer, or the learning rate of an SGD step, got None"
        raise ValueError(msg)
    if at == "start" and optimizer is None and learning_rate is not None:
        msg = "learning_rate: scores at the start are per unit learning rate; leave it out"
        raise ValueError(msg)


def sum_gradients(trace: Trace, memory_budget: int) -> Mapping[tuple[Hashable, str], tuple[Array, ...]]:
    """Return the samples' summed gradient of every parameter that Ghost sees, by weight key and part.

    A part is `weight` or `bias`; a matrix comes as `(d_out, d_in)`, a kernel as one such block an offset.
    """
    work = check_trace("trace", trace, "all", memory_budget)
    found: Any = sum_uses(ghost_gradients(trace, work), work)
    return {(matrix[1], part): total for (matrix, part), total in found.items()}


def default_positions(trace: Trace) -> str:
    """Return the meaning of positions where none is named: `tokens` if every layer fits, else `mean`."""
    return "tokens" if "tokens" in fitting_positions(trace) else "mean"


def make_chain_error(layer: str, what: str) -> ValueError:
    """Build the error of a layer whose input (`what`) keeps a model from being a chain with gates."""
    return ValueError(
        f"layer {layer!r}: gate-corrected LAI expects linear layers on (n, d), one after the other with "
        f"elementwise functions between them; its input {what}; use estimator='lai', or 'ghost'"
    )


def make_weight_error(layer: str) -> ValueError:
    """Build the error of a layer whose part of Ghost is no use of a parameter of its own."""
    return ValueError(
        f"estimator: 'calibrated_lai' expects layers whose weight is a parameter, {layer!r} has one that is "
        "computed from others or used in several ways; use estimator='lai', which weighs all layers alike, "
        "or 'ghost'"
    )


def layer_parts(
    record: Record, last: Record, positions: str, *, trains: bool
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """Return one layer's part of LAI's kernel of a batch with itself, and of Ghost's.

    Ghost's is that of this one use of the layer's parameters; nothing where they do not train.
    """
    alone = record is last
    pair = Trace([last] if alone else [record, last])
    lai = lai_kernel(pair, pair, positions=positions, layer_weights=[1.0] if alone else [1.0, 0.0])
    if not trains:
        return lai, namespace_of({"lai": lai}).zeros_like(lai)
    single = Trace([record])
    return lai, ghost_kernel(single, single)


def fit_weights(
    parts: Iterable[tuple[Float[Array, "n n"], Float[Array, "n n"]]], counted: Bool[Array, "n n"]
) -> Float[Array, " L"]:
    """Return each layer's least-squares slope of Ghost's part on LAI's, over the `counted` pairs.

    A sample's pair with itself should not count: its products are squared norms, while scores are made of
    products of different samples.
    """
    xp = namespace_of({"counted": counted})
    sides = zip(*parts, strict=True)
    lai, ghost = (
        xp.stack([xp.where(counted, part, xp.zeros_like(part)) for part in side], axis=0) for side in sides
    )
    return block_weights(lai, ghost)


# Batches drawn from several sources, by weights that may change: what samplers of all frameworks share.

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
        self._fixed: list[int] = []  # the sources of the samples that every batch has
        for name, count in (fixed or {}).items():
            source = places.get(name, name)
            if source not in range(len(self._sizes)):
                msg = f"fixed: expected sources below {len(self._sizes)}, got {name!r}"
                raise ValueError(msg)
            self._fixed += [source] * check_count(f"fixed[{source}]", count, 0)
        if len(self._fixed) >= batch_size * replicas:
            msg = (
                f"fixed: expected fewer samples than a batch has, {batch_size * replicas}, got "
                f"{len(self._fixed)}"
            )
            raise ValueError(msg)
        self._shares()
        self._batch = 0
        self._drawn: deque[_Draw] = deque(maxlen=AHEAD)  # the newest last
        self._planned: deque[list[float]] = deque()

    def _place(self) -> dict[str, Any]:
        """Return how far the sources are, of plain values."""
        raise NotImplementedError

    def _return_to(self, state: Mapping[str, Any]) -> None:
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
