"""A layout is checked once: whatever a check depends on, another layout is checked anew."""

import gc
import weakref
from types import SimpleNamespace

import array_api_strict as strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import lai_core as lai
from lai_core.records import Workspace, _once


def dense(n=4, width=3, outputs=2, make=np.ones, **options):
    return lai.LayerTrace(make((n, width)), make((n, outputs)), **options)


def pair(*layers, call=lai.ghost_kernel, **options):
    """Score a batch of these layers against a sound one, as the same layers would be."""
    one = lai.Trace(layers)
    return call(one, one, **options)


def typed(dtype):
    return lambda shape: np.ones(shape, dtype)


def convolution(**options):
    given = {"kernel": (2,), "bias": True} | options
    return lai.ConvolutionTrace(np.ones((4, 2, 3)), np.ones((4, 2, 2)), **given)


def embedding(dtype=np.int64, rows=9):
    return lai.EmbeddingTrace(np.ones((4,), dtype), np.ones((4, 2)), rows=rows)


def on_device(number):
    return lambda shape: strict.ones(shape, dtype=strict.float32, device=strict.Device(f"device{number}"))


def as_list(shape):
    return np.ones(shape).tolist()


READOUT = lai.LayerTrace(np.ones((4, 5, 3)))
ERRORS = {
    "an array's kind of numbers": (lambda: pair(dense()), lambda: pair(dense(make=typed(int)))),
    "an id's kind of numbers": (lambda: pair(embedding()), lambda: pair(embedding(float))),
    "what holds the numbers": (lambda: pair(dense()), lambda: pair(dense(make=as_list))),
    "a size": (lambda: pair(dense(), dense()), lambda: pair(dense(), dense(n=5))),
    "a static value": (lambda: pair(dense(width=6, groups=2)), lambda: pair(dense(width=6, groups=5))),
    "a static value's type": (lambda: pair(dense()), lambda: pair(dense(groups=True))),
    "the type of another": (lambda: pair(dense(bias=True)), lambda: pair(dense(bias=1))),
    "a number in a static value": (lambda: pair(convolution()), lambda: pair(convolution(stride=(2,)))),
    "a static value's length": (lambda: pair(convolution()), lambda: pair(convolution(dilation=(1, 1)))),
    "a kind": (
        lambda: pair(lai.ReadoutTrace(np.ones((4, 6, 3)), np.ones((4, 5, 2))), dense()),
        lambda: pair(lai.LayerTrace(np.ones((4, 6, 3)), np.ones((4, 5, 2))), dense()),
    ),
    "an array that is there": (lambda: pair(dense()), lambda: pair(lai.LayerTrace(np.ones((4, 3)), None))),
    "which array is there": (
        lambda: pair(lai.GainTrace(None, np.ones((4, 3))), dense()),
        lambda: pair(lai.GainTrace(np.ones((4, 3)), None), dense()),
    ),
    "a key": (
        lambda: pair(dense(weight="a"), dense(width=5, weight="b")),
        lambda: pair(dense(weight="a"), dense(width=5, weight="a")),
    ),
    "a key's kind": (lambda: pair(dense(weight="a")), lambda: pair(dense(weight=["a"]))),
    "a device": (
        lambda: pair(dense(make=on_device(1)), dense(make=on_device(1))),
        lambda: pair(dense(make=on_device(1)), dense(make=on_device(2))),
    ),
    "which gradients are needed": (
        lambda: pair(READOUT, dense(), call=lai.lli_kernel),
        lambda: pair(READOUT, dense()),
    ),
    "what positions mean": (
        lambda: pair(READOUT, dense(), call=lai.lai_kernel, positions="mean"),
        lambda: pair(READOUT, dense(), call=lai.lai_kernel),
    ),
    "a budget": (lambda: pair(dense()), lambda: pair(dense(), memory_budget=0)),
    "its type": (
        lambda: pair(dense(), memory_budget=2**20),
        lambda: pair(dense(), memory_budget=2.0**20),
    ),
    "where one trace ends": (
        lambda: lai.ghost_kernel(lai.Trace([dense(), dense()]), lai.Trace([dense(), dense()])),
        lambda: lai.ghost_kernel(lai.Trace([dense()]), lai.Trace([dense(), dense(), dense()])),
    ),
    "what is no trace": (lambda: pair(dense()), lambda: lai.ghost_kernel(dense(), dense())),
}


@pytest.mark.parametrize("what", ERRORS)
def test_what_differs_from_a_layout_that_passed_is_refused(what):
    sound, wrong = ERRORS[what]
    sound()
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=r"expected|these fit"):
            wrong()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"width": 5}),
        ({"bias": True}, {"bias": False}),
        ({"weight": "a"}, {"weight": "b"}),
        ({"width": 4, "groups": 2}, {"width": 4, "groups": 1}),
    ],
)
def test_sides_that_pass_with_themselves_are_compared_with_each_other(first, second):
    one, other = (lai.Trace([dense(**options)]) for options in (first, second))
    lai.ghost_kernel(one, one), lai.ghost_kernel(other, other)
    with pytest.raises(ValueError, match="as in validation, got"):
        lai.ghost_kernel(one, other)


def test_each_type_and_namespace_has_an_outcome_of_its_own():
    """Equal values in another type: sums are kept in that type, whatever was summed before."""
    for dtype in (np.float32, np.float64, np.float16):
        assert pair(dense(make=typed(dtype))).dtype == (np.float64 if dtype is np.float64 else np.float32)
    assert type(pair(dense(make=torch.ones))) is torch.Tensor
    assert isinstance(pair(dense(make=jnp.ones)), jax.Array)
    assert pair(dense(make=strict.ones)).__array_namespace__() is strict


def counted(monkeypatch, kind=lai.LayerTrace):
    """Count how often records of a kind are checked."""
    calls = []
    check = kind.check
    monkeypatch.setattr(kind, "check", lambda self, *given: calls.append(1) or check(self, *given))
    return calls


def test_a_layout_is_checked_once(monkeypatch):
    calls = counted(monkeypatch)
    for call in (lai.ghost_scores, lai.lai_kernel):
        for n in (31, 37):
            calls.clear()
            found = [pair(dense(n=n, width=29, name=call.__name__), call=call) for _ in range(3)]
            assert len(calls) == 2, (call, n)
            np.testing.assert_array_equal(found[0], found[2])


def test_only_so_many_layouts_are_remembered(monkeypatch):
    monkeypatch.setattr(_once, "KEPT", 2)
    seen = []
    check = _once.check_once(lambda value: seen.append(value) or value)
    for value in (1, 2, 1, 3, 2, 3, 1):
        assert check(value) == value
    assert seen == [1, 2, 3, 1]


def test_a_check_that_returns_nothing_is_skipped_too():
    seen = []
    check = _once.check_once(lambda *given: seen.append(given))
    room = [Workspace(np, np.dtype(np.float32), size) for size in (1, 2)]
    for given in (
        ("a",),
        (None,),
        ("a", None),
        ((1, 2),),
        (1, 2),
        ((1,), 2),
        ((1, 2.0),),
        room[:1],
        room[1:],
    ):
        assert check(*given) is check(*given) is None
    assert len(seen) == 9


def test_no_array_is_kept_alive():
    layer = dense()
    arrays = [weakref.ref(array) for array in layer.arrays().values()]
    pair(layer)
    del layer
    gc.collect()
    assert [array() for array in arrays] == [None, None]


def test_a_kind_of_ones_own_is_checked_each_time():
    """Its check may look at values, which no shape tells."""

    def check(self, where, xp):
        if not np.all(self.activations > 0):
            msg = f"{where}: expected positive activations"
            raise ValueError(msg)

    kind = type("Derived", (lai.LayerTrace,), {"check": check})
    good, bad = (kind(sign * np.ones((4, 3)), np.ones((4, 2))) for sign in (1, -1))
    pair(good)
    with pytest.raises(ValueError, match="expected positive activations"):
        pair(bad)


def test_sizes_that_are_symbols_are_checked_each_time(monkeypatch):
    calls = counted(monkeypatch)

    def scores(activations, gradients):
        return pair(lai.LayerTrace(activations, gradients, name="symbols"), call=lai.lli_scores)

    for count in (2, 4):  # torch's symbols have no hash
        make_fx(scores, tracing_mode="symbolic")(torch.ones(4, 3), torch.ones(4, 2))
        assert len(calls) == count


def test_what_passed_for_a_symbol_passed_under_its_conditions():
    """Also where the symbol has a hash, as that of a ragged axis."""

    class Symbol(int):
        pass

    def traced(size):
        shape = (4, size)
        return lai.Trace([lai.LayerTrace(SimpleNamespace(shape=shape, dtype="float32", device="cpu"))])

    seen = []
    check = _once.check_once(seen.append)
    for size, count in ((Symbol(3), 1), (Symbol(3), 2), (3, 3), (3, 3)):
        check(traced(size))
        assert len(seen) == count


def test_a_compiler_reads_the_check_itself(monkeypatch):
    monkeypatch.setattr(_once, "is_compiling", lambda: True)
    calls = counted(monkeypatch)
    for _ in range(2):
        pair(dense())
    assert len(calls) == 4
