"""Batches and streams over sources: their shares, their turns, on several processes, and resumed."""

import collections
import itertools
import json

import datasets
import numpy as np
import pytest
import torch
from lai_torch import MixtureSampler, MixtureStream
from torch.utils.data import DataLoader

from lai_core.mixtures import Mixture

GROUPS = [0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 1, 2]


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


def test_changed_weights_hold_from_next_batch():
    weights = [1.0, 0.0, 0.0]
    sampler = MixtureSampler(GROUPS, weights, 4, batches=6)
    seen = []
    for place, index in enumerate(sampler):
        seen.append(GROUPS[index])
        if place == 9:
            weights[:] = [0.0, 0.0, 1.0]
    assert seen == [0] * 12 + [2] * 12


SIZES = (3, 5, 2)


def generated(number, size):
    """Return a function that makes a generator: a source without a state of its own."""
    return lambda: ((number, k) for k in range(size))


def hosted(number, size):
    """Return a source that has a state of its own, and shuffles its shards each turn."""
    columns = {"source": [number] * size, "row": list(range(size))}
    return datasets.Dataset.from_dict(columns).to_iterable_dataset(num_shards=size).shuffle(3, buffer_size=1)


def listed(number, size):
    return [(number, k) for k in range(size)]


KINDS = [generated, hosted, listed]


def sources(kind):
    return [kind(number, size) for number, size in enumerate(SIZES)]


def taken(stream, count):
    """Return the next items as pairs of a source and a row."""
    items = itertools.islice(iter(stream), count)
    return [(item["source"], item["row"]) if isinstance(item, dict) else item for item in items]


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_ends_begins_again(kind):
    stream = MixtureStream(sources(kind), [1, 1, 1], 4)
    rows = collections.defaultdict(list)
    for source, row in taken(stream, 60):
        rows[source].append(row)
    state = stream.state_dict()
    for source, size in enumerate(SIZES):
        turns = [sorted(rows[source][k : k + size]) for k in range(0, len(rows[source]) - size + 1, size)]
        assert turns == [list(range(size))] * len(turns)
        assert state["turns"][source] * size + state["taken"][source] == len(rows[source])


def test_sources_shuffle_anew_each_turn():
    rows = [row for _, row in taken(MixtureStream([hosted(0, 20)], [1], 4), 60)]
    assert len({tuple(rows[k : k + 20]) for k in (0, 20, 40)}) == 3


def made(kind):
    mixture = Mixture(3)
    if kind is MixtureSampler:
        return mixture, MixtureSampler(GROUPS, mixture, 16, batches=40, seed=5)
    return mixture, MixtureStream(sources(kind), mixture, 16, seed=5)


def run(mixture, source, first, steps, ahead, saved=None):
    """Train on batches that are fetched ahead, which move the weights; return what came, and states."""
    sampled = isinstance(source, MixtureSampler)
    given = {"dataset": range(len(GROUPS)), "sampler": source} if sampled else {"dataset": source}
    loader, fetched = iter(DataLoader(batch_size=16, collate_fn=list, **given)), collections.deque()
    came, state = [], None
    for step in range(first, steps):
        fetched.extend(next(loader) for _ in range(1 + ahead - len(fetched)))
        came.append(fetched.popleft())
        mixture.step(torch.tensor([1.0, -1.0, 0.5]) * (1 + step % 3), torch.full((3,), 0.05))
        if step == saved:
            state = json.dumps([mixture.state_dict(), source.state_dict(batches=step + 1)])
    return came, state


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("kind", [MixtureSampler, *KINDS])
def test_runs_that_fetch_ahead_resume(kind, ahead):
    whole, state = run(*made(kind), 0, 12, ahead, saved=4)
    states = json.loads(state)
    mixture, source = made(kind)
    mixture.load_state_dict(states[0])
    source.load_state_dict(states[1])
    before = source.state_dict()
    came, again = run(mixture, source, 5, 12, ahead, saved=8)
    assert came == whole[5:]
    assert json.loads(again)[1]["batch"] == 9
    assert before == states[1]  # a state that was loaded and not used yet is the same
    assert len(states[1]["ahead"]) == ahead


def test_batches_name_their_sources():
    stream = MixtureStream([[{"x": 1}], [{"x": 2}]], [1, 1], 8, source="source")
    batch = next(iter(DataLoader(stream, 8)))
    assert torch.equal(batch["source"], batch["x"] - 1)


def test_a_worker_is_refused(monkeypatch):
    monkeypatch.setattr("lai_torch.integrations.sampling.get_worker_info", object)
    with pytest.raises(RuntimeError, match="MixtureStream: expected num_workers=0, got a worker"):
        next(iter(MixtureStream([[1]], [1], 4)))
