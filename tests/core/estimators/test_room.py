"""Public functions from the fewest bytes to more than enough: the same numbers, in fewer products."""

import numpy as np
import pytest

import lai_core as lai
from lai_core.estimators.gates import GateTrace, gate_lai_kernel, gate_lai_scores
from lai_core.estimators.sketches import sketch_outputs, sketch_variance
from tests.core.engine.test_budgets import refusals

DRAWS = np.random.default_rng(1)
PERMUTATION = np.array([3, 0, 5, 1, 4, 2])
SIGNS = np.array([1.0, -1.0, -1.0, 1.0, -1.0, 1.0])


def dense(samples: int, positions: int | None, *widths: int, bias: bool = False) -> lai.Trace:
    """Return layers of these inputs and six outputs."""
    lead = (samples,) if positions is None else (samples, positions)
    return lai.Trace(
        [
            lai.LayerTrace(DRAWS.normal(size=(*lead, width)), DRAWS.normal(size=(*lead, 6)), bias=bias)
            for width in widths
        ]
    )


def gated(samples: int) -> GateTrace:
    """Return a chain of layers from 3 to 4 to 2 to 5."""
    inputs = [DRAWS.normal(size=(samples, width)) for width in (3, 4, 2)]
    trace = lai.Trace(
        [
            lai.LayerTrace(inputs[0]),
            lai.LayerTrace(inputs[1], bias=True),
            lai.LayerTrace(inputs[2], DRAWS.normal(size=(samples, 5))),
        ]
    )
    gates = [DRAWS.uniform(size=(samples, width)) for width in (4, 2)]
    return GateTrace(trace, gates, [np.arange(1.0, 5.0), np.array([5.0, 6.0])])


V, T = dense(3, 2, 7, 4), dense(5, 3, 7, 4)
V_ONE, T_ONE = (dense(samples, None, 7, 4, bias=True) for samples in (3, 5))
V_MANY, T_MANY = dense(2, 5, 2), dense(5, 7, 2)
V_LONG, T_SHORT = dense(1, 40, 60), dense(5, 1, 60)
GATED, GATED_T = gated(3), gated(5)
SUMMARY = lai.summarize(V, "lai")

CALLS = {
    "variance by pairs": (
        lambda b: sketch_variance(V, T, width=2, memory_budget=b),
        "318:72 342:52 366:32 732:20 1098:14 1320:12 1830:7",
    ),
    "variance at one position": (
        lambda b: sketch_variance(V_ONE, T_ONE, width=4, memory_budget=b),
        "106:50 122:35 212:21 318:14 530:7",
    ),
    "variance from a summary": (
        lambda b: sketch_variance(SUMMARY, T, width=4, memory_budget=b),
        "318:70 342:50 366:30 732:18 1098:12 1320:10 1830:5",
    ),
    "variance at many positions": (
        lambda b: sketch_variance(V_MANY, T_MANY, width=4, memory_budget=b),
        "664:126 712:66 760:46 904:26 1808:16 2712:11 4520:6",
    ),
    "variance by pairs with one long sample": (
        lambda b: sketch_variance(V_LONG, T_SHORT, width=2, memory_budget=b),
        "5652:14 6024:10 6396:8 7140:6",
    ),
    "sketch": (
        lambda b: sketch_outputs(T, SIGNS, PERMUTATION, width=4, memory_budget=b).layers[-1].output_gradients,
        "32:15 64:8 96:5 128:4 160:3 256:2 480:1",
    ),
    "gated kernel": (
        lambda b: gate_lai_kernel(GATED, GATED_T, memory_budget=b),
        "15:30 30:18 45:12 75:6",
    ),
    "gated scores without oneself": (
        lambda b: gate_lai_scores(GATED_T, GATED_T, exclude_self=True, memory_budget=b),
        "25:30 50:18 75:12 125:6",
    ),
    "scores": (
        lambda b: lai.lai_scores(V, T, memory_budget=b),
        "66:78 72:66 90:52 96:38 108:36 114:26 120:24 168:18 186:12 372:8 558:6 930:4 1320:3",
    ),
    "self-influence": (
        lambda b: lai.self_influence(T, "lai", memory_budget=b),
        "99:120 123:15 246:9 369:6 615:3",
    ),
}
"""The fewest numbers of eight bytes, and where more of them take fewer products: `room:products`.

Of a kernel of a chain's three layers a training sample has a column for each, and two in hand: with three
validation samples 15 numbers. A position's sketch takes its six outputs four times, filled up to two in each
of four groups: 32. The variance has half of the room, as the summed gradient is alive beside: of a sample of
"one position" its factors 6 + 7, laid out 6 * 6, and of a row of pairs 4: 53 = 106 / 2.
The long one takes 40 * 66, each short one 66, and each pair three products a pair of positions: 120.
"""


@pytest.mark.parametrize("name", CALLS)
def test_more_memory_takes_fewer_products(name, monkeypatch):
    import array_api_compat.numpy as namespace

    call, stairs = CALLS[name]
    ample, calls = call(2**30), []
    for product in ("matmul", "take"):
        own = getattr(namespace, product)
        monkeypatch.setattr(namespace, product, lambda *a, own=own, **k: calls.append(1) or own(*a, **k))

    def products(room: int) -> int:
        calls.clear()
        np.testing.assert_allclose(call(8 * room), ample, rtol=1e-11, atol=1e-12)
        return len(calls)

    steps = [tuple(map(int, step.split(":"))) for step in stairs.split()]
    assert max(refusals(call)) == 8 * steps[0][0]
    assert [(room, products(room)) for room, _ in steps] == steps
    assert [products(room - 1) for room, _ in steps[1:]] == [count for _, count in steps[:-1]]
