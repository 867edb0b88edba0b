"""Mixture weights: written out in numpy, on every namespace, still where there is no evidence, resumed."""

import json
import math

import jax
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from lai_core.mixtures import Mixture, MixtureState, group_scores, initial_mixture, update_mixture
from proofs import prove_mixtures
from tests.support.backends import BACKENDS
from tests.support.inequalities import hunt
from tests.support.refusals import refusals

SHARES = st.lists(st.floats(0.05, 5), min_size=1, max_size=5)
OPTIONS = st.fixed_dictionaries(
    {
        "horizon": st.sampled_from([1.0, 2.5, 10.0]),
        "floor": st.sampled_from([0.0, 0.05, 1.0]),
        "confidence": st.sampled_from([0.0, 0.5, 0.9999]),
    }
)
MEAN = st.integers(-3, 3).map(float)
ERRORS = [0.0, 0.05, 0.5, 2.0, math.inf]


def written_out(prior, rounds, horizon, floor, confidence):
    """Compute the weights after all updates, and the evidence, source by source and in numpy alone."""
    count = len(prior)
    prior = np.array(prior) / np.sum(prior)
    weights, history, squares = prior.copy(), [], []
    for means, errors, sizes in rounds:
        seen = np.isfinite(errors)
        if not seen.any():
            continue
        centre, common = np.mean(means[seen]), math.hypot(*errors[seen]) / seen.sum()
        counted = [h for age, h in enumerate(reversed(history)) if (1 - 1 / horizon) ** age > 0]
        if all(ok or not any(h[k] for h in counted) for k, ok in enumerate(seen)):
            common = 0.0  # no source that was seen before is missing
        pooled = sum(size - 1 for size in sizes if size > 1)
        freedom = [size - 1 if size > 1 else pooled or math.inf for size in sizes]
        history.append(
            [
                (m - centre, math.hypot(e, common), v) if ok else None
                for m, e, v, ok in zip(means, errors, freedom, seen, strict=True)
            ]
        )
        squares.append(np.mean(means[seen] ** 2))
        unit = math.sqrt(np.mean(squares))
        contrasts, variances, known = np.zeros(count), np.zeros(count), np.zeros(count, bool)
        for k in range(count):
            entries = [(age, h[k]) for age, h in enumerate(reversed(history)) if h[k] is not None]
            shares = np.array([(1 - 1 / horizon) ** age for age, _ in entries])
            if shares.sum() > 0:
                shares /= shares.sum()
                known[k] = True
                contrasts[k] = sum(s * c for s, (_, (c, _, _)) in zip(shares, entries, strict=True))
                variances[k] = sum(s**2 * e**2 for s, (_, (_, e, _)) in zip(shares, entries, strict=True))
        variances = np.maximum(variances, known * np.mean(squares) * np.finfo(float).eps ** 2)
        precise = 1 / variances[known] if unit else np.ones(known.sum())
        around = np.average(contrasts[known], weights=precise)
        spread = np.sum(precise * (contrasts[known] - around) ** 2)
        if known.sum() > 1 and spread > scipy.stats.chi2.ppf(confidence, known.sum() - 1):
            noise = variances * (1 - 2 / count) + variances.sum() / count**2
            signal = max(0.0, np.mean(contrasts**2 - noise))
            with np.errstate(all="ignore"):
                shrunk = np.nan_to_num(contrasts * signal / (signal + noise))
            raised = weights * np.exp(math.sqrt(math.log(count) / horizon) * shrunk / unit if unit else 0.0)
            weights = raised / raised.sum()
        weights = (1 - floor) * weights + floor * prior
    terms = np.zeros((4, count))  # of count, total, variance, and of what Satterthwaite divides by its square
    for age, entry in enumerate(reversed(history)):
        for k in range(count):
            if entry[k]:
                share, (contrast, error, freedom) = (1 - 1 / horizon) ** age, entry[k]
                one = (share * error) ** 2
                terms[:, k] += share, share * contrast, one, one**2 / freedom
    return weights, (*terms, np.mean(squares or 0.0), len(squares))


def rounds_of(data, count, most):
    """Draw the sources' means and standard errors in up to so many updates."""
    pairs = st.lists(st.tuples(MEAN, st.sampled_from(ERRORS)), min_size=count, max_size=count)
    drawn = data.draw(st.lists(pairs, min_size=1, max_size=most))
    return [tuple(np.array(column) for column in zip(*one, strict=True)) for one in drawn]


@pytest.mark.parametrize("turn", range(3))
@given(SHARES, st.integers(0, 2**32), OPTIONS)
def test_weights_match_the_explicit_update(turn, prior, seed, options):
    rng, k = np.random.default_rng((turn, seed)), len(prior)
    rounds = [
        (rng.integers(-3, 4, k) * 1.0, rng.choice(ERRORS, k), rng.integers(0, 5, k) * 1.0)
        for _ in range(rng.integers(1, 7))
    ]
    mixture, state = Mixture(prior, **options), initial_mixture(np.array(prior))
    estimated = state
    for means, errors, sizes in rounds:
        mixture.step(means, errors)
        state = update_mixture(state, means, errors, **options)
        estimated = update_mixture(estimated, means, errors, sizes=sizes, **options)
    np.testing.assert_allclose(state.weights, mixture.weights, rtol=1e-12)
    weights, evidence = written_out(prior, rounds, **options)
    np.testing.assert_allclose(mixture.weights, weights, rtol=1e-8, atol=1e-12)
    found = estimated._replace(inverse_freedom=estimated.inverse_freedom * estimated.variance**2)
    names = ("count", "total", "variance", "inverse_freedom", "square", "updates")
    for name, expected in zip(names, evidence, strict=True):
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-9, atol=1e-12)


def test_largest_finite_scores_are_kept():
    largest = math.sqrt(np.finfo(float).max) * 2.0**-16
    state = update_mixture(initial_mixture(np.ones(2)), np.array([largest, -largest]), np.zeros(2))
    assert state.total.tolist() == [largest, -largest]


def test_zero_errors_keep_degrees_of_freedom():
    start, sizes = initial_mixture(np.ones(2)), np.array([3.0, 2.0])
    state = update_mixture(start, np.ones(2), np.zeros(2), sizes=sizes)
    assert state.inverse_freedom.tolist() == [0.5, 1.0]


def led_by(sources, count):
    """Give updates in each of which one source is far ahead of the others."""
    return [(3 * np.eye(count)[k], np.full(count, 0.05)) for k in sources]


def best_and_mixed(prior, rounds, quiet, **options):
    """Give the bound for the best sequence of sources, the product of the mixture's factors, and all factors.

    They begin after ``quiet`` updates whose scores are all 0: those that follow are large beside them.
    """
    state, count, floor = initial_mixture(np.array(prior)), len(prior), options["floor"]
    state = state._replace(updates=np.asarray(float(quiet)))
    whole, along, table = 1.0, state.prior, []  # of the sequences that end in each source
    for update, one in enumerate(rounds):
        if update:
            prices = np.tile(floor * state.prior, (count, 1))
            np.fill_diagonal(prices, 1 - floor * (1 - state.prior))
            along = np.max(along[:, None] * prices, axis=0)
        # without a floor, equal shares become the factors, scaled
        equal = state._replace(weights=np.full(count, 1 / count))
        factors = update_mixture(equal, *one, **options | {"floor": 0.0}).weights
        table.append(factors)
        mixed = state.weights @ factors
        whole, along = whole * mixed, along * factors
        moved = (1 - floor) * state.weights * factors / mixed + floor * state.prior
        expected = moved if np.isfinite(one[1]).any() else state.weights
        state = update_mixture(state, *one, **options)
        np.testing.assert_allclose(state.weights, expected, rtol=1e-9)
    return np.max(along), whole, np.array(table)


@pytest.mark.equation("mixture-regret")
@given(SHARES, st.data(), OPTIONS, st.sampled_from([0.0, 0.05, 0.3, 1.0]), st.sampled_from([0, 30, 300]))
def test_regret_bound_covers_any_source_sequence(prior, data, options, floor, quiet):
    leaders = data.draw(st.lists(st.integers(0, len(prior) - 1), max_size=6))
    rounds = led_by(leaders, len(prior)) or rounds_of(data, len(prior), 6)
    best, mixed, _ = best_and_mixed(prior, rounds, quiet, **options | {"floor": floor})
    hunt(best, mixed)
    assert best <= mixed * (1 + 1e-9)


@pytest.mark.equation("mixture-regret")
@pytest.mark.parametrize("leaders", [(0, 0, 0, 0), (0, 1, 0), (1, 1, 0, 2)], ids=str)
def test_dominant_sources_attain_the_regret_bound(leaders):
    options = {"horizon": 1.0, "floor": 0.3, "confidence": 0.9999}
    best, mixed, _ = best_and_mixed([1.0, 2.0, 3.0], led_by(leaders, 3), 300, **options)
    assert 0.999 * mixed < best <= mixed * (1 + 1e-9)


@pytest.mark.equation("mixture-regret")
@pytest.mark.parametrize("last", [0, 1])
def test_regret_bound_is_the_proved_one(last):
    options = {"horizon": 1.0, "floor": 0.3, "confidence": 0.9999}
    best, mixed, factors = best_and_mixed([1.0, 2.0], led_by([0, last], 2), 300, **options)
    for side, value in (("lhs", best), ("rhs", mixed)):
        proved = prove_mixtures.REGRET.numbers(side, depth=2, index=last)
        assert value == pytest.approx(proved(0.3, [1.0, 2.0], factors.tolist()), rel=1e-9)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_weights_are_numpys_on_every_namespace(backend):
    rng, mixture, expected = np.random.default_rng(4), Mixture([1, 2, 3]), Mixture([1, 2, 3])
    for _ in range(4):
        scores, groups = rng.normal(size=24), rng.integers(0, 2, 24)
        scores += 4 * groups
        expected.step(*group_scores(scores, groups, 3))
        found = mixture.step(*group_scores(backend.array(scores, "float64"), backend.array(groups), 3))
    np.testing.assert_allclose(backend.numpy(found), expected.weights, rtol=1e-9)
    np.testing.assert_allclose(mixture.weights, expected.weights, rtol=1e-9)
    assert expected.weights != pytest.approx([1 / 6, 1 / 3, 1 / 2], rel=1e-3)


def test_json_states_resume_bit_for_bit():
    rng, whole = np.random.default_rng(3), Mixture([1, 2, 3], horizon=4.0)
    resumed = Mixture(3, horizon=4.0)
    for update in range(6):
        pair = rng.normal(size=3), rng.uniform(0.1, 0.3, 3)
        whole.step(*pair)
        if update == 2:
            resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
        if update > 2:
            resumed.step(*pair)
    assert resumed.weights == whole.weights
    assert resumed.state_dict() == whole.state_dict()
    assert resumed.history == whole.history
    assert (len(whole.history), whole.history[-1].weights) == (6, whole.weights)


@pytest.mark.parametrize(
    ("dtype", "largest"), [("float32", 3e38), ("float32", 1e20), ("float64", 1e300), ("float64", 1e-300)]
)
def test_weights_stay_finite_for_extreme_scores(dtype, largest):
    rng = np.random.default_rng(0)
    values = np.array([0.0, 1.0, -1.0, largest, -largest, math.inf, math.nan], dtype)
    errors = np.array([0.0, 0.1, largest, math.inf], dtype)
    for _ in range(100):
        count = int(rng.integers(1, 5))
        mixture = Mixture(count, confidence=float(rng.choice([0.0, 0.9999])))
        for _ in range(4):
            sizes = rng.integers(0, 4, count).astype(dtype) if rng.random() < 0.5 else None
            mixture.step(rng.choice(values, count), rng.choice(errors, count), sizes=sizes)
            assert sum(mixture.weights) == pytest.approx(1.0)


LEVEL, DRAWS = 1e-3, 50_000


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("spreads", [(1.0, 1.0), (1.0, 20.0)], ids=["equal", "unequal"])
@pytest.mark.parametrize("sizes", [(3, 3), (10, 10), (50, 50), (3, 50)], ids=str)
@pytest.mark.parametrize("count", [2, 4, 8])
def test_few_scores_keep_the_test_level(count, sizes, spreads, missing):
    """Over simulated normal scores of one true mean, at three updates; of six, each may miss one source."""
    rng, jnp = np.random.default_rng(count), jax.numpy
    pick = np.arange(count) % 2
    n, spread = np.array(sizes, float)[pick], np.array(spreads)[pick] / np.sqrt(np.array(sizes))[pick]
    start = initial_mixture(jnp.ones(count))
    states = jax.vmap(lambda _: start)(jnp.arange(DRAWS))

    def update(state, means, errors):
        seen = jnp.where(jnp.isfinite(errors), n, 0)
        return update_mixture(state, means, errors, sizes=seen, confidence=1 - LEVEL)

    move = jax.jit(jax.vmap(update))
    for number in range(6 if missing else 3):
        means = rng.normal(size=(DRAWS, count)) * spread
        errors = np.sqrt(rng.chisquare(n - 1, (DRAWS, count)) / (n - 1)) * spread
        if missing:
            errors[:, number % count] = np.inf
        following = move(states, jnp.asarray(means), jnp.asarray(errors))
        still = 0.95 * states.weights + 0.05 * states.prior
        moved = int(jnp.sum(jnp.any(jnp.abs(following.weights - still) > 1e-9, axis=1)))
        # 1.5 times the level and four standard deviations
        assert moved <= 1.5 * LEVEL * DRAWS + 4 * math.sqrt(1.5 * LEVEL * DRAWS)
        states = following


@pytest.mark.parametrize("unseen", [0, 1])
@pytest.mark.parametrize("seen", [2, 3, 5])
def test_weights_move_above_the_observed_quantile(seen, unseen):
    limit = scipy.stats.chi2.ppf(0.9, seen - 1)
    for spread, moves in ((0.99 * limit, False), (1.01 * limit, True)):
        means, errors = np.zeros(seen + unseen), np.array([1.0] * seen + [math.inf] * unseen)
        means[:2] = math.sqrt(spread / 2) * np.array([1.0, -1.0])
        weights = Mixture(seen + unseen, confidence=0.9).step(means, errors)
        assert (weights[0] > weights[1]) == moves


@pytest.mark.parametrize(("mean", "moves"), [(0.1 + 0.2, False), (0.3 + 1e-9, True)])
def test_exact_means_differ_beyond_rounding(mean, moves):
    weights = Mixture(2).step(np.array([mean, 0.3]), np.zeros(2))
    assert (weights[0] > weights[1]) == moves


def test_outstanding_means_leave_only_the_floor():
    mixture = Mixture(2, floor=0.1)
    mixture.load_state_dict(mixture.state_dict() | {"updates": 1e12})
    assert mixture.step(np.array([1.0, 0.0]), np.array([0.01, 0.01])).tolist() == pytest.approx([0.95, 0.05])


SCORES, GROUPS = np.ones(3), np.array([0, 1, 1])
KEYS = sorted([*MixtureState._fields, "history"])
BAD = {
    "groups: expected shape (3,), got (2,)": lambda: group_scores(SCORES, GROUPS[:2], 2),
    "groups: expected integers, got float64": lambda: group_scores(SCORES, SCORES, 2),
    "count: expected a whole number >= 1, got 0": lambda: group_scores(SCORES, GROUPS, 0),
    "scores: expected shape (n,), got (3, 1)": lambda: group_scores(np.ones((3, 1)), GROUPS, 2),
    "means: expected shape (2,), got (3,)": lambda: Mixture(2).step(SCORES, SCORES),
    "standard_errors: expected shape (3,), got (2,)": lambda: Mixture(3).step(SCORES, np.ones(2)),
    "prior[1]: expected a finite number > 0.0, got 0.0": lambda: Mixture([1.0, 0.0]),
    "prior: expected at least one source, got none": lambda: Mixture([]),
    "prior: expected names that are text, got 10; numbered sources take a list of shares": lambda: Mixture(
        {10: 1.0}
    ),
    f"state: expected the keys {KEYS}, got ['weights']": lambda: Mixture(2).load_state_dict({"weights": [1]}),
    "state['weights']: expected 1 sources, got 0": lambda: Mixture(1).load_state_dict(
        Mixture(1).state_dict() | {"weights": 1.0}
    ),
    "state['names']: expected ['web', 'code'], got ['code', 'web']": lambda: Mixture(
        {"web": 1.0, "code": 1.0}
    ).load_state_dict(Mixture({"code": 1.0, "web": 1.0}).state_dict()),
}


test_bad_input_is_named = refusals({f"Exception: {said}": call for said, call in BAD.items()})
