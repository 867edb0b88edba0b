"""The drawing that all samplers share: sources of a batch, order of samples, what a state holds."""

import collections
import json
import re
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lai_core._adapters import AHEAD, ShuffledDraws
from lai_core.mixtures import Mixture
from tests.support.refusals import refusals

MEMBERS = [[0, 3, 5], [1, 4, 6, 8], [2, 7]]
SOURCE = {index: source for source, members in enumerate(MEMBERS) for index in members}


class Drawn(ShuffledDraws):
    """Shuffles by Python's own generator."""

    def _shuffle(self, members, seed):
        assert seed < 2**63  # what torch's and numpy's generators take
        self.shuffles = [*getattr(self, "shuffles", []), members]
        return Random(seed).sample(members, len(members))


def made(weights=(1, 1, 1), size=4, **options):
    return Drawn(MEMBERS, weights, size, **{"replicas": 1, "rank": 0, "fixed": None, "seed": 0} | options)


@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 5))
def test_processes_share_batches_without_early_repeats(seed, replicas, size):
    parts = [made(size=size, replicas=replicas, rank=rank, seed=seed) for rank in range(replicas)]
    whole = made(size=size * replicas, seed=seed)
    came = collections.defaultdict(list)
    for _ in range(6):
        own = [part._next() for part in parts]
        batch = whole._next()
        assert all(len(one) == size for one in own)
        assert [own[at % replicas][at // replicas] for at in range(size * replicas)] == batch
        for index in batch:
            came[SOURCE[index]].append(index)
    for source, indices in came.items():
        turn = len(MEMBERS[source])
        assert whole.shuffles.count(MEMBERS[source]) == -(-len(indices) // turn)
        for start in range(0, len(indices) - turn + 1, turn):
            assert sorted(indices[start : start + turn]) == MEMBERS[source]


@given(st.integers(0, 2**31), st.integers(0, 6))
def test_states_keep_place_and_prefetched_draws(seed, trained):
    whole = made(seed=seed)
    rows = []
    for step in range(6):
        whole.weights = (1, step, 0)
        rows.append(whole._next())
    whole.weights = (0, 0, 1)
    state = whole.state_dict(batches=trained)
    assert (state["batch"], len(state["ahead"]), state["seed"]) == (trained, 6 - trained, seed)
    resumed = made(weights=(0, 0, 1), seed=seed + 1)
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match=rf"^batches: expected a number from {trained} to {trained}, "):
        resumed.state_dict(batches=trained + 1)
    assert [resumed._next() for _ in range(trained, 6)] == rows[trained:]
    for step in range(trained, 7):  # the global step of a resumed run
        assert resumed.state_dict(batches=step)["batch"] == step
    assert resumed._next() == whole._next()
    assert resumed.state_dict() == whole.state_dict()


def test_states_reach_back_within_kept_history():
    draws = made(size=1)
    for _ in range(AHEAD + 2):
        draws._next()
    assert len(draws.state_dict(batches=2)["ahead"]) == AHEAD
    for batches in (1, AHEAD + 3):
        message = (
            f"batches: expected a number from 2 to {AHEAD + 2}, as many as were drawn since the first run "
            f"began, got {batches}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            draws.state_dict(batches=batches)


@pytest.mark.parametrize("batches", [2.0, "2", True])
def test_a_number_of_batches_is_whole(batches):
    draws = made()
    for _ in range(3):
        draws._next()
    assert json.dumps(draws.state_dict(batches=np.int64(2))) == json.dumps(draws.state_dict(batches=2))
    with pytest.raises(TypeError, match=f"^batches: expected a whole number >= 0, got {batches!r}$"):
        draws.state_dict(batches=batches)


@pytest.mark.parametrize(
    ("weights", "fixed", "names"),
    [((1, 1), {2: 3}, []), (Mixture({"web": 1.0, "code": 1.0}), {"books": 3}, ["web", "code", "books"])],
)
def test_fixed_sources_need_no_weight(weights, fixed, names):
    draws = made(weights=weights, fixed=fixed, size=6)
    assert draws.names == names
    for _ in range(20):
        drawn = [SOURCE[index] for index in draws._next()]
        assert (len(drawn), drawn.count(2)) == (6, 3)


BAD = {
    "weights: expected a share for each source in order, got a mapping; Mixture({name: share})": {
        "weights": {0: 0.9, 1: 0.1}
    },
    "weights: expected one for each of 3 sources, got 2": {"weights": (1, 1)},
    "weights[3]: expected 0 for a source without samples, got 1.0": {"weights": (1, 1, 1, 1)},
    "weights[1]: expected a finite number >= 0, got -1.0": {"weights": (1, -1, 1)},
    "weights: expected at least one above 0, got zeros": {"weights": (0, 0, 0)},
    "batch_size: expected a whole number >= 1, got 0": {"size": 0},
    "replicas: expected a whole number >= 1, got 0": {"replicas": 0},
    "rank: expected a number below replicas=2, got 2": {"replicas": 2, "rank": 2},
    "fixed: expected sources below 3, got 3": {"fixed": {3: 1}},
    "fixed[2]: expected a whole number >= 0, got -1": {"fixed": {2: -1}},
    "fixed: expected fewer samples than a batch has, 4, got 4": {"fixed": {2: 4}},
}


test_what_does_not_fit_is_named = refusals(
    {f"Exception: {said}": partial(made, **options) for said, options in BAD.items()}
)
