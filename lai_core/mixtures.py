r"""Decide by source: mean scores of data sources, and mixture weights that follow them while a model trains.

One training step on a mixture of sources with weights w moves the next validation loss by minus the learning
rate times the mean score of source k, per unit of w_k. `group_scores` computes these means with their
standard errors, `Mixture` moves the weights by them.

Each update takes the sources' mean scores :math:`s_k` with their standard errors, and

1. averages the contrasts :math:`s_k - \frac1K \sum_i s_i` over the last `horizon` updates,
2. sets them to 0 unless Cochran's Q says that the sources differ at all, and shrinks them by their errors,
3. moves the weights, :math:`w_k \leftarrow w_k \exp(\sqrt{\ln K / H}\; c_k / u)`, with :math:`u` the root
   mean square of all mean scores so far, which makes the step free of the scores' unit,
4. mixes in the prior, so that a source that was dropped is still observed and can come back.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf, log, sqrt
from typing import Any, NamedTuple

from jaxtyping import Float

from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_count, check_number
from lai_core._engine.namespace import (
    Array,
    Namespace,
    accumulation_dtype,
    cast,
    device_of,
    namespace_of,
    xp_of,
)
from lai_core._theory.algebra import dot, quotient
from lai_core._theory.arrays import checked
from lai_core._theory.chi_squared import upper_quantile

__all__ = [
    "Mixture",
    "MixtureState",
    "MixtureUpdate",
    "cochran_q",
    "contrast_variances",
    "group_scores",
    "group_sizes",
    "hedge_step_size",
    "initial_mixture",
    "shrink_contrasts",
    "update_mixture",
]


# Mean scores of sources, whether they differ and by how much, and the step that follows them.


def group_scores(
    scores: Array, groups: Array, count: int, /
) -> tuple[Float[Array, " count"], Float[Array, " count"]]:
    r"""Compute each group's mean score and the standard error of that mean.

    Implements :eq:`share-derivative`: where the groups are the sources of a mixture, minus the mean score of
    source k is the derivative of the next validation loss in the source's share, per unit learning rate.

    Parameters
    ----------
    scores
        `(n,)`; positive helps. A score that is not finite is left out.
    groups
        `(n,)` integers in `[0, count)`, the group of each sample. A sample with another number belongs to no
        group.
    count
        Number of groups.

    Returns
    -------
    tuple
        Means and standard errors, `(count,)` each, in the scores' units. A group of one sample has the
        standard deviation that is pooled over all groups. A group without samples has mean 0 and an infinite
        standard error, as has a group of one sample where no group has two.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.mixtures import group_scores
    >>> means, errors = group_scores(np.array([1.0, 3.0, -2.0, -2.0]), np.array([0, 0, 1, 1]), 3)
    >>> means
    array([ 2., -2.,  0.])
    >>> errors
    array([ 1.,  0., inf])
    """
    xp, values, members = _find_members(scores, groups, count)
    scale = _scale_of_squares(xp, values)
    values = values / scale
    sizes = xp.sum(members, axis=1)
    means = quotient(xp, dot(xp, members, values[None, :]), sizes, 0.0)
    deviations = (values[None, :] - means[:, None]) * members
    squares = xp.sum(deviations * deviations, axis=1)
    freedom = xp.maximum(sizes - 1, xp.zeros_like(sizes))
    pooled = quotient(xp, xp.sum(squares), xp.sum(freedom), inf)
    variances = xp.where(sizes > 1, squares / xp.maximum(freedom, xp.ones_like(freedom)), pooled)
    return means * scale, xp.sqrt(quotient(xp, variances, sizes, inf)) * scale


def group_sizes(scores: Array, groups: Array, count: int, /) -> Float[Array, " count"]:
    """Count the scores behind each mean of `group_scores`, for `Mixture.step` and `update_mixture`.

    Parameters
    ----------
    scores, groups, count
        As for `group_scores`. A score that is not finite is left out.

    Returns
    -------
    array
        `(count,)` whole numbers, of the type that scores are accumulated in.
    """
    xp, _, members = _find_members(scores, groups, count)
    return xp.sum(members, axis=1)


def _find_members(scores: Array, groups: Array, count: int) -> tuple[Namespace, Array, Array]:
    """Return the namespace, the finite scores, 0 elsewhere, and `(count, n)`: 1 where a group has one."""
    check_array("scores", scores, "n")
    xp = namespace_of({"scores": scores, "groups": groups})
    check_array("groups", groups, str(scores.shape[0]), kind="integral")
    check_count("count", count)
    values = cast(xp, scores, accumulation_dtype(xp, scores.dtype))
    finite = xp.isfinite(values)
    # the ids' own type may not hold every group's number
    numbers = xp.arange(count, device=device_of(groups))
    groups = cast(xp, groups, numbers.dtype)
    members = xp.astype((groups[None, :] == numbers[:, None]) & finite[None, :], values.dtype)
    return xp, xp.where(finite, values, xp.zeros_like(values)), members


def _scale_of_squares(xp: Namespace, values: Array) -> Array:
    """Return what to divide numbers by so that sums of their squares are finite: 1 unless they are huge."""
    limit = sqrt(xp.finfo(values.dtype).max) * 2.0**-16
    largest = xp.max(xp.abs(values))
    return xp.where(largest > limit, largest / limit, xp.ones_like(largest))


@checked
def cochran_q(
    means: Float[Array, "... K"], standard_errors: Float[Array, "... K"], /
) -> Float[Array, " ..."]:
    r"""Compute Cochran's Q, the precision-weighted spread of the means.

    Implements :eq:`cochran-q`: :math:`Q = \sum_k p_k (m_k - \bar m)^2` with :math:`p_k = 1 / e_k^2` and
    :math:`\bar m` the mean weighted by :math:`p_k`. If all sources have one true mean, Q is K - 1 on average,
    and has the chi-squared law with K - 1 degrees of freedom where the means are normal.

    Parameters
    ----------
    means, standard_errors
        One for each source. A source whose standard error is infinite or 0 does not count.

    Returns
    -------
    array
        Q; 0 where no source counts.
    """
    return _q_of_estimates(xp_of(means), means, standard_errors, xp_of(means).zeros_like(means))


def _q_of_estimates(
    xp: Namespace, means: Array, standard_errors: Array, inverse_freedom: Array
) -> Float[Array, " ..."]:
    """Return Cochran's Q with standard errors that were estimated, on the scale of a chi-squared variable."""
    # With errors of v_k degrees of freedom (`inverse_freedom` is 1 / v_k, 0 of errors that are known) T_k =
    # (m_k - mu) / e_k has Student's law, and Wallace's ((8 v_k + 1) / (8 v_k + 3))^2 v_k log(1 + T_k^2 / v_k)
    # about the chi-squared law with 1 degree of freedom. Their sum, at the mu that makes it least, is a
    # likelihood-ratio statistic for one common mean, with K - 1 degrees of freedom; of known errors it is Q.
    # Three steps of a search from each mean end within 2% of the least sum.
    # a source that was not observed has precision 0
    precisions = quotient(xp, xp.ones_like(means), standard_errors * standard_errors, 0.0)[..., None, :]
    means = xp.where(precisions > 0, means[..., None, :], xp.zeros_like(means[..., None, :]))
    inverse_freedom = inverse_freedom[..., None, :]
    known = inverse_freedom > 0
    inverse = xp.where(known, inverse_freedom, xp.ones_like(means))

    # The sum may have several minima, each near one of the means: one row for a search from each of them.
    def squares(centres: Array) -> Array:
        return precisions * (means - centres[..., :, None]) ** 2

    wallace = ((8 + inverse_freedom) / (8 + 3 * inverse_freedom)) ** 2
    centres = means[..., 0, :]
    for _ in range(3):
        weights = precisions * wallace / (1 + squares(centres) * inverse_freedom)  # where the slope is 0
        centres = quotient(xp, xp.sum(weights * means, axis=-1), xp.sum(weights, axis=-1), 0.0)
    found = squares(centres)
    terms = xp.where(known, wallace * xp.log1p(found * inverse) / inverse, found)
    return xp.min(xp.sum(terms, axis=-1), axis=-1)


@checked
def contrast_variances(variances: Float[Array, "... K"], /) -> Float[Array, "... K"]:
    r"""Compute the variance of each mean's difference from the mean over sources.

    Implements :eq:`contrast-variance`: :math:`(1 - 2/K)\, v_k + \frac{1}{K^2} \sum_i v_i`.

    Parameters
    ----------
    variances
        Squared standard errors of the means.

    Returns
    -------
    array
        The variances of :math:`m_k - \frac1K \sum_i m_i`.
    """
    xp, count = xp_of(variances), int(variances.shape[-1])
    total = xp.sum(variances, axis=-1, keepdims=True)
    return variances * (1.0 - 2.0 / count) + total / count**2


@checked
def shrink_contrasts(
    contrasts: Float[Array, "... K"], variances: Float[Array, "... K"], /
) -> Float[Array, "... K"]:
    r"""Shrink noisy contrasts towards 0 by their estimated share of signal.

    Implements :eq:`contrast-shrinkage`: :math:`c_k\, t / (t + v_k)`, the linear estimate with the smallest
    mean squared error, where :math:`t` is the variance of the true contrasts; it is estimated by
    :math:`\max(0, \frac1K \sum_k (c_k^2 - v_k))` (empirical Bayes; Morris 1983).

    Parameters
    ----------
    contrasts
        Differences from the mean over sources.
    variances
        The contrasts' error variances.

    Returns
    -------
    array
        The shrunk contrasts; all 0 where the contrasts spread no more than their errors.
    """
    xp = xp_of(contrasts)
    excess = xp.mean(contrasts * contrasts - variances, axis=-1, keepdims=True)
    signal = xp.where(excess > 0, excess, xp.zeros_like(excess))
    return contrasts * quotient(xp, signal, signal + variances, 0.0)


def hedge_step_size(count: int, horizon: float, /) -> float:
    r"""Compute the step size that minimises Hedge's bound over a horizon.

    Implements :eq:`hedge-step`: :math:`\eta = \sqrt{\ln K / H}` minimises :math:`\ln K / \eta + \eta H`,
    which is :math:`2 \sqrt{H \ln K}` there.

    Parameters
    ----------
    count
        K, the number of sources.
    horizon
        H, the number of updates over which one mixture may be taken as the best.

    Returns
    -------
    float
        The step size; 0 for one source.
    """
    check_number("horizon", horizon, above=0.0)
    return sqrt(log(check_count("count", count)) / horizon)


class MixtureState(NamedTuple):
    """Weights of a mixture and the evidence that moves them: arrays, and a pytree in JAX."""

    weights: Array
    """`(K,)`, summing to 1: the shares to draw from."""
    prior: Array
    """`(K,)`, summing to 1: the shares at the start, which the floor follows."""
    count: Array
    """`(K,)`: number of updates that observed each source, discounted."""
    total: Array
    """`(K,)`: discounted sum of each source's contrasts."""
    variance: Array
    """`(K,)`: discounted sum of each source's squared standard errors."""
    square: Array
    """`()`: mean of the squared mean scores over all updates."""
    updates: Array
    """`()`: number of updates so far."""
    inverse_freedom: Array
    """`(K,)`: one over the degrees of freedom of `variance`; 0 where standard errors are taken as known."""


class MixtureUpdate(NamedTuple):
    """One update of a `Mixture` as Python numbers, `(K,)` each: for a report."""

    weights: tuple[float, ...]
    """The shares after the update."""
    means: tuple[float, ...]
    """The sources' mean scores."""
    standard_errors: tuple[float, ...]
    """Their standard errors; infinite for a source that was not observed."""


def initial_mixture(prior: Array, /) -> MixtureState:
    """Start a mixture.

    Parameters
    ----------
    prior
        `(K,)` positive numbers, the shares of the sources up to a factor.

    Returns
    -------
    MixtureState
        The prior's shares and no evidence.
    """
    xp = check_array("prior", prior, "n")
    values = cast(xp, prior, accumulation_dtype(xp, prior.dtype))
    shares, nothing = values / xp.sum(values), xp.zeros_like(values)
    number = xp.sum(nothing)
    return MixtureState(shares, shares, nothing, nothing, nothing, number, number, nothing)


def update_mixture(
    state: MixtureState,
    means: Array,
    standard_errors: Array,
    /,
    *,
    sizes: Array | None = None,
    horizon: float = 10.0,
    floor: float = 0.05,
    confidence: float = 0.9999,
) -> MixtureState:
    r"""Move the weights of a mixture by the sources' mean scores: a pure function, for `jax.jit`.

    Implements :eq:`mixture-regret`: the weights become :math:`(1 - f)\, w_k\, e^{\eta g_k} / Z + f\, \pi_k`,
    and with the prior mixed in the mixture follows any sequence of sources at a bounded price.

    Parameters
    ----------
    state
        From `initial_mixture` or from the update before.
    means, standard_errors
        `(K,)` each, from `group_scores`. A source whose standard error is not finite was not observed.
    sizes
        `(K,)`, from `group_sizes`: the test then allows for standard errors that were estimated from so many
        scores. None: they are taken as known, and the weights move too often where scores are few.
    horizon
        Updates over which one mixture may be taken as the best: sets the step and the memory.
    floor
        Share that always follows the prior, in [0, 1].
    confidence
        Level of the test that sources differ at all, in [0, 1): with sources that do not differ, an update
        moves the weights with probability 1 - `confidence`.

    Returns
    -------
    MixtureState
        The next state. Where no source was observed, the state as it was.
    """
    _check_options(horizon, floor, confidence)
    sources = int(state.weights.shape[0])
    for name, array in (("means", means), ("standard_errors", standard_errors)):
        check_array(name, array, str(sources))
    xp = namespace_of({"weights": state.weights, "means": means, "standard_errors": standard_errors})
    means, errors = (cast(xp, one, state.weights.dtype) for one in (means, standard_errors))
    inverse = xp.zeros_like(means)
    if sizes is not None:
        check_array("sizes", sizes, str(sources))
        namespace_of({"means": means, "sizes": sizes})
        # of one score the standard error is the pooled one
        own = xp.maximum(cast(xp, sizes, means.dtype) - 1.0, inverse)
        inverse = quotient(xp, xp.ones_like(own), xp.where(own > 0, own, xp.sum(own)), 0.0)
    observed = xp.isfinite(means) & xp.isfinite(errors)
    evidence = _observe(xp, state, means, errors, inverse, observed, 1.0 - 1.0 / horizon)
    step = hedge_step_size(sources, horizon) * _relative_contrasts(xp, evidence, confidence)
    tiny = xp.full_like(step, xp.finfo(step.dtype).smallest_normal)
    logits = xp.log(xp.maximum(state.weights, tiny)) + step
    raised = xp.exp(logits - xp.max(logits))
    weights = (1.0 - floor) * raised / xp.sum(raised) + floor * state.prior
    following = evidence._replace(weights=weights)
    new = xp.any(observed)
    return MixtureState(*(xp.where(new, one, old) for one, old in zip(following, state, strict=True)))


def _observe(
    xp: Namespace,
    state: MixtureState,
    means: Array,
    errors: Array,
    inverse: Array,
    observed: Array,
    keep: float,
) -> MixtureState:
    """Add an update's means to the evidence, whose older part counts `keep` times as much."""
    seen = xp.astype(observed, means.dtype)
    present = xp.sum(seen)
    means, errors = (xp.where(observed, one, xp.zeros_like(one)) for one in (means, errors))
    # an update whose squares would not be finite counts as one of smaller scores
    scale = _scale_of_squares(xp, xp.maximum(xp.abs(means), errors))
    means, errors = means / scale, errors / scale
    # contrasts rather than means: scores of all sources shrink together while a model learns
    contrasts = (means - quotient(xp, xp.sum(means), present, 0.0)) * seen
    updates = state.updates + 1.0
    square = quotient(xp, xp.sum(means * means), present, 0.0)
    # the mean that is taken off is one number for all sources, which cancels between them, unless a source
    # that was seen before is missing: then its own error, too, tells the others from that one
    missing = xp.any((state.count > 0) & ~observed)
    common = quotient(xp, xp.sum(errors * errors), present * present, 0.0)
    added = (errors * errors + xp.where(missing, common, xp.zeros_like(common))) * seen
    variance = keep**2 * state.variance + added
    # a sum of estimated variances has the degrees of freedom of Satterthwaite (1946): their inverses add up,
    # each times the square of its share of the sum
    old = quotient(xp, keep**2 * state.variance, variance, 0.0)
    return MixtureState(
        weights=state.weights,
        prior=state.prior,
        count=keep * state.count + seen,
        total=keep * state.total + contrasts,
        variance=variance,
        square=state.square + (square - state.square) / updates,
        updates=updates,
        inverse_freedom=old**2 * state.inverse_freedom + (1.0 - old) ** 2 * inverse * seen,
    )


def _relative_contrasts(xp: Namespace, evidence: MixtureState, confidence: float) -> Array:
    """Return the contrasts that the evidence supports, over the scores' root mean square, or all 0."""
    known = evidence.count > 0
    # a source that was never observed counts as one with the mean score: its contrast is 0, without error
    count = xp.where(known, evidence.count, xp.ones_like(evidence.count))
    eps = xp.finfo(count.dtype).eps
    contrasts = quotient(xp, evidence.total / count, xp.sqrt(evidence.square), 0.0)
    # where all scores of a source are equal, rounding is what is left of their spread; an error of eps^-1/2
    # says as little as an infinite one
    errors = quotient(xp, xp.sqrt(evidence.variance) / count, xp.sqrt(evidence.square), 0.0)
    errors = xp.clip(errors, eps, eps**-0.5)
    variances = errors * errors * xp.astype(known, count.dtype)
    errors = xp.where(known, errors, xp.full_like(count, math.inf))
    spread = _q_of_estimates(xp, contrasts, errors, evidence.inverse_freedom)
    shrunk = shrink_contrasts(contrasts, contrast_variances(variances))
    limits = _quantiles(int(contrasts.shape[0]), confidence)
    place = xp.reshape(xp.sum(xp.astype(known, xp.int32)), (1,))
    limit = xp.take(xp.asarray(limits, dtype=spread.dtype, device=device_of(spread)), place)[0]
    return xp.where(spread > limit, shrunk, xp.zeros_like(shrunk))


@lru_cache(maxsize=64)
def _quantiles(sources: int, confidence: float) -> tuple[float, ...]:
    """Return the chi-squared quantile for each number of observed sources; fewer than two have Q = 0."""
    return tuple(upper_quantile(1.0 - confidence, max(count - 1, 1)) for count in range(sources + 1))


def _check_options(horizon: float, floor: float, confidence: float) -> None:
    check_number("horizon", horizon, at_least=1.0)
    check_number("floor", floor, at_least=0.0, at_most=1.0)
    check_number("confidence", confidence, at_least=0.0, below=1.0)


class Mixture:
    r"""Mixture weights of data sources that follow the sources' mean scores while a model trains.

    Parameters
    ----------
    prior
        Number of sources, or their shares at the start, up to a factor: positive Python numbers. A mapping
        from names to shares names the sources, for groups that are text.
    horizon, floor, confidence
        As for `lai_core.mixtures.update_mixture`. The defaults were the same for all tasks of the
        study.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.mixtures import Mixture, group_scores
    >>> mixture = Mixture(2)
    >>> scores, groups = np.array([1.0, 1.1, 0.9, -1.0, -0.9, -1.1]), np.array([0, 0, 0, 1, 1, 1])
    >>> mixture.step(*group_scores(scores, groups, 2)).round(2)
    array([0.62, 0.38])
    """

    def __init__(
        self,
        prior: int | Sequence[float] | Mapping[str, float],
        /,
        *,
        horizon: float = 10.0,
        floor: float = 0.05,
        confidence: float = 0.9999,
    ) -> None:
        _check_options(horizon, floor, confidence)
        self.horizon, self.floor, self.confidence = horizon, floor, confidence
        self.names = _names(prior) if isinstance(prior, Mapping) else None
        """What the sources are called, in the order of the weights; None without names."""
        shares = _shares(list(prior.values()) if isinstance(prior, Mapping) else prior)
        nothing = tuple(0.0 for _ in shares)
        self._state = MixtureState(shares, shares, nothing, nothing, nothing, 0.0, 0.0, nothing)
        self.history: list[MixtureUpdate] = []
        """All updates, those before a resumed state included."""

    @property
    def weights(self) -> tuple[float, ...]:
        """The shares to draw from, summing to 1."""
        return tuple(map(float, self._state.weights))

    def step(
        self, means: Array, standard_errors: Array, /, *, sizes: Array | None = None
    ) -> Float[Array, " K"]:
        """Move the weights by the sources' mean scores.

        Parameters
        ----------
        means, standard_errors
            `(K,)` each, from `group_scores`.
        sizes
            `(K,)`, from `group_sizes`, as for `update_mixture`.

        Returns
        -------
        array
            The new weights `(K,)`, in the namespace and on the device of `means`.
        """
        xp = check_array("means", means, str(len(self._state.weights)))
        dtype, device = accumulation_dtype(xp, means.dtype), device_of(means)
        state = MixtureState(*(xp.asarray(one, dtype=dtype, device=device) for one in self._state))
        options = {"horizon": self.horizon, "floor": self.floor, "confidence": self.confidence}
        following = update_mixture(state, means, standard_errors, sizes=sizes, **options)
        self._state = MixtureState(*map(_numbers, following))
        self.history.append(MixtureUpdate(self.weights, _numbers(means), _numbers(standard_errors)))
        return following.weights

    def state_dict(self) -> dict[str, Any]:
        """Return the state as Python numbers, for `json` or a checkpoint."""
        parts = self._state._asdict() | ({"names": self.names} if self.names else {})
        plain = {name: list(one) if isinstance(one, tuple) else one for name, one in parts.items()}
        return plain | {"history": [[list(part) for part in update] for update in self.history]}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Take a state back, from a mixture of as many sources.

        Parameters
        ----------
        state
            What `state_dict` returned.

        Raises
        ------
        ValueError
            If a part is missing or unknown, or the number of sources, their names or order differ.
        """
        names = MixtureState._fields
        keys = sorted([*names, "history", "names"] if self.names else [*names, "history"])
        if set(state) != set(keys):
            msg = f"state: expected the keys {keys}, got {sorted(map(str, state))}"
            raise ValueError(msg)
        if self.names and list(state["names"]) != list(self.names):
            msg = f"state['names']: expected {list(self.names)}, got {list(state['names'])}"
            raise ValueError(msg)
        loaded = MixtureState(**{name: _numbers(state[name]) for name in names})
        for name, one, own in zip(names, loaded, self._state, strict=True):
            expected, got = (len(part) if isinstance(part, tuple) else 0 for part in (own, one))
            if expected != got:
                msg = f"state[{name!r}]: expected {expected} sources, got {got}"
                raise ValueError(msg)
        self._state = loaded
        self.history = [MixtureUpdate(*map(_numbers, update)) for update in state["history"]]


def _names(prior: Mapping[Any, float]) -> tuple[str, ...]:
    for one in prior:
        if not isinstance(one, str):
            msg = f"prior: expected names that are text, got {one!r}; numbered sources take a list of shares"
            raise TypeError(msg)
    return tuple(map(str, prior))


def _shares(prior: Any) -> tuple[float, ...]:
    if isinstance(prior, str) or not isinstance(prior, Sequence):
        return (1.0 / check_count("prior", prior),) * int(prior)
    if not prior:
        msg = "prior: expected at least one source, got none"
        raise ValueError(msg)
    for place, one in enumerate(prior):
        check_number(f"prior[{place}]", one, above=0.0)
    total = math.fsum(prior)
    return tuple(float(one) / total for one in prior)


def _numbers(value: Any) -> Any:
    """Return Python numbers for an array, a list or a number."""
    if isinstance(value, int | float) or not getattr(value, "shape", True):
        return float(value)
    return tuple(map(float, value))
