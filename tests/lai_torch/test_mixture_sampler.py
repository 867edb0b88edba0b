"""Batches over sources: their shares, their order, on several processes, and resumed behind a data loader."""

import collections
import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lai_torch import MixtureSampler
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

from lai_core.mixtures import Mixture

GROUPS = [0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 1, 2]


def batches(sampler, size, epochs=1):
    """Return the batches of some epochs."""
    found = [index for _ in range(epochs) for index in sampler]
    return [found[k : k + size] for k in range(0, len(found), size)]


def test_sources_may_have_names():
    """The mixture's order is that of its names, and fixed sources beyond it follow."""
    names, mixture = ["web", "code", "good"], Mixture({"web": 3.0, "code": 1.0})
    assert mixture.weights == (0.75, 0.25)
    text = [names[source] for source in GROUPS]
    for groups in (text, np.array(text), np.array(text, dtype=object)):
        found = MixtureSampler(groups, mixture, 4, fixed={"good": 1})
        assert list(found) == list(MixtureSampler(GROUPS, Mixture([3.0, 1.0]), 4, fixed={2: 1}))
    for groups in (text, np.array(text)):
        with pytest.raises(
            ValueError, match="groups: expected one of 'web', 'code', got 'good'; number them"
        ):
            MixtureSampler(groups, mixture, 4)
    with pytest.raises(ValueError, match="groups: expected whole numbers, for no source is named, got 'web'"):
        MixtureSampler(text, [1.0, 1.0, 1.0], 4)


def test_sources_come_in_their_shares():
    sampler = MixtureSampler(GROUPS, [0.7, 0.1, 0.2], 50, batches=200)
    counts = collections.Counter(GROUPS[index] for index in sampler)
    # three standard deviations of a binomial share of 10,000
    assert [counts[k] / 10_000 for k in range(3)] == pytest.approx([0.7, 0.1, 0.2], abs=0.014)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_every_sample_of_a_source_comes_once_before_any_comes_again(seed, size):
    sampler = MixtureSampler(GROUPS, [1, 2, 1], size, batches=20, seed=seed)
    drawn = collections.defaultdict(list)
    for index in sampler:
        drawn[GROUPS[index]].append(index)
    for source, indices in drawn.items():
        members = [k for k, group in enumerate(GROUPS) if group == source]
        for start in range(0, len(indices) - len(members) + 1, len(members)):
            assert sorted(indices[start : start + len(members)]) == members


def test_weights_that_change_hold_from_the_next_batch_on():
    weights = [1.0, 0.0, 0.0]
    sampler = MixtureSampler(GROUPS, weights, 4, batches=6)
    seen = []
    for place, index in enumerate(sampler):
        seen.append(GROUPS[index])
        if place == 9:
            weights[:] = [0.0, 0.0, 1.0]
    assert seen == [0] * 12 + [2] * 12


def test_an_epoch_is_one_pass_and_the_next_one_is_another():
    sampler = MixtureSampler(GROUPS, [1, 1, 1], 4)
    first, second = list(sampler), list(sampler)
    assert len(first) == len(second) == len(sampler) == len(GROUPS)
    assert first != second


@given(st.integers(1, 4), st.integers(0, 99))
def test_processes_share_one_batch_out(replicas, seed):
    whole = batches(MixtureSampler(GROUPS, [1, 1, 2], 3 * replicas, batches=5, seed=seed), 3 * replicas)
    options = {"replicas": replicas, "batches": 5, "seed": seed}
    parts = [
        batches(MixtureSampler(GROUPS, [1, 1, 2], 3, rank=rank, **options), 3) for rank in range(replicas)
    ]
    for batch, *own in zip(whole, *parts, strict=True):
        assert sorted(batch) == sorted(index for part in own for index in part)


def run(loader, mixture, sampler, stop=None, first=0):
    """Train by a loader: the weights move with each batch that comes. Return what came, and the states."""
    came, states = [], None
    for step, (rows,) in enumerate(loader, first):
        came.append(rows.tolist())
        weight = np.array([1.0, -1.0, 0.5]) * (1 + step % 3)
        mixture.step(weight, np.full(3, 0.05))
        if step == stop:
            states = json.loads(
                json.dumps([mixture.state_dict(), sampler.state_dict(batches=step + 1 - first)])
            )
    return came, states


class Ahead:
    """Yields batches of a data set in one process, and draws their indices ahead as workers do."""

    def __init__(self, data, sampler, ahead):
        self.data, self.ahead = data, ahead
        self.indices = BatchSampler(sampler, 4, drop_last=False)

    def __iter__(self):
        drawn, indices = collections.deque(), iter(self.indices)
        drawn.extend(itertools.islice(indices, self.ahead))
        while True:
            drawn.extend(itertools.islice(indices, 1))
            if not drawn:
                return
            yield self.data[torch.tensor(drawn.popleft())]


@pytest.mark.parametrize("ahead", [0, 4])
def test_a_run_is_resumed_to_the_bit_behind_workers_that_fetch_ahead(ahead):
    data = TensorDataset(torch.arange(len(GROUPS)))

    def made():
        mixture = Mixture(3)
        sampler = MixtureSampler(GROUPS, mixture, 4, batches=12, seed=5)
        return Ahead(data, sampler, ahead), mixture, sampler

    whole, states = run(*made(), stop=4)
    loader, mixture, sampler = made()
    mixture.load_state_dict(states[0])
    sampler.load_state_dict(states[1])
    assert run(loader, mixture, sampler, first=5)[0] == whole[5:]
    assert len(states[1]["ahead"]) == ahead


def test_a_data_loader_takes_the_sampler():
    data = TensorDataset(torch.arange(len(GROUPS)))
    loader = DataLoader(data, 4, sampler=MixtureSampler(GROUPS, [1, 1, 1], 4, seed=5))
    expected = batches(MixtureSampler(GROUPS, [1, 1, 1], 4, seed=5), 4)
    assert [rows.tolist() for (rows,) in loader] == expected


def test_the_same_is_drawn_under_a_default_device_and_whatever_else_is_drawn():
    expected = list(MixtureSampler(GROUPS, [1, 1, 1], 4))
    torch.manual_seed(7)
    with torch.device("meta"):
        assert list(MixtureSampler(GROUPS, [1, 1, 1], 4)) == expected
    state = torch.get_rng_state()
    list(MixtureSampler(GROUPS, [1, 1, 1], 4))
    assert torch.equal(state, torch.get_rng_state())


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 2))
def test_some_samples_of_each_batch_come_from_a_source_whatever_the_weights(seed, count, replicas):
    parts = [
        MixtureSampler(
            GROUPS, [1, 3], 4, batches=6, fixed={2: count}, seed=seed, replicas=replicas, rank=rank
        )
        for rank in range(replicas)
    ]
    for drawn in zip(*(batches(part, 4) for part in parts), strict=True):
        whole = [GROUPS[index] for part in drawn for index in part]
        assert whole.count(2) == count
        assert len(whole) == 4 * replicas
    first, second = (
        MixtureSampler(GROUPS, [1, 3], 4, batches=6, fixed={2: count}, seed=seed) for _ in range(2)
    )
    whole = list(first)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(batches=3))))
    assert list(second) == whole[12:]


SAMPLER = MixtureSampler(GROUPS, [1, 1, 1], 4)
BAD = {
    "groups: expected shape (n,), one source a sample, got (0,)": lambda: MixtureSampler([], [1], 4),
    "groups: expected whole numbers, got torch.float32": lambda: MixtureSampler([0.0, 1.0], [1, 1], 4),
    "groups: expected numbers from 0, got -1": lambda: MixtureSampler([0, -1], [1, 1], 4),
    "weights: expected one for each of 3 sources, got 2": lambda: MixtureSampler(GROUPS, [1, 1], 4),
    "weights[1]: expected a finite number >= 0, got -1.0": lambda: MixtureSampler(GROUPS, [1, -1, 1], 4),
    "weights[3]: expected 0 for a source without samples, got 2.0": lambda: MixtureSampler(
        GROUPS, [1, 1, 1, 2], 4
    ),
    "weights: expected at least one above 0, got zeros": lambda: MixtureSampler(GROUPS, [0, 0, 0], 4),
    "fixed: expected sources below 3, got 3": lambda: MixtureSampler(GROUPS, [1, 1, 1], 4, fixed={3: 1}),
    "fixed[2]: expected a whole number >= 0, got 0.5": lambda: MixtureSampler(
        GROUPS, [1, 1], 4, fixed={2: 0.5}
    ),
    "fixed: expected fewer samples than a batch has, 4, got 4": lambda: MixtureSampler(
        GROUPS, [1, 1], 4, fixed={2: 4}
    ),
    "batch_size: expected a whole number >= 1, got 0": lambda: MixtureSampler(GROUPS, [1, 1, 1], 0),
    "rank: expected a number below replicas=2, got 2": lambda: MixtureSampler(
        GROUPS, [1, 1, 1], 4, replicas=2, rank=2
    ),
    "batches: expected a number from 0 to 0, as many as were drawn, got 1": lambda: SAMPLER.state_dict(
        batches=1
    ),
    "state: expected the keys ['ahead', 'batch', 'seed', 'taken'], got []": lambda: SAMPLER.load_state_dict(
        {}
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises((TypeError, ValueError)) as caught:
        BAD[message]()
    assert str(caught.value) == message
