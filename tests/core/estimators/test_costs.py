"""Counted costs of routes against the formulas, by hand."""

from functools import partial

import numpy as np
import pytest

import lai_core as lai
from lai_core.estimators.costs import cost_ratio, list_routes
from tests.support.refusals import Table, refusals


def trace(n, t, widths, outputs):
    shape = (n,) if t is None else (n, t)
    layers = [lai.LayerTrace(np.ones((*shape, d)), np.ones((*shape, d_out))) for d, d_out in widths]
    return lai.Trace([*layers, lai.LayerTrace(np.ones((*shape, 3)), np.ones((*shape, outputs)))])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_routes_by_hand(dtype):
    """Two samples of five positions, inputs of 3 and 4 and seven outputs; a forward pass of 100."""
    layers = [lai.LayerTrace(np.ones((2, 5, d), dtype), np.ones((2, 5, 7), dtype)) for d in (3, 4)]
    found = list_routes(lai.Trace(layers), 100, sketches=[7, 3, 8, 1])
    size = np.dtype(dtype).itemsize
    whole = 7 * (3 + 4) * size  # the sum's numbers, whatever the number of samples
    kept = 2 * 5 * (3 + 4 + 7) * size
    assert [(route.positions, route.sketch, route.summary_bytes) for route in found] == [
        ("tokens", None, whole), ("mean", None, whole), ("flatten", None, kept),
        ("tokens", 1, whole // 7), ("tokens", 3, whole * 3 // 7),
    ]  # fmt: skip
    tokens = 2 * 5 * 7 * (3 + 4) / 100
    pairs = 2 * 2 * 5 * (3 + 4 + 7) / 100
    assert [route.forwards for route in found] == pytest.approx(
        [tokens, tokens / 5, pairs, tokens / 7, tokens * 3 / 7]
    )
    assert [route.meaning.partition(";")[2].strip() for route in found[3:]] == [
        "unbiased, of sketched output gradients"
    ] * 2


def test_routes_without_or_with_unequal_positions():
    flat = list_routes(trace(3, None, [(2, 1)], 4), 10)
    assert [(route.positions, route.forwards, route.summary_bytes) for route in flat] == [
        ("tokens", 3 * 4 * 5 / 10, 4 * 5 * 8),
        ("mean", 3 * 4 * 5 / 10, 4 * 5 * 8),
        ("flatten", 3 * 3 * (5 + 4) / 10, 3 * (5 + 4) * 8),
    ]
    table = lai.EmbeddingTrace(np.zeros((3, 2), int), np.ones((3, 2, 2)), rows=5)
    uneven = lai.Trace([table, lai.LayerTrace(np.ones((3, 6, 2))), trace(3, None, [], 4).layers[0]])
    found = list_routes(uneven, 10, sketches=[2])
    assert [(route.positions, route.sketch, route.summary_bytes) for route in found] == [
        ("mean", None, 4 * (2 + 3) * 8),
        ("flatten", None, 3 * (6 * 2 + 3 + 4) * 8),
        ("mean", 2, 4 * (2 + 3) * 8 // 2),
    ]


ONE = trace(2, 3, [], 4)
REFUSED: Table = {
    "ValueError: widths: expected the input's and at least one layer's, got 1 of them": (
        lambda: cost_ratio([3])
    ),
    "TypeError: widths[1]: expected a whole number >= 1, got True": lambda: cost_ratio([3, True]),
    **{
        f"ValueError: sketches: expected positive whole numbers, got {width!r}": partial(
            list_routes, ONE, 10, sketches=[width]
        )
        for width in (0, -1, 2.0, True, "2")
    },
}


test_what_has_no_cost_is_refused = refusals(REFUSED)
