"""Random streams go on from where they were, whatever their kind and whatever waits in them."""

import random

import numpy as np
import pytest
from lai_torch._model.snapshot import streams
from lai_torch._model.snapshot.streams import Streams

DRAWS = (0, 1, 2, 3, 623, 625)


@pytest.fixture(autouse=True)
def _given_back():
    held = random.getstate(), np.random.get_state()  # noqa: NPY002 # the global stream is meant
    yield
    random.setstate(held[0])
    np.random.set_state(held[1])  # noqa: NPY002


def python_drawn():
    return [random.gauss(0.0, 1.0), random.random(), random.getrandbits(40)]


def numpy_drawn():
    return [*np.random.standard_normal(3), np.random.random()]  # noqa: NPY002


@pytest.mark.parametrize("drawn", [python_drawn, numpy_drawn])
@pytest.mark.parametrize("draws", DRAWS)
def test_a_stream_goes_on_from_where_it_was(draws, drawn):
    random.seed(draws)
    np.random.seed(draws)  # noqa: NPY002
    for _ in range(draws):
        random.gauss(0.0, 1.0)  # every other one waits
    np.random.standard_normal(draws)  # noqa: NPY002
    before = Streams([])
    expected = drawn()
    assert before.moved()
    before.restore()
    assert not before.moved()
    assert before.equal(Streams([]))
    assert drawn() == expected


@pytest.mark.parametrize(
    "draw",
    [lambda: random.gauss(0.0, 1.0), np.random.standard_normal],
)
def test_a_normal_number_that_waits_is_taken_without_a_draw_and_put_back(draw):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    draw()
    before = Streams([])
    taken = draw()
    assert before.moved()
    before.restore()
    assert not before.moved()
    assert draw() == taken


def test_a_stream_of_another_kind_goes_on_too():
    kind = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.Philox(3))
    try:
        before = Streams([])
        expected = numpy_drawn()
        assert before.moved()
        before.restore()
        assert not before.moved()
        assert numpy_drawn() == expected
    finally:
        np.random.set_bit_generator(kind)


def test_without_numpy_nothing_is_kept_of_it(monkeypatch):
    monkeypatch.setattr(streams.sys, "modules", {})
    before = Streams([])
    python_drawn()
    assert before.moved()
    before.restore()
    assert not before.moved()
