"""The search: what a multiplier counts, who is chosen, and that the choice sees no seed it is judged on."""

from types import SimpleNamespace

import pytest
import torch
from experiments.methods.remembered import GRID

from experiments.harness.statistics import summary
from experiments.methods.base import METHODS, Outcome, Run
from experiments.studies import search
from tests.experiments.test_methods import ROWS, task


def outcome(test, operations, validation=None, checks=0.0):
    return Outcome(test, validation or test, operations, 1.0, 0.0, None, 10.0, checks, {})


def test_stopping_early_takes_the_best_network_so_far_and_pays_for_looking():
    found = outcome([0.5, 0.9, 0.7], [2.0, 4.0, 6.0], validation=[0.1, 0.2, 0.3], checks=3.0)
    assert found.stopped() == ([0.5, 0.9, 0.7], [0.3, 0.6, 0.9])
    kept = outcome([0.5, 0.9, 0.7], [2.0, 4.0, 6.0], validation=[0.2, 0.3, 0.2])
    assert kept.stopped()[0] == [0.5, 0.9, 0.9]


def test_a_multiplier_is_how_many_times_less_is_needed():
    plain = outcome([0.5, 0.8, 0.9], [10.0, 20.0, 30.0])
    assert search.multiplier(plain, plain) == 1.0
    assert search.multiplier(outcome([0.6, 0.9], [15.0, 20.0]), plain) == pytest.approx(1.5)
    assert search.multiplier(outcome([0.6, 0.896], [15.0, 20.0]), plain) == pytest.approx(1.5)
    assert search.multiplier(outcome([0.6, 0.89], [1.0, 2.0]), plain) == 0.0


def made(choosing, fresh):
    """Make records of two policies, by their multipliers over every opponent on either kind of seeds."""
    methods = {}
    for name in (*search.OPPONENTS, search.NULL, search.ORACLE, *GRID[:2]):
        rows = {f"over {other}": (choosing, fresh) for other in search.OPPONENTS} | {"cost": ({}, {})}
        methods[name] = {
            f"{prefix}{search.MAIN}: {key}": summary([of.get(name, 0.5), of.get(name, 0.5) + 0.01])
            for key, both in rows.items()
            for prefix, of in zip((search.CHOOSING, ""), both, strict=True)
        }
        methods[name][f"{search.MAIN}: stopped early"] = summary([0.5, 0.51])
        highest = 0.9 if name == GRID[1] else 0.5
        methods[name][f"{search.CHOOSING}{search.MAIN}: stopped early"] = summary([highest, highest])
    return methods


def test_a_policy_is_chosen_on_some_seeds_and_judged_on_others():
    methods = made({GRID[0]: 2.0, GRID[1]: 1.5}, {GRID[0]: 0.5, GRID[1]: 3.0})
    assert search.chosen(methods, search.MAIN) == GRID[0]
    claims = search.claims(methods)
    for other in search.OPPONENTS:
        text = f"{search.MAIN}: {GRID[0]}: fewer operations than {other} for its accuracy"
        assert claims[text]["verdict"] == "refuted"
        assert f"{search.MAIN}: {GRID[1]}: above {other}, all stopped early" in claims
    assert len(claims) == 2 * len(search.OPPONENTS)


def test_no_seed_is_both_chosen_on_and_judged_on(monkeypatch):
    drawn = []
    monkeypatch.setattr(search, "train", lambda name, made, seed: drawn.append(seed) or outcome([0.5], [1.0]))
    monkeypatch.setitem(search.SETTINGS, search.MAIN, lambda seed, epochs: SimpleNamespace(seed=seed))
    for unit in search.units(search.config("quick")):
        unit.run()
    assert set(drawn) == {0, 1, 100, 101}


def test_a_majority_holds_where_nothing_is_scored():
    run = Run(task(epochs=8), 0)
    step = METHODS["LAI, majority, each fourth epoch"].start(run)
    first = step(ROWS)
    run.progress = 1 / 8
    assert torch.equal(step(ROWS) > 0, first > 0)
    assert run.train_on(torch.ones(32))(ROWS).tolist() == [1 / 8] * 8
