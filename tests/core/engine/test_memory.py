"""Temporaries keep to the budget; nothing grows with the validation set, or with all pairs' widths."""

import tracemalloc
from functools import partial

import numpy as np
import pytest

import lai_core as lai
from lai_core.estimators.gates import GateTrace, gate_lai_scores
from lai_core.estimators.sketches import sketch_outputs, sketch_variance
from lai_core.records import _reads
from tests.support.backends import BACKENDS
from tests.support.traces import Layout, trace

NUMPY = BACKENDS[0]
SINGLE_OR_DOUBLE = {"float64": 8, "float16": 4}  # half types are added up in single precision


def peak(call) -> int:
    """Return the most bytes that were allocated at once during `call`."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def dense(samples, widths, seed=0, dtype=None, **flags):
    return trace(Layout(widths, **flags).draw(samples, seed), NUMPY, dtype)


def pair(*arguments, sizes=(60, 60), **options):
    return [dense(n, *arguments, seed=seed, **options) for seed, n in enumerate(sizes)]


def read(n, seed, dtype, tie, rows=100, t=12, d=16):
    """Return a table that is read once, or twice and is the head's matrix too."""
    draws = np.random.default_rng(seed)

    def normal(width):
        return draws.normal(size=(n, t, width)).astype(dtype)

    reads = [
        lai.EmbeddingTrace(draws.integers(rows, size=(n, t)), normal(d), rows, 0, "w") for _ in range(1 + tie)
    ]
    bare = lai.LayerTrace(np.zeros((n, 1)), np.zeros((n, 1)))
    return lai.Trace([*reads, lai.LayerTrace(normal(d), normal(rows), weight="w") if tie else bare])


def image(outputs):
    draws = np.random.default_rng(0)
    layer = draws.normal(size=(12, 4, 9, 9)), draws.normal(size=(12, outputs, 9, 9))
    return [lai.Trace([lai.ConvolutionTrace(*layer, kernel=(3, 3), padding=((1, 1),) * 2)])] * 2


def gated(samples, seed):
    draws = np.random.default_rng(seed)
    arrays = [draws.normal(size=(samples, 2)) for _ in range(9)]
    layers = [*(lai.LayerTrace(each) for each in arrays[:7]), lai.LayerTrace(*arrays[7:])]
    return GateTrace(lai.Trace(layers), arrays[1:8], [np.ones(2)] * 7)


def sketch(_, training, **options):
    outputs = training.layers[-1].output_gradients.shape[-1]
    signs, order = np.resize([1.0, -1.0], outputs), np.arange(outputs)[::-1]
    found = sketch_outputs(training, signs, order, width=5, **options)
    return found.layers[-1].output_gradients


KERNELS = lai.lai_kernel, lai.ghost_kernel
BOTH = lai.ghost_kernel, lai.ghost_scores
SCORES = (
    lambda _, training, summary, **options: lai.ghost_scores(summary, training, **options),
    lambda validation, training, _, **options: lai.ghost_scores(validation, training, **options),
    lambda validation, training, _, **options: lai.lai_scores(validation, training, **options),
    lambda _, training, __, **options: lai.ghost_scores(training, training, exclude_self=True, **options),
    lambda _, training, __, **options: lai.lli_scores(training, training, exclude_self=True, **options),
)
VARIANCE = (partial(sketch_variance, width=5),)
SMALL = 2**15
"""What Python itself takes, and vectors of scores."""

HELD = {
    "vectors": (pair(((64, 64),) * 2), KERNELS, (16, 20), 3 * 60 * 60 * 8 + 2**16, False),
    "tokens": (pair(((64, 64),) * 2, positions=4), KERNELS, (16, 20), 3 * 60 * 60 * 8 + 2**16, True),
    **{
        f"scores of {dtype}": (
            [*(sides := pair(((256, 256), (256, 64)), dtype=dtype, positions=4, bias=(True, True))),
             lai.summarize(sides[0], "ghost")],
            SCORES, (18,), 2 * 60 * 320 * size + SMALL, True,
        )
        for dtype, size in SINGLE_OR_DOUBLE.items()
    },
    **{
        f"{'tied ' * tie}table of {dtype}{' by the standard' * plain}": (
            [read(20, seed, dtype, tie) for seed in (0, 1)],
            BOTH, (17, 18), 3 * 20 * 20 * 8 + SMALL, plain,
        )
        for dtype in SINGLE_OR_DOUBLE for tie in (False, True) for plain in (False, True)
    },
    **{
        f"map of {outputs}": (image(outputs), BOTH, (18, 19, 20, 21), 3 * 12 * 12 * 8 + SMALL, False)
        for outputs in (2, 40)
    },
    **{
        f"sketch of {outputs}": (
            pair(((40, outputs),), positions=positions, sizes=(30, 50)), VARIANCE, (18,), SMALL, True,
        )
        for positions, outputs in ((60, 10), (3, 200))
    },
    "a sketch": (
        pair(((2, 203),), positions=60, sizes=(1, 50)), (sketch,), (17, 18), 2 * 3000 * 5 * 8 + SMALL, True,
    ),
    "gates": (
        [gated(n, n) for n in (40, 120)], (gate_lai_scores,), (15, 16), SMALL, True,
    ),
    "a sum of 1.28 MB": (pair(((400, 400),)), VARIANCE, (19,), 0, True),
}  # fmt: skip
"""Both sides, calls, the budgets' logarithms, bytes beside, whether the first call takes more if it may."""


@pytest.mark.parametrize("name", HELD)
def test_temporaries_keep_to_the_budget(name, monkeypatch):
    sides, calls, budgets, beside, more = HELD[name]
    if name.endswith("by the standard"):
        monkeypatch.setattr(_reads, "is_numpy_array", lambda _: False)
    for call in calls:
        ample = call(*sides)
        for budget in (2**power for power in budgets):
            held = partial(call, *sides, memory_budget=budget)
            digits = 1e-5 if "float16" in name else 1e-11
            np.testing.assert_allclose(held(), ample, rtol=0, atol=digits * np.abs(ample).max())
            assert peak(held) <= budget + beside, (call, budget)
    assert not more or peak(partial(calls[0], *sides)) > 2 ** budgets[-1] + beside


def test_peak_memory_ignores_validation_set_size():
    widths = (256, 256), (256, 10)
    training = dense(64, widths)
    summaries = [lai.summarize(dense(n, widths, seed=n), "lai") for n in (10, 1000)]
    small, large = (peak(lambda s=s: lai.lai_scores(s, training)) for s in summaries)
    assert large <= 1.05 * small
