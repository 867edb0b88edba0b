"""A layout is checked once: whatever a check depends on, another layout is checked anew."""

import gc
import weakref

import array_api_strict as strict
import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import lai_core as lai
from lai_core._engine.gradients import Workspace
from lai_core.records._once import KEPT, check_once


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


def on_device(number):
    return lambda shape: strict.ones(shape, dtype=strict.float32, device=strict.Device(f"device{number}"))


def as_list(shape):
    return np.ones(shape).tolist()


READOUT = lai.LayerTrace(np.ones((4, 5, 3)))
ERRORS = {
    "an array's kind of numbers": (lambda: pair(dense()), lambda: pair(dense(make=typed(int)))),
    "what holds the numbers": (lambda: pair(dense()), lambda: pair(dense(make=as_list))),
    "a size": (lambda: pair(dense(), dense()), lambda: pair(dense(), dense(n=5))),
    "a static value": (lambda: pair(dense(width=6, groups=2)), lambda: pair(dense(width=6, groups=5))),
    "a static value's type": (lambda: pair(dense()), lambda: pair(dense(groups=True))),
    "a number in a static value": (lambda: pair(convolution()), lambda: pair(convolution(stride=(2,)))),
    "a kind": (
        lambda: pair(lai.ReadoutTrace(np.ones((4, 6, 3)), np.ones((4, 5, 2))), dense()),
        lambda: pair(lai.LayerTrace(np.ones((4, 6, 3)), np.ones((4, 5, 2))), dense()),
    ),
    "which array is there": (
        lambda: pair(lai.GainTrace(None, np.ones((4, 3))), dense()),
        lambda: pair(lai.GainTrace(np.ones((4, 3)), None), dense()),
    ),
    "a key": (
        lambda: pair(dense(weight="a"), dense(width=5, weight="b")),
        lambda: pair(dense(weight="a"), dense(width=5, weight="a")),
    ),
    "a device": (
        lambda: pair(dense(make=on_device(1)), dense(make=on_device(1))),
        lambda: pair(dense(make=on_device(1)), dense(make=on_device(2))),
    ),
    "which gradients are needed": (
        lambda: pair(READOUT, dense(), call=lai.lli_kernel),
        lambda: pair(READOUT, dense()),
    ),
    "a budget": (lambda: pair(dense()), lambda: pair(dense(), memory_budget=0)),
    "where one trace ends": (
        lambda: lai.ghost_kernel(lai.Trace([dense(), dense()]), lai.Trace([dense(), dense()])),
        lambda: lai.ghost_kernel(lai.Trace([dense()]), lai.Trace([dense(), dense(), dense()])),
    ),
    "what is no trace": (lambda: pair(dense()), lambda: lai.ghost_kernel(dense(), dense())),
}


@pytest.mark.parametrize("what", ERRORS)
def test_deviations_from_passed_layouts_are_refused(what):
    sound, wrong = ERRORS[what]
    sound()
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=r"expected|these fit"):
            wrong()


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


def test_arguments_alike_are_checked_once():
    calls = []
    check = check_once(lambda *given: calls.append(1) or len(calls))
    assert [check(Workspace(np, np.float64, 2**20), (1, ("a", ()))) for _ in range(2)] == [1, 1]


def test_the_newest_layouts_are_known():
    calls = []
    check = check_once(calls.append)
    for number in (*range(KEPT + 1), KEPT, 1, 0):
        check(number)
    assert calls == [*range(KEPT + 1), 0]


def test_no_array_is_kept_alive():
    layer = dense()
    arrays = [weakref.ref(array) for array in layer.arrays().values()]
    pair(layer)
    del layer
    gc.collect()
    assert [array() for array in arrays] == [None, None]


def test_custom_kinds_are_always_checked():
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


def test_symbolic_sizes_are_always_checked(monkeypatch):
    calls = counted(monkeypatch)

    def scores(activations, gradients):
        return pair(lai.LayerTrace(activations, gradients, name="symbols"), call=lai.lli_scores)

    for count in (2, 4):  # torch's symbols have no hash
        make_fx(scores, tracing_mode="symbolic")(torch.ones(4, 3), torch.ones(4, 2))
        assert len(calls) == count
