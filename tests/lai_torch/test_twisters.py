"""Python's and numpy's streams are read as they lie in memory: the same as what their own functions tell."""

import random

import numpy as np
import pytest
from lai_torch._model.snapshot import twisters
from lai_torch._model.snapshot.streams import Streams

DRAWS = (0, 1, 2, 3, 623, 625)


def python_drawn():
    return [random.gauss(0.0, 1.0), random.random(), random.getrandbits(40)]


def numpy_drawn():
    return [*np.random.standard_normal(3), np.random.random()]  # noqa: NPY002 # the global stream is meant


@pytest.fixture(params=["from memory", "asked"])
def how(request, monkeypatch):
    if request.param == "asked":
        monkeypatch.setattr(twisters, "_IN_MEMORY", False)
    streams = random.getstate(), np.random.get_state()  # noqa: NPY002
    yield request.param
    random.setstate(streams[0])
    np.random.set_state(streams[1])  # noqa: NPY002


@pytest.mark.parametrize("draws", DRAWS)
def test_pythons_stream_goes_on_from_where_it_was(draws, how):
    random.seed(draws)
    for _ in range(draws):
        random.gauss(0.0, 1.0)  # every other one waits
    before, state = random.getstate(), twisters.python_state()
    assert isinstance(state[0], bytes) == (how == "from memory")
    twisters.set_python_state(state)
    assert random.getstate() == before
    expected = python_drawn()
    assert twisters.python_state() != state
    twisters.set_python_state(state)
    assert random.getstate() == before
    assert python_drawn() == expected


@pytest.mark.parametrize("draws", DRAWS)
def test_numpys_stream_goes_on_from_where_it_was(draws, how):
    np.random.seed(draws)  # noqa: NPY002
    np.random.standard_normal(draws)  # noqa: NPY002 # of an odd number of them one waits
    before, state = repr(np.random.get_state(legacy=False)), twisters.numpy_state(np)  # noqa: NPY002
    assert isinstance(state, tuple) == (how == "from memory")
    expected = numpy_drawn()
    assert twisters.numpy_state(np) != state
    twisters.set_numpy_state(np, state)
    assert repr(np.random.get_state(legacy=False)) == before  # noqa: NPY002
    assert numpy_drawn() == expected


def test_a_normal_number_that_waits_is_taken_without_a_draw_and_put_back(how):
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    np.random.standard_normal()  # noqa: NPY002
    random.gauss(0.0, 1.0)
    streams = Streams([])
    taken = np.random.standard_normal(), random.gauss(0.0, 1.0)  # noqa: NPY002
    assert streams.moved()
    streams.restore()
    assert not streams.moved()
    assert (np.random.standard_normal(), random.gauss(0.0, 1.0)) == taken  # noqa: NPY002


def test_a_stream_of_another_kind_is_asked(how):
    del how
    kind = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.Philox(3))
    try:
        state = twisters.numpy_state(np)
        expected = numpy_drawn()
        assert twisters.numpy_state(np) != state
        twisters.set_numpy_state(np, state)
        assert twisters.numpy_state(np) == state
        assert numpy_drawn() == expected
    finally:
        np.random.set_bit_generator(kind)


def test_without_numpy_nothing_is_kept_of_it():
    assert twisters.numpy_state(None) is None
    twisters.set_numpy_state(None, None)
