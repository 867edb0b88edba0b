"""A stream over streams: its shares, its turns, on several processes, and resumed."""

import collections
import itertools
import json

import datasets
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lai_torch import MixtureStream
from torch.utils.data import DataLoader

from lai_core.mixtures import Mixture

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


def test_a_source_is_told_its_turn_and_shuffles_anew():
    rows = [row for _, row in taken(MixtureStream([hosted(0, 20)], [1], 4), 60)]
    assert len({tuple(rows[k : k + 20]) for k in (0, 20, 40)}) == 3


@given(st.integers(1, 4), st.integers(0, 99))
def test_processes_share_one_batch_out(replicas, seed):
    options = {"seed": seed, "fixed": {2: 1}}
    whole = taken(MixtureStream(sources(listed), [1, 1, 2], 3 * replicas, **options), 15 * replicas)
    for rank in range(replicas):
        own = MixtureStream(sources(listed), [1, 1, 2], 3, replicas=replicas, rank=rank, **options)
        expected = [
            item
            for k in range(0, len(whole), 3 * replicas)
            for item in whole[k : k + 3 * replicas][rank::replicas]
        ]
        assert taken(own, 15) == expected


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_resumed_to_the_bit_behind_a_loader_that_fetches_ahead(kind, ahead):
    def run(mixture, stream, first, steps, saved=None):
        loader, fetched, came, state = (
            iter(DataLoader(stream, 16, collate_fn=list)),
            collections.deque(),
            [],
            None,
        )
        for step in range(first, steps):
            fetched.extend(next(loader) for _ in range(1 + ahead - len(fetched)))
            came.append(fetched.popleft())
            mixture.step(torch.tensor([1.0, -1.0, 0.5]) * (1 + step % 3), torch.full((3,), 0.05))
            if step == saved:
                state = json.dumps([mixture.state_dict(), stream.state_dict(batches=step + 1 - first)])
        return came, state

    def made():
        mixture = Mixture(3)
        return mixture, MixtureStream(sources(kind), mixture, 16, seed=5)

    whole, state = run(*made(), 0, 12, saved=4)
    mixture, stream = made()
    states = json.loads(state)
    mixture.load_state_dict(states[0])
    stream.load_state_dict(states[1])
    before = stream.state_dict()
    assert run(mixture, stream, 5, 12)[0] == whole[5:]
    assert before == states[1]  # a state that was loaded and not used yet is the same


class Stateful:
    """A source that knows where it is."""

    def __init__(self):
        self.place, self.read = 0, 0

    def __iter__(self):
        for place in range(self.place, 9):
            self.place, self.read = place + 1, self.read + 1
            yield place
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


def test_a_source_with_a_state_is_not_read_again():
    stream, resumed = MixtureStream([Stateful()], [1], 4), MixtureStream([Stateful()], [1], 4)
    assert taken(stream, 16) == [*range(9), *range(7)]
    resumed.load_state_dict(stream.state_dict())
    assert taken(resumed, 4) == [7, 8, 0, 1]
    assert resumed.sources[0].read == 4


def test_a_batch_says_where_its_items_are_from():
    stream = MixtureStream([[{"x": 1}], [{"x": 2}]], [1, 1], 8, source="source")
    batch = next(iter(DataLoader(stream, 8)))
    assert torch.equal(batch["source"], batch["x"] - 1)


def first(stream):
    return next(iter(stream))


BAD = {
    "sources[1]: expected an iterable that can begin again, or a function that returns one, got generator": (
        lambda: MixtureStream([[1], (k for k in range(3))], [1, 1], 4)
    ),
    "sources[0]: expected an iterable that can begin again, or a function that returns one, got int": (
        lambda: MixtureStream([1], [1], 4)
    ),
    "sources[0]: expected an item at least, each time it is iterated, got none": (
        lambda: first(MixtureStream([[]], [1], 4))
    ),
    "source: expected items that are mappings, which take a key, got int": (
        lambda: first(MixtureStream([[1]], [1], 4, source="source"))
    ),
    "source: expected a key that items do not have, got 'x'": (
        lambda: first(MixtureStream([[{"x": 1}]], [1], 4, source="x"))
    ),
    "state: expected the keys ['ahead', 'batch', 'seed', 'streams', 'taken', 'turns'], got []": (
        lambda: MixtureStream([[1]], [1], 4).load_state_dict({})
    ),
    "state['turns']: expected 1 sources, got 2": (
        lambda: MixtureStream([[1]], [1], 4).load_state_dict(
            MixtureStream([[1], [2]], [1, 1], 4).state_dict()
        )
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises((TypeError, ValueError)) as caught:
        BAD[message]()
    assert str(caught.value) == message


def test_a_worker_is_refused(monkeypatch):
    monkeypatch.setattr("lai_torch.integrations.stream.get_worker_info", object)
    with pytest.raises(RuntimeError, match="MixtureStream: expected num_workers=0, got a worker"):
        first(MixtureStream([[1]], [1], 4))
